"""The clients: one process with as many websockets as wanted, made to cost as little as it can.

A client shakes hands, subscribes once, and from then on only counts frames; the time is read out of
the messages of some clients only. Nothing is decoded. Orders come one a line on standard input, and
each is answered by a line.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import resource
import subprocess
import sys
import time
import uuid
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import msgspec
import uvloop

HOST: Final = "127.0.0.1"
AT_ONCE: Final = 50
JOINED_WITHIN_S: Final = 120.0
LOOK_EVERY_S: Final = 0.005
MOST_SAMPLES: Final = 500_000

_TEXT: Final = 0x81
_PING: Final = 0x89
# An id is of its client alone, as long as those that browsers' clients make.
_ID_CHARACTERS: Final = 36
_NEXT_AT: Final = len('{"id":"') + _ID_CHARACTERS
_NEXT: Final = b'","type":"next",'
_PROTOCOL_PING: Final = b'{"type":"ping"}'
_TIME: Final = b'"ts_timestamp":"'

Answer = TypeVar("Answer")


class Subscription(msgspec.Struct, frozen=True):
    """What a client asks for."""

    query: str
    variables: dict[str, Any]


class Join(msgspec.Struct, frozen=True, tag=True):
    """One client for each; `expected` messages come to each of them before it is answered."""

    port: int
    subscriptions: list[Subscription]
    expected: int


class Look(msgspec.Struct, frozen=True, tag=True):
    """Says what has come so far."""


class Sample(msgspec.Struct, frozen=True, tag=True):
    """From now on read the time out of every message of each `every`-th client."""

    every: int


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Closes all."""


class Seen(msgspec.Struct, frozen=True):
    """All that has come to all clients since they joined; each client had between `fewest` and
    `most` messages. `reads` is in how many pieces they came.
    """

    messages: int
    reads: int
    fewest: int
    most: int
    at_s: float
    cpu_s: float
    problem: str | None


class Joined(msgspec.Struct, frozen=True):
    seconds: float
    problem: str | None


