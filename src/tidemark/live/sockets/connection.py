"""One websocket of `graphql-transport-ws`: its caller, its operations, and what it is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import AccessDenied, TidemarkError
from tidemark.live.access import Gatekeeper, Session
from tidemark.live.engine import BacklogLimits
from tidemark.live.errors import SlowClient, TooManySubscriptions
from tidemark.live.graphql.documents import Operation
from tidemark.live.graphql.problems import DocumentRefused, masked, shape
from tidemark.live.graphql.service import GraphqlService, Payload, read_payload
from tidemark.live.hub import Hub
from tidemark.live.sockets import messages
from tidemark.live.sockets.messages import (
    Complete,
    ConnectionInit,
    InvalidMessage,
    Ping,
    Subscribe,
    read_message,
)
from tidemark.live.sockets.subscription import Subscription
from tidemark.web.sockets import WebSocket, shortened_reason
from tidemark.web.wire import text_frame, wire_of

log = logging.getLogger(__name__)

# Frames are gathered while a batch of commits is spread, but never more than this.
FLUSH_ABOVE_BYTES: Final = 64 * 1024
# Of queries and mutations, whose answers are in memory until the client takes them.
QUERIES_AT_ONCE: Final = 4
WAITING_QUERIES: Final = 100


class ConnectionLimits(msgspec.Struct, frozen=True):
    max_subscriptions: int = 100
    max_message_bytes: int = 65_536
    # How long a client may take to begin.
    init_within_s: float = 10.0
    backlog: BacklogLimits = BacklogLimits()
    # How long a client may take for the next part of a snapshot.
    patience_s: float = 30.0


class Closed(Exception):
    """The connection is to be closed, and why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """Serves one websocket until either side ends it. It is the outlet of its subscriptions."""

    def __init__(
        self,
        socket: WebSocket,
        gatekeeper: Gatekeeper,
        service: GraphqlService,
        hub: Hub,
        clock: Clock,
        limits: ConnectionLimits,
    ) -> None:
        self._socket = socket
        self._wire = wire_of(socket.scope)
        self._gatekeeper = gatekeeper
        self._service = service
        self._hub = hub
        self._clock = clock
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._operations: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: dict[Subscription, str] = {}
        self._waiting: dict[Subscription, None] = {}
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._room = asyncio.Event()
        self._room.set()
        self._clear = asyncio.Event()
        self._queries = asyncio.Semaphore(QUERIES_AT_ONCE)
        self._expiry: asyncio.TimerHandle | None = None
        self._wire.on_writable(self._writable)

    async def serve(self) -> None:
        """Raises `Disconnected` when the client is gone."""
        try:
            async with asyncio.timeout(self._limits.init_within_s) as patience:
                while True:
                    await self._clear_of_congestion()
                    message = self._read(await self._socket.receive())
                    await self._on(message)
                    if self._session is not None:
                        patience.reschedule(None)
        except InvalidMessage as error:
            self._end(messages.INVALID_MESSAGE, str(error))
        except Closed as closed:
            self._end(closed.code, closed.reason)
        except TimeoutError:
            self._end(messages.INIT_TIMEOUT, "Connection initialisation timeout")
        finally:
            await self._stop()

    async def drained(self) -> None:
        """Waits until everything that waits has been taken by the client."""
        while self._waiting or self._wire.is_congested:
            await self.room()

    def go_away(self) -> None:
        """End it because the server stops; a client that connects again goes on elsewhere."""
        self._end(messages.GOING_AWAY, "The server is stopping; connect again")

    # What its subscriptions need.

    @property
    def is_congested(self) -> bool:
        return self._wire.is_congested

    def push(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > FLUSH_ABOVE_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush_soon)

    def wait_for_room(self, subscription: Subscription) -> None:
        self._waiting[subscription] = None
        self._room.clear()

    async def room(self) -> None:
        self._flush()
        if self._wire.is_congested:
            self._room.clear()
        if self._room.is_set():
            # Others want to be served too.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(self._limits.patience_s):
                await self._room.wait()
        except TimeoutError:
            raise SlowClient(
                f"the client has taken nothing for {self._limits.patience_s:g} s",
                hint="Read faster, or narrow `where`.",
            ) from None

    def fell_behind(self, resume_after: int) -> None:
        self._send_away("Too slow", resume_after)

    def give_up(self, subscription: Subscription, error: TidemarkError) -> None:
        operation_id = self._subscriptions.get(subscription)
        if operation_id is not None:
            self._refuse(operation_id, [shape(error)])
            self._cancel(operation_id)

    # What the client says.

    def _read(self, text: str | bytes) -> messages.ClientMessage:
        most = self._limits.max_message_bytes
        # Read, it would take many times the memory of its text.
        if len(text) > most or (isinstance(text, str) and len(text.encode()) > most):
            raise Closed(messages.TOO_LARGE, f"A message has at most {most} bytes")
        return read_message(text)

    async def _on(self, message: messages.ClientMessage) -> None:
        if isinstance(message, ConnectionInit):
            self._acknowledge(message.payload)
        elif isinstance(message, Ping):
            self._say(messages.pong(message.payload))
        elif isinstance(message, Subscribe):
            self._begin(message)
        elif isinstance(message, Complete):
            self._cancel(message.id)
        # So that one who sends without pause does not keep all others from being served.
        await asyncio.sleep(0)

    def _acknowledge(self, payload: Mapping[str, Any] | None) -> None:
        if self._session is not None:
            raise Closed(messages.TOO_MANY_INITS, "Too many initialisation requests")
        try:
            session = self._gatekeeper.authenticate(self._socket.headers, payload)
            session.require("read")
        except AccessDenied as error:
            raise Closed(messages.FORBIDDEN, f"Forbidden: {error.message}") from None
        self._session = session
        if session.expires_at is not None:
            left_s = (session.expires_at - self._clock.wall_us()) / MICROS_PER_SECOND
            self._expiry = self._loop.call_later(max(0.0, left_s), self._expired)
        self._say(messages.CONNECTION_ACK)

    def _expired(self) -> None:
        self._end(messages.FORBIDDEN, "Forbidden: the token has expired")

    def _begin(self, message: Subscribe) -> None:
        if self._session is None:
            raise Closed(messages.UNAUTHORIZED, "Unauthorized")
        if message.id in self._operations:
            raise Closed(messages.SUBSCRIBER_EXISTS, f"Subscriber for {message.id} already exists")
        if len(self._operations) >= self._limits.max_subscriptions + WAITING_QUERIES:
            self._refuse(message.id, [shape(_too_many_operations(len(self._operations)))])
            return
        task = self._loop.create_task(self._operate(self._session, message.id, message.payload))
        self._operations[message.id] = task
        task.add_done_callback(lambda done: self._forget(message.id, done))

    def _forget(self, operation_id: str, task: asyncio.Task[None]) -> None:
        if self._operations.get(operation_id) is task:
            del self._operations[operation_id]

    def _cancel(self, operation_id: str) -> None:
        task = self._operations.pop(operation_id, None)
        if task is not None:
            task.cancel()

    # Operations.

    async def _operate(self, session: Session, operation_id: str, body: Mapping[str, Any]) -> None:
        try:
            payload = read_payload(body)
            operation = self._service.operation(
                session, payload, connection=self._socket.request_id
            )
            if operation.kind == "subscription":
                await self._subscribe(session, operation_id, operation, payload)
            else:
                async with self._queries:
                    await self._clear_of_congestion()
                    result = await self._service.run(session, operation, payload.variables)
                    self._say(messages.result(operation_id, result))
                    self._say(messages.complete(operation_id))
        except DocumentRefused as refused:
            self._refuse(operation_id, refused.errors)
        except TidemarkError as error:
            self._refuse(operation_id, [shape(error)])
        except Exception as error:
            self._refuse(operation_id, [masked(error)])

    async def _subscribe(
        self, session: Session, operation_id: str, operation: Operation, payload: Payload
    ) -> None:
        if len(self._subscriptions) >= self._limits.max_subscriptions:
            raise TooManySubscriptions(
                f"this connection has {len(self._subscriptions)} subscriptions already",
                hint="Open another connection, or raise live.max_subscriptions_per_connection.",
            )
        wanted = self._service.subscription(session, operation, payload.variables)
        subscription = Subscription(
            self,
            operation_id,
            wanted.projection,
            progress=wanted.progress,
            limits=self._limits.backlog,
        )
        self._subscriptions[subscription] = operation_id
        try:
            async with self._hub.attached(wanted.view, wanted.filter, subscription, wanted.after):
                await self._loop.create_future()
        except SlowClient as error:
            # While it still is one of those that say where to resume.
            self._send_away(error.message)
        finally:
            del self._subscriptions[subscription]
            self._waiting.pop(subscription, None)

    # What is sent.

    def _refuse(self, operation_id: str, errors: list[dict[str, Any]]) -> None:
        self._say(messages.error(operation_id, errors))

    def _say(self, message: bytes) -> None:
        self.push(text_frame(message))

    def _flush_soon(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        if self._out:
            frames = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self._wire.write(frames)

    async def _clear_of_congestion(self) -> None:
        """A client that does not read what it asked for may not ask for more."""
        while self._wire.is_congested:
            self._clear.clear()
            await self._clear.wait()

    def _writable(self) -> None:
        self._clear.set()
        waiting, self._waiting = self._waiting, {}
        for subscription in waiting:
            subscription.drain()
            self._flush()
        if not self._waiting and not self._wire.is_congested:
            self._room.set()

    def _send_away(self, why: str, *resumable: int) -> None:
        """End it because its client is slow, and say from where that can go on."""
        times = [*resumable, *(one.resume_after() for one in self._subscriptions)]
        # One that is still in its snapshot has no time to go on from.
        then = f"resume after {min(times)}" if all(times) else "subscribe anew"
        self._end(messages.TRY_AGAIN_LATER, f"{why}; {then}")

    def _end(self, code: int, reason: str) -> None:
        self._flush()
        self._wire.end(code, shortened_reason(reason))

    async def _stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        operations = list(self._operations.values())
        for task in operations:
            task.cancel()
        await asyncio.gather(*operations, return_exceptions=True)


def _too_many_operations(count: int) -> TooManySubscriptions:
    return TooManySubscriptions(
        f"this connection has {count} operations under way already",
        hint="Wait for answers before you ask for more.",
    )
