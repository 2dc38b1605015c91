"""What a command that copies the ledger shows meanwhile, and what is left when it is stopped."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.contract.events import ManualClock
from tidemark.cli import copying
from tidemark.cli.copying import Told, copy_and_show
from tidemark.cli.outcome import Terminated
from tidemark.clock import MICROS_PER_SECOND


class Shown:
    is_bar = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    def begin(self, label: str, total: int | None) -> None:
        self.texts.append(label)

    def update(self, done: int, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(copying, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()

    @contextlib.contextmanager
    def show(clock: object) -> Iterator[Shown]:
        yield shown

    monkeypatch.setattr(copying, "show_progress", show)
    return shown


def test_a_rate_is_that_of_what_was_copied_now(clock: ManualClock, shown: Shown) -> None:
    def work(told: Told, stop: threading.Event) -> str:
        told("parquet", 1_000_000, 2_000_000)
        clock.pass_time(2 * MICROS_PER_SECOND)
        told("parquet", 1_000_010, 2_000_000)
        told("clickhouse", 7, 2_000_000)
        return "done"

    assert copy_and_show("landing", work, is_to_end=True) == "done"
    assert shown.texts == [
        "landing",
        "parquet: sequence 1,000,000 of 2,000,000",
        "parquet: sequence 1,000,010 of 2,000,000, 5 events/s",
        "clickhouse: sequence 7 of 2,000,000",
    ]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Terminated])
def test_who_follows_is_stopped_in_order_and_who_is_to_end_was_interrupted(
    interrupt: type[BaseException], clock: ManualClock, shown: Shown
) -> None:
    def work(told: Told, stop: threading.Event) -> NoReturn:
        raise interrupt

    assert copy_and_show("mirroring", work, is_to_end=False) is None
    with pytest.raises(interrupt):
        copy_and_show("mirroring", work, is_to_end=True)
