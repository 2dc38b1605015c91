"""One subscription: what it has been sent, and what waits until its client reads on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from tidemark.errors import TidemarkError
from tidemark.live.engine.backlog import Backlog, BacklogLimits, Entry
from tidemark.live.engine.transitions import DELETE, INSERT, PROGRESS, UPDATE, Item, Projection
from tidemark.live.sockets.messages import NEXT_END, next_start
from tidemark.web.wire import text_frame, text_header


class Outlet(Protocol):
    """The connection of a subscription, as far as it sends."""

    @property
    def is_congested(self) -> bool: ...

    def push(self, frame: bytes) -> None: ...

    def wait_for_room(self, subscription: Subscription) -> None:
        """Have `drain` called when there is room."""

    async def room(self) -> None:
        """Waits until nothing waits."""

    def fell_behind(self, resume_after: int) -> None:
        """More waits for a subscription than may."""

    def give_up(self, subscription: Subscription, error: TidemarkError) -> None:
        """Nothing more comes for it."""


class Subscription:
    """Takes the commits of one feed in order and sends each once; nothing waits without bound.

    `since` is where it stands: what is not later is known to the client already. A client that
    resumed may know more, up to `may_know_to`.
    """

    def __init__(
        self,
        outlet: Outlet,
        operation_id: str,
        projection: Projection,
        *,
        progress: bool,
        limits: BacklogLimits,
    ) -> None:
        self.projection = projection
        self.since = 0
        self.rows_visible: int | None = None
        self.may_know_to = -1
        self._outlet = outlet
        self._start = next_start(operation_id)
        self._fixed_bytes = len(self._start) + len(NEXT_END)
        self._progress = progress
        self._limits = limits
        self._backlog: Backlog | None = None
        self._told = -1

    @property
    def wants_progress(self) -> bool:
        return self._progress

    @property
    def is_behind(self) -> bool:
        """Whether anything waits."""
        return self._backlog is not None

    def take(self, received_at: int, items: Sequence[Item]) -> None:
        """What one commit means to it."""
        if received_at <= self.since:
            return
        if self.rows_visible is not None:
            self.rows_visible += sum(_DIFFERENCE[item.operation] for item in items)
        if self._backlog is None:
            sent = self._send_while_there_is_room(items)
            if sent == len(items):
                self.since = received_at
                if self._progress:
                    self._tell(received_at)
                return
            items = items[sent:]
        backlog = self._behind()
        backlog.append(received_at, items)
        if self._progress and not backlog.overflown:
            backlog.mark(received_at)
        self.since = received_at
        if backlog.overflown:
            self._outlet.fell_behind(backlog.resume_after)

    def reached(self, received_at: int) -> None:
        """All up to this time was taken; who asked for it is told, unless it was already."""
        if max(self.since, received_at) > self._told:
            self.beat(received_at)

    def beat(self, received_at: int) -> None:
        """The same, told again: it also says that the server is there."""
        self.since = max(self.since, received_at)
        if not self._progress:
            return
        if self._backlog is None and not self._outlet.is_congested:
            self._tell(self.since)
        else:
            self._behind().mark(self.since)

    def begin(self, rows: Sequence[Item]) -> None:
        """Send rows of a snapshot, without asking whether there is room."""
        self.rows_visible = (self.rows_visible or 0) + len(rows)
        self._send(rows)

    def _send_while_there_is_room(self, items: Sequence[Item]) -> int:
        """A commit may be larger than what may wait; how many items of it were sent."""
        outlet, sent = self._outlet, 0
        while sent < len(items) and not outlet.is_congested:
            self._send(items if len(items) <= _AT_ONCE else items[sent : sent + _AT_ONCE])
            sent = min(sent + _AT_ONCE, len(items))
        return sent

    def _send(self, items: Iterable[Item]) -> None:
        # Where a server with many subscribers spends its time: no call that need not be.
        push, start, fixed = self._outlet.push, self._start, self._fixed_bytes
        for item in items:
            payload = item.payload
            push(b"".join((text_header(fixed + len(payload)), start, payload, NEXT_END)))

    async def room(self) -> None:
        await self._outlet.room()

    def end(self, error: TidemarkError) -> None:
        self._outlet.give_up(self, error)

    def drain(self) -> None:
        """There is room: send what waits, as long as there is."""
        backlog = self._backlog
        while backlog is not None and not self._outlet.is_congested:
            entries = backlog.pop_ready(_AT_ONCE)
            if not entries:
                self._backlog = backlog = None
                break
            self._send_entries(entries)
        if backlog is not None:
            self._outlet.wait_for_room(self)

    def resume_after(self) -> int:
        """After which time a client that is cut off now misses nothing."""
        return self.since if self._backlog is None else self._backlog.resume_after

    def _send_entries(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, Item):
                self._send((entry,))
            else:
                self._tell(entry.received_at)

    def _tell(self, received_at: int) -> None:
        self._told = received_at
        payload = self.projection.render(PROGRESS, None, (), received_at)
        self._outlet.push(text_frame(self._start, payload, NEXT_END))

    def _behind(self) -> Backlog:
        if self._backlog is None:
            self._backlog = Backlog(self._limits, self.since, self.may_know_to)
            self._outlet.wait_for_room(self)
        return self._backlog


_DIFFERENCE: Final = {INSERT: 1, UPDATE: 0, DELETE: -1}

# So many, and then it is looked whether there is still room.
_AT_ONCE = 64
