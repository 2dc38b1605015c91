"""HTTP connections with bounds: on what is kept before a request is known, on time, on number.

The server library reads headers for as long as they come and keeps them all. Whoever sends them has
not shown a key yet, so a caller who has none could take any amount of memory. Everything here works
on whole reads and costs a request next to nothing.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tidemark.errors import RequestError
from tidemark.web.application import error_response
from tidemark.web.messages import LINGER_S, MAX_DISCARDED_BYTES, Headers

MAX_HEADER_BYTES = 64 * 1024
HEADERS_TIMEOUT_S = 15.0
MAX_CONNECTIONS = 2000
# Files that the process needs besides its connections.
OTHER_FILES = 100
# Connections that were refused and get the time to read why.
MAX_LINGERING = 100


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    It is closed when the headers of a request do not come within `HEADERS_TIMEOUT_S`, answered with
    431 when they are larger than `MAX_HEADER_BYTES`, and with 503 when too many are open already.
    """

    # What was read since the parser had something to show for it: headers that are not complete,
    # or trailers and the like, which are nothing but a way to send headers later.
    _framing_bytes = 0
    _awaits_headers = True
    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > connection_limit():
            self._refuse(_too_many_connections(), [(b"retry-after", b"1")])
        else:
            self._start_headers_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_headers_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._framing_bytes:
            if self._framing_bytes > MAX_HEADER_BYTES:
                self._refuse(_headers_too_large())
            elif self._awaits_headers and self._headers_timer is None:
                self._start_headers_timer()

    def on_headers_complete(self) -> None:
        # What was read may go on with a body, so only much of it is a reason to measure.
        if self._framing_bytes > MAX_HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEADER_BYTES:
                raise _headers_too_large()
        self._framing_bytes = 0
        self._awaits_headers = False
        self._stop_headers_timer()
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = _NO_TRAILERS

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._framing_bytes = 0
        self._awaits_headers = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._framing_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(_headers_too_large())

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser cannot read, and for headers it could but we do not take."""
        if self._framing_bytes > MAX_HEADER_BYTES:
            return  # `data_received` goes on to refuse it.
        self._framing_bytes = 0
        self._stop_headers_timer()
        super().send_400_response(msg)

    def _start_headers_timer(self) -> None:
        self._headers_timer = self.loop.call_later(HEADERS_TIMEOUT_S, self._headers_are_late)

    def _stop_headers_timer(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _headers_are_late(self) -> None:
        if self._is_answering():
            # The request before is not done with; its answer is not to be lost.
            self._start_headers_timer()
        else:
            self._headers_timer = None
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _refuse(self, error: RequestError, headers: Headers | None = None) -> None:
        """Answer, then read no more of it than helps the client to see the answer."""
        self._stop_headers_timer()
        if not self._awaits_headers:
            # It is the rest of a request that has a reader, who now learns that it is cut off.
            self.transport.close()
            return
        if self._is_answering():
            # Said now, it would be taken for the answer that is under way.
            self.flow.pause_reading()
            return
        response = error_response(error, secrets.token_hex(8))
        lines = [b"HTTP/1.1 %d %s" % (response.status, HTTPStatus(response.status).phrase.encode())]
        for name, value in (*response.headers, *(headers or ()), (b"connection", b"close")):
            lines.append(name + b": " + value)
        self.transport.write(b"\r\n".join([*lines, b"", response.body]))
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.transport.set_protocol(_Lingering(self.transport, self.loop))


class _Lingering(asyncio.Protocol):
    """Reads and forgets, within bounds.

    Closed at once, the connection would be reset under a client that is still sending, and the
    answer might be lost with it.
    """

    _open = 0

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._left = MAX_DISCARDED_BYTES
        self._timer = loop.call_later(LINGER_S, transport.close)
        _Lingering._open += 1
        if _Lingering._open > MAX_LINGERING or not transport.can_write_eof():
            transport.close()
        else:
            transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        _Lingering._open -= 1
        self._timer.cancel()


class _NoTrailers(list[tuple[bytes, bytes]]):
    """Takes the headers that come after a body, which nobody reads, and keeps none."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        pass


_NO_TRAILERS = _NoTrailers()


def connection_limit() -> int:
    """How many connections one process serves: no more than it may have files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, files - OTHER_FILES - MAX_LINGERING))


def _headers_too_large() -> RequestError:
    return RequestError(
        f"the headers are larger than {MAX_HEADER_BYTES} bytes",
        status=431,
        code="headers_too_large",
        hint="Send less in the address and the headers; events belong into the body.",
    )


def _too_many_connections() -> RequestError:
    return RequestError(
        "as many connections as one process serves are open",
        status=503,
        code="too_many_connections",
        hint="Wait as Retry-After says, then try again; one connection can carry many requests.",
    )
