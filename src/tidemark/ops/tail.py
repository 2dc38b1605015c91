"""`/admin/events/tail`: every event in order as it is committed, from any sequence on.

A tail reads the ledger itself, so it sees the commits of all processes and cannot miss or reorder
one. What is shared is only the knowledge that there is something new: one look at the head serves
all tails of this process.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from tidemark.clock import Clock
from tidemark.errors import LedgerUnavailable, RequestError
from tidemark.ledger.port import EventFilter, LedgerStore
from tidemark.ops.event_json import event_view
from tidemark.ops.parameters import EVENT_PARAMETERS, event_filter, sequence_of
from tidemark.web.messages import Disconnected, parse_query
from tidemark.web.sockets import GOING_AWAY, WebSocket

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
        self._last_sequence = 0
        self._advanced = asyncio.Condition()
        self._poller: asyncio.Task[None] | None = None

    async def handle(self, socket: WebSocket) -> None:
        if len(self._open) >= MAX_TAILS:
            raise RequestError(
                f"{MAX_TAILS} tails are open",
                status=429,
                code="too_many_tails",
                hint="Close one, or page through GET /admin/events.",
            )
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
        except asyncio.CancelledError:
            await socket.close(GOING_AWAY, "the server is stopping; resume from the last sequence")
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send_all(self, socket: WebSocket, wanted: EventFilter, after: int) -> None:
        told_us = self._clock.elapsed_us()
        while True:
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
                await self._wait_beyond(after)

    async def _wait_beyond(self, sequence: int) -> None:
        async with self._advanced:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._advanced.wait_for(lambda: self._last_sequence > sequence)
            except TimeoutError:
                return

    async def _poll(self) -> None:
        """While somebody watches: is there something new?"""
        while self._open:
            try:
                head = await self._store.head()
            except LedgerUnavailable as error:
                log.warning("tails wait for the ledger: %s", error)
                await asyncio.sleep(LEDGER_PAUSE_S)
                continue
            if head.last_sequence > self._last_sequence:
                async with self._advanced:
                    self._last_sequence = head.last_sequence
                    self._advanced.notify_all()
            await asyncio.sleep(POLL_S)


async def _wait_until_gone(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive()
    except Disconnected:
        return
