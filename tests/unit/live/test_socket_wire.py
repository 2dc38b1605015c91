"""A websocket on which finished frames are written: what becomes of a peer that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.services.ports import free_port
from tidemark.web.messages import Disconnected
from tidemark.web.sockets import WebSocket
from tidemark.web.wire import WiredProtocol, text_frame, wire_of

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Served:
    """A server of one websocket after the other, and how the last one ended."""

    def __init__(self) -> None:
        self.port = free_port()
        self.server = uvicorn.Server(
            uvicorn.Config(
                self.handle,
                port=self.port,
                ws=WiredProtocol,
                interface="asgi3",
                lifespan="off",
                log_config=None,
                ws_ping_interval=0.1,
                ws_ping_timeout=0.2,
                timeout_graceful_shutdown=30,
            )
        )
        self.sockets: asyncio.Queue[WebSocket] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.stopped = asyncio.Event()

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        self.sockets.put_nowait(socket)
        try:
            while True:
                await socket.receive()
        except Disconnected:
            self.gone.set()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    serving = asyncio.create_task(served.server.serve())
    serving.add_done_callback(lambda _: served.stopped.set())
    for _ in range(1_000):
        if served.server.started:
            break
        await asyncio.sleep(0.01)
    yield served
    served.server.should_exit = True
    async with asyncio.timeout(10):
        await serving


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
async def test_frames_of_every_size_arrive_as_they_are(served: Served, size: int) -> None:
    async with connect(f"ws://127.0.0.1:{served.port}") as client:
        wire = wire_of((await served.sockets.get()).scope)
        wire.write(text_frame(b"a" * (size // 2), b"b" * (size - size // 2)) + text_frame(b"end"))
        assert await client.recv() == "a" * (size // 2) + "b" * (size - size // 2)
        assert await client.recv() == "end"


async def test_the_goodbye_comes_behind_what_was_written_and_nothing_comes_behind_it(
    served: Served,
) -> None:
    async with connect(f"ws://127.0.0.1:{served.port}") as client:
        wire = wire_of((await served.sockets.get()).scope)
        wire.write(text_frame(b"before"))
        wire.end(1013, "later")
        wire.write(text_frame(b"after"))
        wire.end(1000, "again")
        assert await client.recv() == "before"
        with pytest.raises(ConnectionClosed, match="1013"):
            await client.recv()
    await asyncio.wait_for(served.gone.wait(), 5)


async def test_a_peer_that_answers_no_ping_is_gone(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.wait_for(served.gone.wait(), 5)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_peer_that_does_not_read_keeps_no_server_from_stopping(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    wire = wire_of((await served.sockets.get()).scope)
    wire.write(text_frame(bytes(20_000_000)))
    assert wire.is_congested
    wire.end(1001, "")
    served.server.should_exit = True
    await asyncio.wait_for(served.stopped.wait(), 10)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
