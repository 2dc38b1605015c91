"""A receiver of webhooks on 127.0.0.1 that behaves as badly as a test wants it to.

It speaks HTTP by hand, because no library would send what some receivers send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self, TypeAlias

from tests.services.ports import free_port

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Received:
    """One request as it came; the names of its headers are lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


Behaviour: TypeAlias = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An ordinary response. In names of headers `_` stands for `-`."""
    fields = {"content_length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answering(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Always the same ordinary response, at once."""

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(status, body, **headers))

    return behave


def silent() -> Behaviour:
    """Takes the request and says nothing, for ever."""

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return behave


class WebhookReceiver:
    """Listens while the `async with` lasts; `down()` and `up()` in between keep its port.

    `received` holds what came, in the order in which it came. `behave` may be changed at any time.
    """

    def __init__(self, behave: Behaviour | None = None) -> None:
        self.behave = behave or answering(200)
        self.received: list[Received] = []
        self.port = free_port()
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    @property
    def event_ids(self) -> list[str]:
        return [request.event_id for request in self.received]

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.down()

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)

    async def down(self) -> None:
        """Refuses connections and cuts those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer, self.connections))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    request = await _read(reader, connection)
                    self.received.append(request)
                    await self.behave(request, writer)
                    await writer.drain()
        finally:
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {}
    for line in fields:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split(" ")[1], headers, body, connection)
