"""Websockets to which finished frames can be written.

Between a handler and its socket the server library puts a coroutine, a dictionary and a state
machine for every message. One who sends the same message to a thousand sockets makes its frame once
and writes it to each; that is what `Wire` is for. The handshake, pings, closing and all that
comes in stay with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

# Where a handler finds the wire, among the extensions of its scope.
WIRE: Final = "tidemark.wire"

_TEXT: Final = 0x81
_SHORT: Final = 125
_MEDIUM: Final = 0xFFFF

_NOT_UTF8: Final = 1007
_NO_PONG: Final = 1011
_LAST_READING_S: Final = 1.0


class Wire(Protocol):
    """A websocket's connection, from the sending side. Everything here returns at once."""

    @property
    def is_congested(self) -> bool:
        """Whether the peer is behind; what is written now waits in memory."""

    def on_writable(self, call: Callable[[], None]) -> None:
        """Have this called each time when the peer has caught up."""

    def write(self, frames: bytes) -> None:
        """Send frames; without effect once the connection is closing."""

    def end(self, code: int, reason: str) -> None:
        """Say goodbye behind what was written, and wait no longer than a while for the peer."""


def text_frame(*parts: bytes) -> bytes:
    """A whole message of text as a server sends it."""
    return b"".join((text_header(sum(map(len, parts))), *parts))


def text_header(size: int) -> bytes:
    """What comes before so many bytes of text to make them a whole message."""
    if size <= _SHORT:
        return bytes((_TEXT, size))
    if size <= _MEDIUM:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")


class WiredProtocol(WebSocketsSansIOProtocol):
    """One websocket; it is the `Wire` of its handler."""

    # Asked for every message to every socket, so it is no call.
    is_congested = False
    _call_when_writable: Callable[[], None] | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope = getattr(self, "scope", None)
        if scope is not None:
            scope["extensions"][WIRE] = self

    def on_writable(self, call: Callable[[], None]) -> None:
        self._call_when_writable = call

    def pause_writing(self) -> None:
        super().pause_writing()
        self.is_congested = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self.is_congested = False
        if self._call_when_writable is not None:
            self._call_when_writable()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Refused with an answer of HTTP. The library would log that nothing was answered.
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            # Any client could fill the log with the trace that the library writes of it.
            self.frames = []
            self.conn.send_close(_NOT_UTF8)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._gone(_NO_PONG, "")

    def shutdown(self) -> None:
        super().shutdown()
        # One that does not read must not keep the server from stopping.
        self.loop.call_later(_LAST_READING_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.is_congested = False
        if self._call_when_writable is not None:
            # Who waits for room has to learn that there is nobody any more.
            self._call_when_writable()
            self._call_when_writable = None

    def write(self, frames: bytes) -> None:
        if not (self.close_sent or self.disconnected or self.transport.is_closing()):
            self.transport.write(frames)

    def end(self, code: int, reason: str) -> None:
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        try:
            self.conn.send_close(code, reason)
        except InvalidState:
            return
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._stop_pausing()
        self._gone(code, reason)

    def _gone(self, code: int, reason: str) -> None:
        """The handler has nobody to talk to any more."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        # A peer that does not read would keep the connection, and what waits for it, for ever.
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)

    def _stop_pausing(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def wire_of(scope: Mapping[str, Any]) -> Wire:
    """The wire of a websocket that a `WiredProtocol` serves."""
    wire: Wire = scope["extensions"][WIRE]
    return wire
