"""Landing, kept running: raw events into their places for as long as the process lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from tidemark.app.store_loop import StoreLoop, closing
from tidemark.app.telling import CopyTeller
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.config import Config
from tidemark.config.urls import CHDB_PREFIX
from tidemark.errors import LedgerUnavailable, TidemarkError
from tidemark.ledger.opening import open_ledger
from tidemark.mirror.errors import client_needed
from tidemark.ops.copies import CLICKHOUSE, PARQUET
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.clickhouse import ClickHouseTable
from tidemark.pipeline.landing.comparing import Compared, compare_blocks
from tidemark.pipeline.landing.errors import LandingError, LandingRunning, LandingUnavailable
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.reading import LandedBlocks
from tidemark.pipeline.landing.target import LandingTarget
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.session_options import is_local
from tidemark.pipeline.source.datasource import open_database
from tidemark.pipeline.source.frames import ledger_address

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
WAITED_FOR: Final = (LedgerUnavailable, LandingUnavailable)
# Someone who wants to be done does not wait for ever for a mirror that stands still.
WAIT_FOR_MIRROR_US: Final = 60 * MICROS_PER_SECOND
_DIRECTORY: Final = "landing"


OnProgress = Callable[[str, int, int], None]
"""Told of a target how far the events are landed, and how far there are any."""


class Landing(msgspec.Struct, frozen=True):
    """How far the events are landed in a target."""

    target: str
    place: str
    last_sequence: int


class _Wanted(NamedTuple):
    """A target that is configured; it is made once the ledger's id is known."""

    copy_name: str
    make: Callable[[str], LandingTarget]
    every_us: int


def run_landing(
    config: Config, *, until_caught_up: bool, on_progress: OnProgress, stop: threading.Event
) -> list[Landing] | None:
    """Lands events until `stop` is set, or all that the ledger has now are landed: None if stopped.

    Waits for a database, a server or a disk that is away, also at the start, unless it is to end
    when it has caught up. Raises what only a person can mend.
    """
    if until_caught_up:
        return [_caught_up(config, wanted, on_progress, stop) for wanted in _wanted(config)]
    # Each by itself: one that is away does not hold up the others.
    _side_by_side([partial(_keep_landing, config, w, on_progress) for w in _wanted(config)], stop)
    return None


def compare_landing(
    config: Config, *, on_progress: OnProgress, stop: threading.Event
) -> list[Compared] | None:
    """What is landed held against the ledger. None if it was stopped."""
    compared = []
    for wanted in _wanted(config):
        target = wanted.make(_ledger_id(config))
        with open_database(ledger_address(config)) as database:
            told = partial(on_progress, target.name)
            found = compare_blocks(target, database, on_progress=told, stopped=stop.is_set)
        if found is None:
            return None
        compared.append(found)
    if config.mirror.enabled:
        found = _compare_kafka(config, on_progress, stop)
        if found is None:
            return None
        compared.append(found)
    return compared


def _compare_kafka(
    config: Config, on_progress: OnProgress, stop: threading.Event
) -> Compared | None:
    # Loaded here: what it takes is there only for those who use Kafka.
    with client_needed():
        from tidemark.mirror.ahead import CommitReader
        from tidemark.pipeline.kafka.comparing import NAME, compare_topics

    with StoreLoop() as stores, closing(stores, open_ledger(config, SystemClock())) as ledger:
        reader = CommitReader(ledger)
        return compare_topics(
            config,
            lambda received_at: stores.wait(reader.after(received_at)).chunk({}),
            stores.wait(ledger.placed_upto()),
            on_progress=partial(on_progress, NAME),
            stopped=stop.is_set,
        )


def landed_blocks(config: Config, ledger_id: str) -> LandedBlocks | None:
    """What a process on this machine may read in place of the ledger; None if there is nothing."""
    if not config.landing.parquet.enabled or not is_local(config.spark.master):
        return None
    directory = parquet_directory(config, ledger_id)
    try:
        with directory.attached(), open_database(ledger_address(config)) as database:
            # It looks whether the files are those of this ledger.
            Lander(directory, database)
            return LandedBlocks.in_directory(directory)
    except (LandingError, LandingUnavailable, LedgerRewound) as error:
        log.warning("the ledger is read, and not what is landed: %s", error.message)
        return None


def _wanted(config: Config) -> list[_Wanted]:
    landing = config.landing
    wanted = []
    if landing.parquet.enabled:
        wanted.append(
            _Wanted(PARQUET, partial(parquet_directory, config), landing.parquet.every_us)
        )
    if landing.clickhouse.enabled:
        wanted.append(
            _Wanted(CLICKHOUSE, partial(_clickhouse, config), landing.clickhouse.every_us)
        )
    return wanted


def parquet_directory(config: Config, ledger_id: str) -> ParquetDirectory:
    settings = config.landing.parquet
    path = config.state_dir.absolute() / (settings.path or f"{_DIRECTORY}/parquet")
    return ParquetDirectory(path, Schedule(settings.block_events), ledger_id)


