"""Signals during long work are heard, also those that something has swallowed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.cli import stopping
from tidemark.cli.long_work import run_beside
from tidemark.cli.outcome import ExitCode, Terminated


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(stopping, "_told", [])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    yield
    signal.signal(signal.SIGTERM, before)


def end_when_terminated() -> None:
    stopping.stop_on([signal.SIGTERM], lambda: Terminated(ExitCode.TERMINATED))


def test_a_signal_that_was_swallowed_meanwhile_is_heard_all_the_same() -> None:
    end_when_terminated()

    def work(stop: threading.Event) -> None:
        # As if it had come, and had been raised where nobody hears it.
        stopping._told.append(signal.SIGTERM)
        assert stop.wait(30)

    with pytest.raises(Terminated):
        run_beside(work)


def test_only_what_is_sent_again_is_not_told_of_when_it_is_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    end_when_terminated()
    # Python's own handler has raised this, and it is not remembered.
    interrupted: Any = SimpleNamespace(exc_value=KeyboardInterrupt())
    sys.unraisablehook(interrupted)
    assert told == [interrupted]
    stopping._told.append(signal.SIGTERM)
    sys.unraisablehook(SimpleNamespace(exc_value=Terminated(ExitCode.TERMINATED)))  # type: ignore[arg-type]
    assert told == [interrupted]
    other: Any = SimpleNamespace(exc_value=ValueError())
    sys.unraisablehook(other)
    assert told == [interrupted, other]