class Sampled(msgspec.Struct, frozen=True):
    """How long messages were under way, since sampling began."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Clients:
    """The process, seen from the one who measures."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    async def join(self, port: int, subscriptions: list[Subscription], expected: int = 0) -> float:
        """In how many seconds all had joined and had as many messages as expected."""
        joined = await self._ask(Join(port, subscriptions, expected), Joined)
        if joined.problem is not None:
            raise RuntimeError(joined.problem)
        return joined.seconds

    async def look(self) -> Seen:
        seen = await self._ask(Look(), Seen)
        if seen.problem is not None:
            raise RuntimeError(seen.problem)
        return seen

    async def sample(self, every: int = 1) -> None:
        await self._ask(Sample(every), Seen)

    async def leave(self) -> Sampled:
        return await self._ask(Leave(), Sampled)

    async def _ask(self, order: Join | Look | Sample | Leave, answer: type[Answer]) -> Answer:
        return await asyncio.to_thread(self._exchange, order, answer)

    def _exchange(self, order: msgspec.Struct, answer: type[Answer]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the clients has ended")
        return msgspec.json.decode(line, type=answer)


class _Client(asyncio.Protocol):
    """One websocket with one subscription."""

    def __init__(self, crowd: _Crowd, subscription: Subscription) -> None:
        self.messages = 0
        self.reads = 0
        self.is_sampled = False
        self._crowd = crowd
        self._subscription = subscription
        self._rest = b""
        self._takes = self._shake_hands

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class, which has all that is needed, is none of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16))
        self.transport.write(
            b"GET /graphql HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            + key
            + b"\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
        )

    def connection_lost(self, error: Exception | None) -> None:
        if not self._crowd.is_leaving:
            self._crowd.fail(f"the server has closed a websocket: {error or 'end of stream'}")

    def data_received(self, data: bytes) -> None:
        self._takes(data)

    def _shake_hands(self, data: bytes) -> None:
        self._rest += data
        head, end, rest = self._rest.partition(b"\r\n\r\n")
        if not end:
            return
        if not head.startswith(b"HTTP/1.1 101"):
            self._crowd.fail(f"the server does not speak websocket: {head[:200]!r}")
            return
        self._rest = b""
        self._takes = self._count
        subscribe = {"type": "subscribe", "id": str(uuid.uuid4()), "payload": self._subscription}
        # Both at once: the server takes them one after the other.
        self.transport.write(
            _masked(_TEXT, b'{"type":"connection_init"}')
            + _masked(_TEXT, msgspec.json.encode(subscribe))
        )
        if rest:
            self._count(rest)

    def _count(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        self.reads += 1
        at, size, messages, is_sampled = 0, len(data), 0, self.is_sampled
        while size - at >= 4:
            length = data[at + 1]
            begin = at + 2
            if length == 126:
                length = data[at + 2] << 8 | data[at + 3]
                begin = at + 4
            elif length == 127:
                if size - at < 10:
                    break
                length = int.from_bytes(data[at + 2 : at + 10], "big")
                begin = at + 10
            end = begin + length
            if end > size:
                break
            if data.startswith(_NEXT, begin + _NEXT_AT):
                messages += 1
                if is_sampled:
                    self._crowd.note(data, begin, end)
            else:
                self._other(data[at], data[begin:end])
            at = end
        self.messages += messages
        self._crowd.messages += messages
        self._rest = data[at:]

    def _other(self, kind: int, content: bytes) -> None:
        if kind == _PING:
            self.transport.write(_masked(0x8A, content))
        elif kind != _TEXT or not content.startswith((b'{"type":"connection_ack"', _PROTOCOL_PING)):
            self._crowd.fail(f"the server says {content[:300]!r}")


class _Crowd:
    """All clients."""

    def __init__(self) -> None:
        self.clients: list[_Client] = []
        self.messages = 0
        self.is_leaving = False
        self._problem: str | None = None
        self._times_us: list[int] = []

    def fail(self, problem: str) -> None:
        self._problem = self._problem or problem

    def note(self, data: bytes, begin: int, end: int) -> None:
        at = data.find(_TIME, begin, end)
        if at >= 0 and len(self._times_us) < MOST_SAMPLES:
            at += len(_TIME)
            sent_us = int(data[at : data.index(b'"', at)])
            self._times_us.append(time.time_ns() // 1_000 - sent_us)

    async def obey(self, order: Join | Look | Sample | Leave) -> msgspec.Struct:
        match order:
            case Join():
                return await self._join(order)
            case Sample():
                self._times_us.clear()
                for client in self.clients[:: order.every]:
                    client.is_sampled = True
                return self._seen()
            case Leave():
                return await self._leave()
        return self._seen()

    async def _join(self, order: Join) -> Joined:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        self.is_leaving = False
        wanted = len(self.clients) + len(order.subscriptions)
        for first in range(0, len(order.subscriptions), AT_ONCE):
            made = await asyncio.gather(
                *(
                    loop.create_connection(partial(_Client, self, subscription), HOST, order.port)
                    for subscription in order.subscriptions[first : first + AT_ONCE]
                )
            )
            self.clients += [client for _, client in made]
        while self._problem is None:
            newest = self.clients[wanted - len(order.subscriptions) :]
            if all(client.messages >= order.expected for client in newest):
                break
            if time.perf_counter() - began > JOINED_WITHIN_S:
                self.fail("not all clients have had the messages that they were to have")
            await asyncio.sleep(LOOK_EVERY_S)
        return Joined(time.perf_counter() - began, self._problem)

    async def _leave(self) -> Sampled:
        self.is_leaving = True
        for client in self.clients:
            client.transport.close()
        self.clients.clear()
        self.messages = 0
        self._problem = None
        await asyncio.sleep(0.1)
        took, self._times_us = sorted(self._times_us), []
        if not took:
            return Sampled(0, 0.0, 0.0, 0.0)
        p50, p99 = took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.99))]
        return Sampled(len(took), p50 / 1_000, p99 / 1_000, took[-1] / 1_000)

    def _seen(self) -> Seen:
        counts = [client.messages for client in self.clients]
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Seen(
            messages=self.messages,
            reads=sum(client.reads for client in self.clients),
            fewest=min(counts, default=0),
            most=max(counts, default=0),
            at_s=time.monotonic(),
            cpu_s=used.ru_utime + used.ru_stime,
            problem=self._problem,
        )


def _masked(kind: int, content: bytes) -> bytes:
    """A frame of a client. The mask is zero: what is hidden from nobody need not be changed."""
    size = len(content)
    if size <= 125:
        header = bytes((kind, 0x80 | size))
    else:
        header = bytes((kind, 0x80 | 126)) + size.to_bytes(2, "big")
    return header + bytes(4) + content


async def _serve() -> None:
    crowd = _Crowd()
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    decode = msgspec.json.Decoder(Join | Look | Sample | Leave).decode
    while line := await orders.readline():
        answer = await crowd.obey(decode(line))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    gc.disable()
    uvloop.run(_serve())