def _clickhouse(config: Config, ledger_id: str) -> ClickHouseTable:
    settings = config.landing.clickhouse
    directory = config.state_dir.absolute() / _DIRECTORY
    return ClickHouseTable(
        settings.url or f"{CHDB_PREFIX}{directory / 'chdb'}",
        settings.database,
        settings.table,
        Schedule(settings.block_events),
        ledger_id,
        lock=directory / "clickhouse.lock",
    )


def _ledger_id(config: Config) -> str:
    with StoreLoop() as stores, closing(stores, open_ledger(config, SystemClock())) as ledger:
        return ledger.ledger_id


def _caught_up(
    config: Config, wanted: _Wanted, on_progress: OnProgress, stop: threading.Event
) -> Landing:
    with (
        CopyTeller(config, wanted.copy_name, SystemClock()) as teller,
        _told_of(teller),
        _opened(config, wanted, teller) as (target, lander),
    ):
        told = _progress(teller, target.name, on_progress)
        _land_all(lander, teller, told, stop)
        teller.reached(lander.last_sequence, at_once=True)
        return Landing(target.name, target.place, lander.last_sequence)


def _land_all(
    lander: Lander,
    teller: CopyTeller,
    on_progress: Callable[[int, int], None],
    stop: threading.Event,
) -> None:
    """What the ledger has now; a mirror that has not got there yet is waited for."""
    upto, clock = lander.head(), SystemClock()
    before, since_us = (-1, -1), 0
    while True:
        lander.catch_up(on_progress=on_progress, stopped=stop.is_set)
        teller.reached(lander.last_sequence)
        if stop.is_set() or lander.last_sequence >= upto:
            return
        # While all is mirrored anew, only the mirror moves.
        reached = lander.last_sequence, lander.mirrored_upto()
        if reached != before:
            before, since_us = reached, clock.elapsed_us()
        elif clock.elapsed_us() - since_us > WAIT_FOR_MIRROR_US:
            raise LandingUnavailable(
                f"events are landed up to {reached[0]:,}, where they are in Kafka is known up to"
                f" {reached[1]:,}, and the ledger has {upto:,}",
                hint="Start the mirror (`tidemark mirror`), or see what keeps it from going on:"
                " `tidemark status` tells.",
            )
        stop.wait(LOOK_EVERY_S)


def _keep_landing(
    config: Config, wanted: _Wanted, on_progress: OnProgress, stop: threading.Event
) -> None:
    pause_s = FIRST_PAUSE_S

    def told(target: str, done: int, total: int) -> None:
        nonlocal pause_s
        pause_s = FIRST_PAUSE_S
        on_progress(target, done, total)

    with CopyTeller(config, wanted.copy_name, SystemClock()) as teller:
        while not stop.is_set():
            try:
                with _told_of(teller), _opened(config, wanted, teller) as (target, lander):
                    progress = _progress(teller, target.name, told)
                    _follow(lander, teller, wanted.every_us, progress, stop)
            except WAITED_FOR as error:
                log.warning("landing goes on in %.0f s: %s", pause_s, error.message)
                teller.pause(error, pause_s, stop)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _follow(
    lander: Lander,
    teller: CopyTeller,
    every_us: int,
    on_progress: Callable[[int, int], None],
    stop: threading.Event,
) -> None:
    clock = SystemClock()
    grown_us: int | None = None
    while not stop.is_set():
        now_us = clock.elapsed_us()
        is_due = grown_us is None or now_us - grown_us >= every_us
        lander.catch_up(only_whole=not is_due, on_progress=on_progress, stopped=stop.is_set)
        teller.reached(lander.last_sequence)
        grown_us = now_us if is_due else grown_us
        stop.wait(min(LOOK_EVERY_S, every_us / MICROS_PER_SECOND))


def _progress(
    teller: CopyTeller, target: str, on_progress: OnProgress
) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        teller.reached(done)
        on_progress(target, done, total)

    return told


@contextmanager
def _told_of(teller: CopyTeller) -> Iterator[None]:
    """What goes wrong inside is told to the ledger too, and raised on."""
    try:
        yield
    except LandingRunning:
        # The other one tells of itself.
        raise
    except TidemarkError as error:
        teller.failed(error)
        raise


@contextmanager
def _opened(
    config: Config, wanted: _Wanted, teller: CopyTeller
) -> Iterator[tuple[LandingTarget, Lander]]:
    target = wanted.make(teller.ledger_id())
    with target.held(), open_database(ledger_address(config)) as database:
        yield target, Lander(target, database, after_mirror=config.mirror.enabled)


def _side_by_side(works: list[Callable[[threading.Event], None]], stop: threading.Event) -> None:
    """Until all have stopped. The first to fail stops the others, and its error is raised."""
    failures: list[BaseException] = []

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(stop)
        except BaseException as error:
            failures.append(error)
            stop.set()

    # Not waited for when the process ends: one may hang in a call to a server.
    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
