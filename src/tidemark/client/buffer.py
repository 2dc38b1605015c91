"""Events that were submitted and are not yet settled.

No I/O, no clock and no lock: the clients bring those. An event is *queued* until a lane takes it
into a request, *claimed* when its fate is known (from then on its room is free again), and
*settled* when its future says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark.client.batches import Limits

FutureT = TypeVar("FutureT")


@dataclass(slots=True, eq=False)
class Entry(Generic[FutureT]):
    """One submitted event. `number` counts submissions from 1."""

    number: int
    body: bytes
    taken_at_us: int
    future: FutureT
    is_claimed: bool = False


class Buffer(Generic[FutureT]):
    """A first-in-first-out queue that is bounded by events and by bytes."""

    def __init__(self, limits: Limits, *, max_events: int, max_bytes: int, linger_us: int) -> None:
        self._limits = limits
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._linger_us = linger_us
        self._queue: deque[Entry[FutureT]] = deque()
        self._queued_bytes = 0
        self._held_events = 0
        self._held_bytes = 0
        self._unsettled: dict[int, Entry[FutureT]] = {}
        self._hurried_through = 0
        self.last_number = 0

    def has_room(self, size: int) -> bool:
        """Whether one more event of this size may be added. An empty buffer takes any."""
        if self._held_events == 0:
            return True
        return self._held_events < self._max_events and self._held_bytes + size <= self._max_bytes

    def add(self, body: bytes, future: FutureT, now_us: int) -> Entry[FutureT]:
        """Put an event at the end."""
        assert self.has_room(len(body)), "back-pressure was not awaited"
        self.last_number += 1
        entry = Entry(self.last_number, body, now_us, future)
        self._queue.append(entry)
        self._queued_bytes += len(body)
        self._held_events += 1
        self._held_bytes += len(body)
        self._unsettled[entry.number] = entry
        return entry

    def hurry(self) -> None:
        """Let nothing that is queued now linger."""
        self._hurried_through = self.last_number

    def is_worth_a_look(self) -> bool:
        """Whether the event just added changes what a waiting lane should do."""
        return len(self._queue) == 1 or self._has_full_batch()

    def wait_us(self, now_us: int) -> int | None:
        """How long until a batch is due: 0 if one is, None if nothing is queued."""
        if not self._queue:
            return None
        if self._has_full_batch() or self._queue[0].number <= self._hurried_through:
            return 0
        return max(0, self._queue[0].taken_at_us + self._linger_us - now_us)

    def pop_batch(self) -> list[Entry[FutureT]]:
        """Take the next request's events off the queue, oldest first."""
        batch: list[Entry[FutureT]] = []
        size = 0
        while self._queue:
            size += len(self._queue[0].body)
            if batch and not self._limits.admits(len(batch) + 1, size):
                break
            batch.append(self._queue.popleft())
            self._queued_bytes -= len(batch[-1].body)
        return batch

    def claim(self, entries: Iterable[Entry[FutureT]]) -> list[Entry[FutureT]]:
        """Take the right to settle these events, and free their room.

        Gives those that nobody claimed before: a batch that comes home after `close` gave it up
        finds nothing left to settle.
        """
        mine = [entry for entry in entries if not entry.is_claimed]
        for entry in mine:
            entry.is_claimed = True
            self._held_events -= 1
            self._held_bytes -= len(entry.body)
        return mine

    def settle(self, entries: Iterable[Entry[FutureT]]) -> None:
        """Forget events whose futures are done."""
        for entry in entries:
            assert entry.is_claimed, "settled before it was claimed"
            del self._unsettled[entry.number]

    def is_settled_through(self, number: int) -> bool:
        """Whether every submission up to this one is settled."""
        oldest = next(iter(self._unsettled), None)
        return oldest is None or oldest > number

    def unclaimed(self) -> list[Entry[FutureT]]:
        """The events without an answer, in the order of their submission."""
        return [entry for entry in self._unsettled.values() if not entry.is_claimed]

    def clear_queue(self) -> None:
        """Let no queued event be sent any more; they remain to be settled."""
        self._queue.clear()
        self._queued_bytes = 0

    def _has_full_batch(self) -> bool:
        # One more event of no bytes at all would not fit any more.
        return not self._limits.admits(len(self._queue) + 1, self._queued_bytes)
