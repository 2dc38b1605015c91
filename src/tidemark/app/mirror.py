"""The mirror, kept running: events into Kafka for as long as the process lives.

What passes by itself is waited for, and whatever happened, it goes on from what the topics hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from tidemark.app.only_one import only_one
from tidemark.app.store_loop import StoreLoop, closing
from tidemark.app.telling import pause
from tidemark.clock import Clock, SystemClock
from tidemark.config import Config
from tidemark.errors import ConfigError, LedgerDamaged, LedgerUnavailable, TidemarkError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import LedgerStore
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable, NotTaken
from tidemark.mirror.following import Mirror
from tidemark.mirror.known import Known
from tidemark.mirror.telling import MirrorTeller

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_LOCK_NAME: Final = "mirror.lock"
_OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000
# What malloc.h of GNU calls M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_MXFAST. The second has this
# upper bound.
_MEMORY: Final = {-1: 256 * 1024 * 1024, -3: 32 * 1024 * 1024, 1: 0}

OnProgress = Callable[[int, int], None]
"""Told how far the events are mirrored, and how far there are any to be."""


class MirrorRunning(TidemarkError):
    """Another process mirrors the ledger of this state directory."""

    code = "mirror_running"


class Mirrored(msgspec.Struct, frozen=True):
    """How far the topics are."""

    brokers: str
    last_sequence: int


def run_mirror(
    config: Config, *, until_caught_up: bool, on_progress: OnProgress, stop: threading.Event
) -> Mirrored | None:
    """Mirrors until `stop` is set, or all that the ledger has now is there: None if stopped.

    Waits for brokers or a database that are away, also at the start, unless it is to end when it
    has caught up. Raises `MirrorFenced` when another mirror has taken over.
    """
    taken = MirrorRunning(
        "another process mirrors this ledger",
        hint="`tidemark up` does so where mirror.enabled is true; stop one of the two.",
    )
    lock = config.state_dir / _LOCK_NAME
    _keep_memory()
    with (
        only_one(lock, what="the mirror", taken=taken),
        _little_collecting(),
        StoreLoop() as stores,
    ):
        runner = _Runner(config, stores, SystemClock(), on_progress, stop)
        if until_caught_up:
            return runner.caught_up()
        runner.keep_mirroring()
        return None


def _keep_memory() -> None:
    """What was used for one transaction is used again for the next. The C library would give it
    back to the system meanwhile, and the system would fill it with zeros. And it would put small
    pieces aside, of which there are some for each message, and go through all of them whenever a
    large one is free."""
    # Not all C libraries have it.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        for option, size in _MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)


@contextlib.contextmanager
def _little_collecting() -> Iterator[None]:
    """Thousands of events pass, none in a cycle: to look for some took a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _let_go_of_what_failed() -> None:
    """It is in cycles with its exception, and few of those are looked for: what was read ahead
    would stay, and a client of Kafka."""
    gc.collect()


class _Runner:
    def __init__(
        self,
        config: Config,
        stores: StoreLoop,
        clock: Clock,
        on_progress: OnProgress,
        stop: threading.Event,
    ) -> None:
        self._config = config
        self._stores = stores
        self._clock = clock
        self._on_progress = on_progress
        self._stop = stop
        self._pause_s = FIRST_PAUSE_S
        self._known = Known()
        self._has_worked = False

    def caught_up(self) -> Mirrored | None:
        with closing(self._stores, self._open_ledger()) as ledger:
            teller = MirrorTeller(ledger, self._clock)
            has_failed = False
            while True:
                with self._begun(ledger, teller, has_failed=has_failed) as mirror:
                    begin, batch_bytes = mirror.reached, self._known.batch_bytes
                    try:
                        mirror.run(until_caught_up=True, on_progress=self._on_progress)
                    except (NotTaken, MirrorRefused, LedgerDamaged) as error:
                        if self._stop.is_set():
                            return None
                        has_moved = mirror.reached != begin
                        if has_failed and not has_moved and self._known.batch_bytes == batch_bytes:
                            raise
                        has_failed = True
                        log.warning("the mirror sends what comes before: %s", error.message)
                    else:
                        if self._stop.is_set():
                            return None
                        reached = mirror.reached.last_sequence
                        return Mirrored(self._config.mirror.bootstrap_servers, reached)
                _let_go_of_what_failed()

    def keep_mirroring(self) -> None:
        while not self._stop.is_set():
            try:
                with closing(self._stores, self._open_ledger()) as ledger:
                    self._follow(ledger)
            except LedgerUnavailable as error:
                self._pause(error)
            _let_go_of_what_failed()

    def _follow(self, ledger: LedgerStore) -> None:
        teller = MirrorTeller(ledger, self._clock)
        has_failed = False
        while not self._stop.is_set():
            try:
                with self._begun(ledger, teller, has_failed=has_failed) as mirror:
                    mirror.run(until_caught_up=False, on_progress=self._told)
            except TidemarkError as error:
                if not self._passes(error):
                    self._tell(teller, error)
                    raise
                has_failed = True
                self._pause(error, partial(self._tell, teller, error))
            _let_go_of_what_failed()

    def _passes(self, error: TidemarkError) -> bool:
        """Options that were good once are again: certificates may be replaced just now."""
        if isinstance(error, ConfigError):
            return self._has_worked
        return isinstance(error, (MirrorUnavailable, MirrorRefused, LedgerDamaged))

    def _tell(self, teller: MirrorTeller, error: TidemarkError) -> None:
        self._stores.wait(teller.failed(error))

    def _told(self, done: int, total: int) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._on_progress(done, total)

    def _pause(self, error: TidemarkError, tell: Callable[[], None] = lambda: None) -> None:
        log.warning("the mirror goes on in %.1f s: %s", self._pause_s, error.message)
        pause(self._pause_s, self._clock, self._stop, tell)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _open_ledger(self) -> Coroutine[Any, Any, LedgerStore]:
        return open_ledger(self._config, self._clock)

    @contextlib.contextmanager
    def _begun(
        self, ledger: LedgerStore, teller: MirrorTeller, *, has_failed: bool = False
    ) -> Iterator[Mirror]:
        mirror = Mirror(
            self._config,
            ledger,
            self._clock,
            teller,
            self._known,
            loop=self._stores.loop,
            stop=self._stop,
            has_failed=has_failed,
        )
        try:
            with self._stores.beside(teller.keep_telling()):
                mirror.begin()
                self._has_worked = True
                yield mirror
        finally:
            mirror.close()
