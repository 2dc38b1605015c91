"""What a connection may cost before anybody has shown a key: bytes, time and number."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from websockets.sync.client import connect

from tests.integration.http_client import Api, encode, usage
from tests.services.processes import resident_bytes
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import Config
from tidemark.web import protocol
from tidemark.web.access import Access
from tidemark.web.application import Application, Route
from tidemark.web.messages import Request, Response, json_response
from tidemark.web.protocol import MAX_HEADER_BYTES, BoundedProtocol

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n"
OK = b'{"status":"ok"}'


def dial(server: TidemarkServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def read_all(connection: socket.socket) -> bytes:
    """Until the server closes, by whatever means."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def read_until(connection: socket.socket, count: int) -> bytes:
    """Until so many answers are there."""
    said = b""
    while said.count(OK) < count:
        part = connection.recv(65_536)
        assert part, said
        said += part
    return said


def error_of(answer: bytes) -> tuple[bytes, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert b"connection: close" in head
    said = json.loads(body)
    assert set(said) == {"error", "requestId"}
    assert said["error"]["hint"]
    return head, said["error"]


def send_without_end(connection: socket.socket, part: bytes, size: int) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(size // len(part)):
            connection.sendall(part)


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (HEALTH, b"X-Filling: %s\r\n" % (b"x" * 4000)),
        (HEALTH + b"X-Filling: ", b"x" * 4000),
        (b"GET /", b"x" * 4000),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X-Trailer: %s\r\n" % (b"x" * 4000),
        ),
    ],
    ids=["headers", "header", "address", "trailers"],
)
def test_headers_without_end_cost_no_memory(
    sqlite_server: TidemarkServer, start: bytes, part: bytes
) -> None:
    with dial(sqlite_server) as connection:
        connection.sendall(HEALTH + b"\r\n")
        read_until(connection, 1)
        before = resident_bytes(sqlite_server.pid)
        connection.settimeout(3)
        connection.sendall(start)
        with contextlib.suppress(TimeoutError):
            send_without_end(connection, part, 90_000_000)
        assert resident_bytes(sqlite_server.pid) - before < 15_000_000


@pytest.mark.parametrize("pause_s", [0.0, 0.2], ids=["at once", "in parts"])
def test_headers_that_are_too_large_are_told_in_the_one_error_shape(
    sqlite_server: TidemarkServer, pause_s: float
) -> None:
    filling = b"X-Filling: " + b"x" * MAX_HEADER_BYTES
    with dial(sqlite_server) as connection:
        connection.sendall(HEALTH + filling)
        time.sleep(pause_s)
        connection.sendall(b"\r\n\r\n")
        head, error = error_of(read_all(connection))
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert error["code"] == "headers_too_large"


def test_headers_that_are_just_small_enough_are_taken(sqlite_server: TidemarkServer) -> None:
    filling = b"X-Filling: " + b"x" * (MAX_HEADER_BYTES - 200)
    with dial(sqlite_server) as connection:
        for _ in range(3):
            connection.sendall(HEALTH + filling + b"\r\n\r\n")
            assert read_until(connection, 1).startswith(b"HTTP/1.1 200 OK\r\n")


def test_one_connection_carries_many_requests(sqlite_server: TidemarkServer, tenant: str) -> None:
    """Pipelined, in parts, with large bodies and with trailers."""
    api = Api(sqlite_server.base_url, tenant)
    meta = {"x": "x" * 1000}
    events = [usage(tenant, meta=meta, resourceId=str(n)) for n in range(500)]
    large = encode({"events": events})
    small = encode({"events": [usage(tenant, customerRef="last")]})
    with dial(sqlite_server) as connection:
        for _ in range(50):
            connection.sendall(HEALTH + b"\r\n")
            read_until(connection, 1)
        connection.sendall((HEALTH + b"\r\n") * 50)
        read_until(connection, 50)
        connection.sendall(
            POST + b"Content-Length: %d\r\n\r\n" % len(large) + large + HEALTH + b"\r\n"
        )
        assert b'"accepted":500' in read_until(connection, 1)
        chunk = b"%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(small), small)
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + HEALTH)
        time.sleep(0.1)
        connection.sendall(b"\r\n")
        assert b'"accepted":1' in read_until(connection, 1)
    assert len(api.events()) == 501


async def server_started(server: uvicorn.Server) -> None:
    for _ in range(500):
        if server.started:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the server did not start")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A server in this process, so that its bounds can be others; the port."""

    async def nothing() -> None:
        pass

    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.8)
        return json_response({"status": "ok"})

    routes = [Route("GET", "/healthz", healthz), Route("GET", "/slow", slow)]
    application = Application(Access(Config()), routes, [], startup=nothing, shutdown=nothing)
    config = uvicorn.Config(application, http=BoundedProtocol, lifespan="on", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await server_started(server)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


@pytest.mark.parametrize("said", [b"", HEALTH, b"\r\n", HEALTH + b"\r\n" + HEALTH])
async def test_a_connection_whose_headers_do_not_come_is_closed(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEADERS_TIMEOUT_S", 0.3)
    async with serving() as port, asyncio.timeout(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)

        async def go_on() -> None:
            while True:
                await asyncio.sleep(0.05)
                writer.write(b"\r\n" if said == b"\r\n" else b"x" if said else b"")

        going_on = asyncio.create_task(go_on())
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
            assert answer.count(OK) == said.count(b"\r\n\r\n")
        going_on.cancel()
        writer.close()


async def test_an_answer_that_takes_longer_than_headers_may_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "HEADERS_TIMEOUT_S", 0.3)
    async with serving() as port, asyncio.timeout(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH.replace(b"healthz", b"slow") + b"\r\n")
        await asyncio.sleep(0.1)
        writer.write(HEALTH)
        assert (await reader.read()).count(OK) == 1
        writer.close()


async def test_headers_that_are_too_large_do_not_cost_the_answer_before_them() -> None:
    async with serving() as port, asyncio.timeout(4):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH.replace(b"healthz", b"slow") + b"\r\n")
        await asyncio.sleep(0.1)
        writer.write(HEALTH + b"X-Filling: " + b"x" * 2 * MAX_HEADER_BYTES)
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        _, error = error_of(said.partition(OK)[2])
        assert error["code"] == "headers_too_large"
        writer.close()


async def test_a_connection_too_many_is_told_and_a_place_is_free_again_when_one_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    async with serving() as port, asyncio.timeout(4):
        served = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEALTH + b"\r\n")
            head, error = error_of(await reader.read())
            assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"retry-after: 1" in head
            assert error["code"] == "too_many_connections"
            writer.close()
        served[0][1].close()
        await asyncio.sleep(0.1)
        served[0] = await asyncio.open_connection("127.0.0.1", port)
        for reader, writer in served:
            writer.write(HEALTH + b"Connection: close\r\n\r\n")
            assert OK in await reader.read()
            writer.close()


def test_a_websocket_outlives_the_time_for_headers(sqlite_server: TidemarkServer) -> None:
    url = f"{sqlite_server.websocket_url}/admin/events/tail?after=0"
    with connect(url, proxy=None, close_timeout=1) as tail:
        assert "ingressSequence" in tail.recv(20)
