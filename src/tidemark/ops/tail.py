"""`/admin/events/tail`: every event in order as it is committed, from any sequence on.

A tail reads the ledger itself, so it sees the commits of all processes and cannot miss or reorder
one. What is shared is only the knowledge that there is something new: one look at the head serves
all tails of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from tidemark.clock import Clock
from tidemark.errors import LedgerUnavailable, RequestError
from tidemark.ledger.event_json import event_view
from tidemark.ledger.port import EventFilter, LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.ops.parameters import EVENT_PARAMETERS, event_filter, sequence_of
from tidemark.web.messages import Disconnected, parse_query
from tidemark.web.sockets import GOING_AWAY, NORMAL, WebSocket

log = logging.getLogger(__name__)

POLL_S = 0.1
HEARTBEAT_S = 10.0
LEDGER_PAUSE_S = 1.0
PAGE = 500
MAX_TAILS = 200


class Tails:
    """The open tails of this process."""

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._open: set[asyncio.Task[None]] = set()
        self._places_taken = 0
        self._head = Head(0, 0, b"")
        self._advanced = asyncio.Condition()
        self._poller: asyncio.Task[None] | None = None

    async def handle(self, socket: WebSocket) -> None:
        if self._places_taken >= MAX_TAILS:
            raise RequestError(
                f"{MAX_TAILS} tails are open",
                status=429,
                code="too_many_tails",
                hint="Close one, or page through GET /admin/events.",
            )
        # Taken before anything is waited for: others come while this one shakes hands.
        self._places_taken += 1
        try:
            await self._open_tail(socket)
        finally:
            self._places_taken -= 1

    async def _open_tail(self, socket: WebSocket) -> None:
        query = parse_query(socket.scope["query_string"], (*EVENT_PARAMETERS, "after"))
        wanted = event_filter(query, socket.caller)
        after = sequence_of(query, "after")
        if after is None:
            after = (await self._store.head()).last_sequence
        await socket.accept()
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            await self._serve(socket, wanted, after)
        finally:
            self._open.discard(task)

    async def close(self) -> None:
        """Tell every tail that the server goes away; each can resume from its last sequence."""
        for task in self._open:
            task.cancel()
        if self._poller is not None:
            self._poller.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, socket: WebSocket, wanted: EventFilter, after: int) -> None:
        sending = asyncio.create_task(self._send_all(socket, wanted, after))
        gone = asyncio.create_task(_wait_until_gone(socket))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
                await socket.close(NORMAL, "the end of the range was reached")
        except asyncio.CancelledError:
            await socket.close(GOING_AWAY, "the server is stopping; resume from the last sequence")
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send_all(self, socket: WebSocket, wanted: EventFilter, after: int) -> None:
        """Send what there is and what comes; returns when nothing more can ever match."""
        told_us = self._clock.elapsed_us()
        while True:
            # Known before the page is read, so the page holds everything up to it.
            head = self._head
            try:
                page = await self._store.read_events(wanted, after, PAGE)
            except LedgerUnavailable:
                # Nothing is lost by waiting: the tail goes on from where it was.
                await asyncio.sleep(LEDGER_PAUSE_S)
                continue
            for row in page.events:
                message = {"type": "event", "event": event_view(row)}
                await socket.send_text(msgspec.json.encode(message).decode())
            moved = page.scanned_to > after
            after = max(after, page.scanned_to)
            now_us = self._clock.elapsed_us()
            if (moved and page.complete) or now_us - told_us > HEARTBEAT_S * 1_000_000:
                progress = {"type": "progress", "ingressSequence": str(after)}
                await socket.send_text(msgspec.json.encode(progress).decode())
                told_us = now_us
            if page.complete:
                if _sequences_end(wanted, after) or _times_end(wanted, head):
                    return
                await self._wait_beyond(max(after, head.last_sequence), wanted)

    async def _wait_beyond(self, sequence: int, wanted: EventFilter) -> None:
        """Until there is more, or until it is known that there will be no more."""

        def is_so() -> bool:
            return self._head.last_sequence > sequence or _times_end(wanted, self._head)

        with contextlib.suppress(TimeoutError):
            async with self._advanced, asyncio.timeout(HEARTBEAT_S):
                await self._advanced.wait_for(is_so)

    async def _poll(self) -> None:
        """While somebody watches: is there something new?"""
        while self._open:
            try:
                head = await self._store.head()
            except LedgerUnavailable as error:
                log.warning("tails wait for the ledger: %s", error)
                await asyncio.sleep(LEDGER_PAUSE_S)
                continue
            # Time can pass without an event, and with it the end of what a tail wants.
            if head.received_at > self._head.received_at:
                async with self._advanced:
                    self._head = head
                    self._advanced.notify_all()
            await asyncio.sleep(POLL_S)


def _sequences_end(wanted: EventFilter, after: int) -> bool:
    """Whether every sequence of the range is at or before `after`."""
    return wanted.sequence_to is not None and after >= wanted.sequence_to - 1


def _times_end(wanted: EventFilter, head: Head) -> bool:
    """Whether whatever comes after this head is received too late: each commit is later."""
    return wanted.received_to is not None and head.received_at >= wanted.received_to - 1


async def _wait_until_gone(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive()
    except Disconnected:
        return
