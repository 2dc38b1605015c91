"""How long the mirror waits: for what passes by itself longer each time, and never for long; for
brokers as long as they take anything."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tidemark.app import mirror as app
from tidemark.app.mirror import FIRST_PAUSE_S, LONGEST_PAUSE_S, run_mirror
from tidemark.config import load_config
from tidemark.errors import LedgerUnavailable
from tidemark.mirror import patience
from tidemark.mirror.kafka import Trouble
from tidemark.mirror.patience import STUCK_AFTER_S, Patience

TRIES = 40
IN_TROUBLE_S = patience._IN_TROUBLE_S


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is."""
    times = [1000.0]
    monkeypatch.setattr(patience, "monotonic", lambda: times[0])
    return times


def test_brokers_that_take_little_are_waited_for_as_long_as_they_take_anything(
    now: list[float],
) -> None:
    waiting = Patience(Trouble())
    for left in range(50, 0, -1):
        now[0] += STUCK_AFTER_S - 1
        assert not waiting.is_over(left)
    now[0] += STUCK_AFTER_S - 1
    assert not waiting.is_over(1)
    now[0] += 2
    assert waiting.is_over(1)
    assert "did not answer in time" in waiting.lost().message


@pytest.mark.parametrize("why", ["trouble", "failure"])
def test_brokers_that_are_away_or_have_refused_something_are_given_up_sooner(
    why: str, now: list[float]
) -> None:
    trouble = Trouble()
    waiting = Patience(trouble)
    assert not waiting.is_over(2)
    now[0] += IN_TROUBLE_S + 1
    assert not waiting.is_over(2)
    if why == "trouble":
        trouble.said = "all are down"
    else:
        waiting.shorten()
    assert waiting.is_over(2)
    assert not waiting.is_over(1)
    now[0] += IN_TROUBLE_S + 1
    assert waiting.is_over(1)
    assert waiting.lost().message.endswith(trouble.said)


def test_a_database_that_is_away_is_asked_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    stop = threading.Event()

    async def away(*_: object) -> None:
        raise LedgerUnavailable("the database is away")

    def passed_over(seconds: float, *_: object) -> None:
        pauses.append(seconds)
        if len(pauses) == TRIES:
            stop.set()

    monkeypatch.setattr(app, "open_ledger", away)
    monkeypatch.setattr(app, "pause", passed_over)
    settings = {
        "TIDEMARK_STATE_DIR": str(tmp_path),
        "TIDEMARK_MIRROR__ENABLED": "true",
        "TIDEMARK_MIRROR__BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    config = load_config(None, settings)
    run_mirror(config, until_caught_up=False, on_progress=lambda done, total: None, stop=stop)
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE_S, LONGEST_PAUSE_S)
    assert all(after == min(2 * before, LONGEST_PAUSE_S) for before, after in pairwise(pauses))
