"""One websocket connection, with the closing rules in one place."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

from tidemark.web.access import Caller
from tidemark.web.messages import Disconnected, Headers, Receive, Scope, Send, header_map

NORMAL = 1000
GOING_AWAY = 1001
INTERNAL = 1011
# An application's own close codes are 4000 and up; ours follow the HTTP status they stand for.
CLOSE_CODE_BASE = 4000
# A close frame has room for 125 bytes, two of which are the code.
MAX_CLOSE_REASON_BYTES = 123
CLOSE_TIMEOUT_S = 1.0


class WebSocket:
    """A connection that is accepted by the first `accept`, and refused over HTTP before it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers = header_map(scope["headers"])
        self.request_id = secrets.token_hex(8)
        self.caller: Caller
        self._receive = receive
        self._send = send
        self.accepted = False

    async def accept(self, subprotocol: str | None = None) -> None:
        message = await self._receive()
        if message["type"] != "websocket.connect":
            raise Disconnected
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol})
        self.accepted = True

    async def receive(self) -> str | bytes:
        """The next message; `Disconnected` when the peer is gone."""
        message: Any = await self._receive()
        if message["type"] == "websocket.disconnect":
            raise Disconnected
        content: str | bytes | None = message.get("text")
        return bytes(message["bytes"]) if content is None else content

    async def send_text(self, text: str) -> None:
        """Waits while the peer's buffer is full, so a slow reader costs no memory."""
        try:
            await self._send({"type": "websocket.send", "text": text})
        except OSError:
            raise Disconnected from None

    async def close(self, code: int, reason: str = "") -> None:
        """Say goodbye; a peer that does not listen any more is left without."""
        cut = shortened_reason(reason)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send({"type": "websocket.close", "code": code, "reason": cut})

    async def refuse(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer the handshake with a plain HTTP response."""
        await self._send(
            {"type": "websocket.http.response.start", "status": status, "headers": headers}
        )
        await self._send({"type": "websocket.http.response.body", "body": body})


def shortened_reason(reason: str) -> str:
    """As much of a reason as fits into a close frame."""
    return reason.encode()[:MAX_CLOSE_REASON_BYTES].decode("utf-8", "ignore")
