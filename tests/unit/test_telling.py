"""Whoever keeps a copy tells the ledger how far it is, and goes on if the ledger does not hear."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import SECOND, ManualClock
from tests.services.ports import free_port
from tidemark.app.telling import CopyTeller
from tidemark.config import load_config
from tidemark.errors import LedgerUnavailable, TidemarkError
from tidemark.pipeline.landing.errors import LandingUnavailable

NAME = "landing.parquet"
FULL = LandingUnavailable("the disk is full", hint="Make room.")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def teller(tmp_path: Path, clock: ManualClock) -> Iterator[CopyTeller]:
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path)})
    with CopyTeller(config, NAME, clock) as teller:
        yield teller


def told(directory: Path) -> tuple[Any, ...] | None:
    """What the ledger was told last."""
    with closing(sqlite3.connect(directory / "ledger.db")) as connection:
        found: tuple[Any, ...] | None = connection.execute(
            "SELECT name, last_sequence, told_at, code, message, hint FROM copies"
        ).fetchone()
        return found


def test_it_tells_at_most_once_a_second_while_all_is_well(
    teller: CopyTeller, clock: ManualClock, tmp_path: Path
) -> None:
    began_us = clock.wall_us()
    teller.reached(1)
    clock.pass_time(SECOND - 1)
    teller.reached(2)
    assert told(tmp_path) == (NAME, 1, began_us, None, None, None)
    clock.pass_time(1)
    teller.reached(3)
    assert told(tmp_path) == (NAME, 3, began_us + SECOND, None, None, None)
    teller.reached(4, at_once=True)
    assert told(tmp_path) == (NAME, 4, began_us + SECOND, None, None, None)


def test_what_goes_wrong_is_told_at_once_and_so_is_that_it_goes_on(
    teller: CopyTeller, clock: ManualClock, tmp_path: Path
) -> None:
    teller.reached(5)
    teller.failed(FULL)
    now_us = clock.wall_us()
    assert told(tmp_path) == (NAME, 5, now_us, FULL.code, FULL.message, FULL.hint)
    teller.reached(6)
    assert told(tmp_path) == (NAME, 6, now_us, None, None, None)


def test_one_that_fails_at_its_start_is_as_far_as_was_told_before(
    teller: CopyTeller, clock: ManualClock, tmp_path: Path
) -> None:
    teller.reached(5)
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path)})
    with CopyTeller(config, NAME, clock) as another:
        another.failed(FULL)
    found = told(tmp_path)
    assert found is not None
    assert (found[1], found[3]) == (5, FULL.code)


def test_a_pause_ends_when_it_is_over_and_when_it_is_stopped(
    teller: CopyTeller, clock: ManualClock, tmp_path: Path
) -> None:
    class Passing(threading.Event):
        """Nobody stops it, and each wait takes as long as it may."""

        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            clock.pass_time(int((timeout or 0) * SECOND))
            return False

    waits: list[float | None] = []
    teller.pause(FULL, 2.5, Passing())
    assert waits == [1.0, 1.0, 0.5]
    found = told(tmp_path)
    assert found is not None
    # Nobody takes it for one that does not run.
    assert found[2] == clock.wall_us() - SECOND // 2
    stopped = threading.Event()
    stopped.set()
    teller.pause(FULL, 3600, stopped)


def test_a_ledger_that_is_away_is_no_reason_to_end(clock: ManualClock) -> None:
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    config = load_config(None, {"TIDEMARK_LEDGER__URL": away})
    with CopyTeller(config, NAME, clock) as teller:
        teller.reached(1)
        teller.failed(TidemarkError("something"))
        with pytest.raises(LedgerUnavailable):
            teller.ledger_id()
