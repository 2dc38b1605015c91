"""How far a copy of the ledger is, told to the ledger by the thread that keeps the copy."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidemark.app.store_loop import StoreLoop
from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.errors import LedgerUnavailable, TidemarkError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import TELL_EVERY_US, CopyState, EventFilter, LedgerStore


class CopyTeller:
    """Tells of one copy, at most once a second while all is well.

    Whoever keeps the copy goes on whether it is heard or not: nothing but `ledger_id` raises.
    """

    def __init__(self, config: Config, name: str, clock: Clock) -> None:
        self._config = config
        self._name = name
        self._clock = clock
        self._stores = StoreLoop()
        self._ledger: LedgerStore | None = None
        self._last_sequence: int | None = None
        self._told_us: int | None = None
        self._was_well = False

    def ledger_id(self) -> str:
        """Raises `LedgerUnavailable`, and what else keeps a ledger from being opened."""
        return self._opened().ledger_id

    def reached(self, last_sequence: int, *, at_once: bool = False) -> None:
        """The copy has everything up to here."""
        self._last_sequence = last_sequence
        now_us = self._clock.elapsed_us()
        is_recent = self._told_us is not None and now_us - self._told_us < TELL_EVERY_US
        if at_once or not self._was_well or not is_recent:
            self._tell(None)

    def failed(self, error: TidemarkError) -> None:
        """Something keeps the copy from going on."""
        # A ledger that is away cannot be told so, and trying would only add to the wait for it.
        if not isinstance(error, LedgerUnavailable):
            self._tell(error)

    def pause(self, error: TidemarkError, seconds: float, stop: threading.Event) -> None:
        """Wait before another attempt, and go on telling why."""
        pause(seconds, self._clock, stop, lambda: self.failed(error))

    def __enter__(self) -> Self:
        self._stores.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._ledger is not None:
                self._stores.wait(self._ledger.close())
        finally:
            self._stores.__exit__(kind, error, trace)

    def _opened(self) -> LedgerStore:
        if self._ledger is None:
            self._ledger = self._stores.wait(open_ledger(self._config, self._clock))
        return self._ledger

    def _tell(self, error: TidemarkError | None) -> None:
        # Not heard is told as well: whoever cannot be reached is not asked more often for it.
        self._told_us, self._was_well = self._clock.elapsed_us(), error is None
        with contextlib.suppress(TidemarkError):
            ledger = self._opened()
            self._stores.wait(self._told(ledger, error))

    async def _told(self, ledger: LedgerStore, error: TidemarkError | None) -> None:
        if self._last_sequence is None:
            said = (await ledger.copies()).get(self._name)
            self._last_sequence = 0 if said is None else said.last_sequence
        sequence = self._last_sequence
        received_at = await whole_until(ledger, sequence)
        now_us = self._clock.wall_us()
        await ledger.tell_copy(CopyState(self._name, sequence, received_at, now_us, error))


def pause(seconds: float, clock: Clock, stop: threading.Event, tell: Callable[[], None]) -> None:
    """Lets time pass, unless it is to stop, and goes on telling."""
    until_us = clock.elapsed_us() + int(seconds * MICROS_PER_SECOND)
    while not stop.is_set() and (left_us := until_us - clock.elapsed_us()) > 0:
        tell()
        stop.wait(min(left_us, TELL_EVERY_US) / MICROS_PER_SECOND)


async def whole_until(ledger: LedgerStore, sequence: int) -> int:
    """The time of the last commit of which no event comes after a sequence; 0 if there is none."""
    head = await ledger.head()
    if sequence >= head.last_sequence:
        return head.received_at
    for event in (await ledger.read_events(EventFilter(), sequence, 1)).events:
        commit = await ledger.last_commit(event.received_at)
        if commit is not None:
            return commit.received_at
    return 0
