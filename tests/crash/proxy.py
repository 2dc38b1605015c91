"""A wire that can be cut, or can fall silent, between Tidemark and its database."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES: Final = 65_536
# Closing with this makes the kernel send a reset, as a lost network would.
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Wire:
    """Carries bytes from a port of its own to that of a database URL."""

    def __init__(self, database_url: str) -> None:
        self._there = urlsplit(database_url)
        self._open: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._carriers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        self.cut()
        for carrier in self._carriers:
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The database, by way of this wire."""
        port = self._server.sockets[0].getsockname()[1]
        account = self._there.netloc.rpartition("@")[0]
        return urlunsplit(self._there._replace(netloc=f"{account}@127.0.0.1:{port}"))

    def cut(self) -> int:
        """Reset every connection, in both directions; new ones may be made. How many there were."""
        pairs, self._open = self._open, []
        for pair in pairs:
            for writer in pair:
                raw = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
                writer.transport.abort()
        return len(pairs)

    def fall_silent(self) -> None:
        """Connections stay open and nothing comes through, not even that they are open."""
        self._flowing.clear()

    def speak_again(self) -> None:
        self._flowing.set()

    async def _carry(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carriers.add(task)
        try:
            # Cancelled when the wire is taken down; a stream's handler must not say so.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                far_in, far_out = await asyncio.open_connection("127.0.0.1", self._there.port)
                self._open.append((near_out, far_out))
                await asyncio.gather(self._pump(near_in, far_out), self._pump(far_in, near_out))
        finally:
            near_out.transport.abort()
            self._carriers.discard(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()
