"""Views that are older than they were are noticed, and nothing else is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidemark.app.high_water import FILE_NAME, HighWater
from tidemark.config import Config, load_config
from tidemark.pipeline.output.batch import Frontier


def at(sequence: int, ledger_id: str = "one") -> Frontier:
    return Frontier(sequence, 1_000 + sequence, b"\0" * 32, ledger_id)


def config(state_dir: Path, **settings: str) -> Config:
    return load_config(None, {"TIDEMARK_STATE_DIR": str(state_dir), **settings})


def test_older_views_are_noticed_and_those_that_went_on_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = config(tmp_path)
    HighWater(here).compare(None)
    HighWater(here).reached(at(20))
    HighWater(here).compare(at(20))
    HighWater(here).compare(at(30))
    assert caplog.records == []
    HighWater(here).compare(at(10))
    HighWater(here).compare(None)
    said = [record.getMessage() for record in caplog.records]
    assert ["at sequence 10 and have been at 20" in said[0], len(said)] == [True, 2]
    assert "restored from an old backup" in said[0]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_other_views_another_ledger_and_a_file_that_says_nothing_are_no_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    HighWater(config(tmp_path)).reached(at(20))
    elsewhere = config(tmp_path, TIDEMARK_VIEW_STORE__URL=f"sqlite:///{tmp_path}/other.db")
    HighWater(elsewhere).compare(at(10))
    HighWater(config(tmp_path)).compare(at(10, "two"))
    (tmp_path / FILE_NAME).write_text("{")
    HighWater(config(tmp_path)).compare(at(10))
    assert caplog.records == []
