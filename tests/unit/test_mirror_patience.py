"""How long the mirror waits for what passes by itself: longer each time, and never for long."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tidemark.app import mirror as app
from tidemark.app.mirror import FIRST_PAUSE_S, LONGEST_PAUSE_S, run_mirror
from tidemark.config import load_config
from tidemark.errors import LedgerUnavailable

TRIES = 40


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
