"""Landing, kept running: raw events into their files for as long as the process lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from tidemark.app.store_loop import StoreLoop
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.config import Config
from tidemark.errors import LedgerUnavailable
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.comparing import Compared, compare_blocks
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import LandingUnavailable, ParquetDirectory
from tidemark.pipeline.source.datasource import open_database
from tidemark.pipeline.source.frames import ledger_address

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
WAITED_FOR: Final = (LedgerUnavailable, LandingUnavailable)

OnProgress = Callable[[int, int], None]
"""Told how far the events are landed, and how far there are any."""


class Landing(msgspec.Struct, frozen=True):
    """How far the events are landed."""

    path: str
    last_sequence: int


def run_landing(
    config: Config, *, until_caught_up: bool, on_progress: OnProgress, stop: threading.Event
) -> Landing | None:
    """Lands events until `stop` is set, or all that the ledger has now are landed: None if stopped.

    Waits for a database or a disk that is away, also at the start, unless it is to end when it has
    caught up. Raises what only a person can mend.
    """
    if until_caught_up:
        with _opened(config) as (directory, lander):
            lander.catch_up(on_progress=on_progress, stopped=stop.is_set)
            return Landing(str(directory.path), lander.last_sequence)
    pause_s = FIRST_PAUSE_S

    def told(done: int, total: int) -> None:
        nonlocal pause_s
        pause_s = FIRST_PAUSE_S
        on_progress(done, total)

    while not stop.is_set():
        try:
            with _opened(config) as (_, lander):
                _follow(lander, config.landing.parquet.every_us, told, stop)
        except WAITED_FOR as error:
            log.warning("landing goes on in %.0f s: %s", pause_s, error.message)
            stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return None


def compare_landing(
    config: Config, *, on_progress: OnProgress, stop: threading.Event
) -> Compared | None:
    """The files held against the ledger. None if it was stopped."""
    directory = parquet_directory(config)
    with open_database(ledger_address(config)) as database:
        return compare_blocks(directory, database, on_progress=on_progress, stopped=stop.is_set)


def parquet_directory(config: Config) -> ParquetDirectory:
    settings = config.landing.parquet
    path = config.state_dir.absolute() / (settings.path or "landing/parquet")
    with StoreLoop() as stores:
        ledger = stores.wait(open_ledger(config, SystemClock()))
        ledger_id = ledger.ledger_id
        stores.wait(ledger.close())
    return ParquetDirectory(path, Schedule(settings.block_events), ledger_id)


def _follow(lander: Lander, every_us: int, on_progress: OnProgress, stop: threading.Event) -> None:
    clock = SystemClock()
    grown_us: int | None = None
    while not stop.is_set():
        now_us = clock.elapsed_us()
        is_due = grown_us is None or now_us - grown_us >= every_us
        lander.catch_up(only_whole=not is_due, on_progress=on_progress, stopped=stop.is_set)
        grown_us = now_us if is_due else grown_us
        stop.wait(min(LOOK_EVERY_S, every_us / MICROS_PER_SECOND))


@contextmanager
def _opened(config: Config) -> Iterator[tuple[ParquetDirectory, Lander]]:
    directory = parquet_directory(config)
    with directory.held(), open_database(ledger_address(config)) as database:
        yield directory, Lander(directory, database)
