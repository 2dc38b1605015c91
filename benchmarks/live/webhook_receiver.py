"""A receiver of webhooks that costs as little as it can: a process of its own that says 200.

It prints its port. For each line on its standard input it prints how many requests it has had and
how many seconds of processor time it has used.
"""

from __future__ import annotations

import asyncio
import re
import resource
import subprocess
import sys
from types import TracebackType
from typing import Final, Self, cast

import msgspec
import uvloop

HOST: Final = "127.0.0.1"
ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search


class Taken(msgspec.Struct, frozen=True):
    """What the receiver has done since it was started."""

    requests: int
    cpu_s: float


class ReceiverProcess:
    """The process, seen from the one who measures."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port = int(self._line())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=10)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"

    def taken(self) -> Taken:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(), type=Taken)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the receiver of webhooks has ended")
        return line


class _Connection(asyncio.Protocol):
    requests = 0

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = _length(self._received, 0, head_end + 2)
        request_end = head_end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < request_end:
            return
        # One at a time: a client of webhooks does not send before it was answered.
        self._received = self._received[request_end:]
        _Connection.requests += 1
        self._transport.write(ANSWER)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    asked = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    while await asked.readline():
        used = resource.getrusage(resource.RUSAGE_SELF)
        taken = Taken(_Connection.requests, used.ru_utime + used.ru_stime)
        print(msgspec.json.encode(taken).decode(), flush=True)
    server.close()


if __name__ == "__main__":
    uvloop.run(_serve())
