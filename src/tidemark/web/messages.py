"""A request as a handler sees it and the response it gives."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from tidemark.errors import RequestError
from tidemark.web.access import NOBODY, Caller

Scope: TypeAlias = Mapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

BODY_TIMEOUT_S = 30.0
MAX_QUERY_PARAMETERS = 64
NO_CONTENT = 204
# How much of a body that was refused is still read, so that its sender gets to see the refusal.
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
LINGER_S = 2.0


class Disconnected(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


def header_map(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by name. One that is sent twice has both values, so that neither can hide."""
    headers = dict(raw)
    if len(headers) < len(raw):
        headers = {}
        for name, value in raw:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


class Request:
    """One HTTP request. `path_values` holds what the route's pattern matched."""

    __slots__ = ("_receive", "_unread", "caller", "headers", "path_values", "request_id", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.headers = header_map(scope["headers"])
        self.path_values: tuple[str, ...] = ()
        self.request_id = secrets.token_hex(8)
        self.caller: Caller = NOBODY
        self._receive = receive
        self._unread = b"transfer-encoding" in self.headers or b"content-length" in self.headers

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def query(self, known: Iterable[str]) -> dict[str, str]:
        """The query's parameters; one that is unknown, repeated or not UTF-8 is refused by name."""
        return parse_query(self.scope["query_string"], known)

    def declared_length(self) -> int | None:
        """The body's length as the client says; None if it is sent in chunks."""
        text = self.headers.get(b"content-length")
        return int(text) if text is not None and text.isdigit() else None

    async def body(self, limit: int) -> bytes:
        """The whole body, or 413 as soon as it is known to be larger than `limit`."""
        if (self.declared_length() or 0) > limit:
            raise body_too_large(limit)
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        raise body_too_large(limit)
                    if not message.get("more_body", False):
                        self._unread = False
                        return b"".join([*chunks, chunk]) if chunks else chunk
                    chunks.append(chunk)
        except TimeoutError:
            raise RequestError(
                f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s",
                status=408,
                code="body_timeout",
                hint="Send the body at once, or in smaller requests.",
            ) from None

    async def gone(self) -> None:
        """Waits until the client goes away. The body must have been read, if there is one."""
        message = await self._receive()
        if message["type"] == "http.request":
            # A request without a body says so first.
            message = await self._receive()
        if message["type"] != "http.disconnect":
            await asyncio.get_running_loop().create_future()

    def leaves_too_much(self) -> bool:
        """Whether more of the body may be coming than is worth reading just to forget it."""
        length = self.declared_length()
        return self._unread and (length is None or length > MAX_DISCARDED_BYTES)

    async def discard(self) -> None:
        """Read and forget what the client still sends, within bounds."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while size < MAX_DISCARDED_BYTES:
                    message = await self._receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
                    size += len(message.get("body", b""))


class Response:
    """A complete response. One without a body has no content type either."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes,
        content_type: bytes = b"application/json",
        headers: Headers | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers: Headers = []
        if body:
            self.headers.append((b"content-type", content_type))
        if status != NO_CONTENT:
            self.headers.append((b"content-length", b"%d" % len(body)))
        if headers:
            self.headers += headers

    async def send(self, request: Request, send: Send) -> None:
        """Answer, and hang up on a client that would go on sending what nobody will read.

        The answer is on its way before anything more is read. Closing at once would reset the
        connection under a client that is still sending, and the answer might be lost with it.
        """
        hang_up = request.leaves_too_much()
        if hang_up:
            self.headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": hang_up})
        if hang_up:
            await request.discard()
            await send({"type": "http.response.body", "body": b""})


def json_response(value: object, status: int = 200, headers: Headers | None = None) -> Response:
    return Response(status, msgspec.json.encode(value), headers=headers)


def body_too_large(limit: int) -> RequestError:
    return RequestError(
        f"the body is larger than {limit} bytes",
        status=413,
        code="body_too_large",
        hint=f"Split the events over several requests of at most {limit} bytes "
        "(`http.max_body_bytes`).",
    )


def parse_query(query_string: bytes, known: Iterable[str]) -> dict[str, str]:
    """The parameters of a query string, each at most once and only those that are known."""
    names = tuple(known)
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except ValueError as error:
        raise RequestError(
            "the query string cannot be read",
            code="invalid_query",
            hint=f"Send UTF-8, percent-encoded: {error}.",
        ) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in names:
            raise RequestError(
                f"there is no parameter {name[:64]!r}",
                code="unknown_parameter",
                field=name[:64],
                hint=f"Known here: {', '.join(names) or 'none'}.",
            )
        if name in found:
            raise RequestError(
                f"the parameter {name!r} is given twice",
                code="repeated_parameter",
                field=name,
                hint="Give it once.",
            )
        if "\0" in value:
            raise RequestError(
                f"the parameter {name!r} holds a NUL character",
                code="invalid_parameter",
                field=name,
                hint="No stored text contains one.",
            )
        found[name] = value
    return found
