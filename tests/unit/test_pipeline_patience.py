"""How long the pipeline waits for what passes by itself: for as long as it takes."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from tidemark.app import pipeline as app
from tidemark.app.pipeline import FIRST_PAUSE_S, LONGEST_PAUSE_S, run_pipeline
from tidemark.config import load_config
from tidemark.errors import LedgerUnavailable

# Some two weeks, with the longest pause.
TRIES = 40_000


class Stop(threading.Event):
    """Passes over all pauses, and is set after so many."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses_s.append(timeout)
        if len(self.pauses_s) == TRIES:
            self.set()
        return self.is_set()


def test_a_database_that_is_away_for_weeks_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise LedgerUnavailable("the database is away")

    monkeypatch.setattr(app, "open_ledger", away)
    monkeypatch.setattr(app.PipelineStatus, "failed", lambda *_: None)
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path)})
    stop = Stop()
    run_pipeline(config, until_caught_up=False, on_progress=lambda standing: None, stop=stop)
    pauses = [pause for pause in stop.pauses_s if pause is not None]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE_S, LONGEST_PAUSE_S)
    assert all(after == min(2 * before, LONGEST_PAUSE_S) for before, after in pairwise(pauses))
