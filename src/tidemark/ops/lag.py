"""How far something that follows the ledger is behind it."""

from __future__ import annotations

from typing import NamedTuple

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.ledger.port import EventFilter, LedgerStore
from tidemark.ledger.sequencer import Head


class Lag(NamedTuple):
    """So many events are missing, and the oldest commit that is missing has waited so long."""

    events: int
    seconds: float


class Lags:
    """Measures from a head of the ledger that was read after where the follower is."""

    def __init__(self, ledger: LedgerStore, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def of_commits(self, head: Head, sequence: int, received_at: int) -> Lag:
        """Of one that follows commits and is at this one: it may also lack mere ticks."""
        oldest = None
        if head.received_at > received_at:
            for commit in await self._ledger.read_commits(received_at, 1):
                oldest = commit.received_at
        return self._lag(head, sequence, oldest)

    async def of_events(self, head: Head, sequence: int) -> Lag:
        """Of one that holds nothing but events: it lacks nothing while only time passes."""
        oldest = None
        if head.last_sequence > sequence:
            for event in (await self._ledger.read_events(EventFilter(), sequence, 1)).events:
                oldest = event.received_at
        return self._lag(head, sequence, oldest)

    def _lag(self, head: Head, sequence: int, oldest: int | None) -> Lag:
        waited_us = 0 if oldest is None else max(0, self._clock.wall_us() - oldest)
        return Lag(max(0, head.last_sequence - sequence), waited_us / MICROS_PER_SECOND)
