"""The ASGI application: finds the handler, lets nothing but the one error shape out."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import unquote

import msgspec

from tidemark.config.access_model import Scope as AccessScope
from tidemark.errors import (
    ClockLeap,
    LedgerError,
    LedgerUnavailable,
    QueueFull,
    RequestError,
    TidemarkError,
)
from tidemark.web.access import Access
from tidemark.web.messages import (
    NO_CONTENT,
    Disconnected,
    Headers,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    json_response,
)
from tidemark.web.sockets import CLOSE_CODE_BASE, INTERNAL, WebSocket

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
SocketHandler: TypeAlias = Callable[[WebSocket], Awaitable[None]]

CORS_MAX_AGE_S = 600


class Route(msgspec.Struct, frozen=True):
    """A path pattern and what answers there.

    `{name}` stands for one segment, and `{name...}` at the end for all that is left of the path: a
    value in which slashes are common is then taken as well if they come as they are.
    `scopes` are those of which the caller needs one; empty means that everybody may call.
    """

    method: str
    pattern: str
    handler: Handler
    scopes: tuple[AccessScope, ...] = ()


class SocketRoute(msgspec.Struct, frozen=True):
    """Where a websocket may be opened.

    `scopes` are those of which the caller needs one; empty means that the handler finds out itself.
    """

    path: str
    handler: SocketHandler
    scopes: tuple[AccessScope, ...]


class Application:
    """An ASGI application over a fixed list of routes."""

    def __init__(
        self,
        access: Access,
        routes: Sequence[Route],
        sockets: Sequence[SocketRoute],
        *,
        startup: Callable[[], Awaitable[None]],
        shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        self._access = access
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        for route in routes:
            self._add(route)
        self._sockets = {route.path: route for route in sockets}
        self._startup = startup
        self._shutdown = shutdown

    def _add(self, route: Route) -> None:
        if "{" not in route.pattern:
            self._exact.setdefault(route.pattern, {})[route.method] = route
            return
        pattern = re.compile(
            re.sub(r"\{\w+(\.\.\.)?\}", lambda it: "(.+)" if it[1] else "([^/]+)", route.pattern)
            + r"\Z"
        )
        for known, methods in self._patterns:
            if known == pattern:
                methods[route.method] = route
                return
        self._patterns.append((pattern, {route.method: route}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        cors: Headers = []
        try:
            origin = self._access.check_origin(request.headers)
            if origin is not None:
                cors = [
                    (b"access-control-allow-origin", origin.encode("latin-1")),
                    (b"vary", b"origin"),
                ]
            response = await self._answer(request, preflight=origin is not None)
        except Disconnected:
            return
        except TidemarkError as error:
            response = error_response(error, request.request_id)
        except Exception:
            log.exception("request %s failed", request.request_id)
            response = error_response(_internal(request.request_id), request.request_id)
        response.headers += cors
        await response.send(request, send)

    async def _answer(self, request: Request, *, preflight: bool) -> Response:
        methods, values = self._find(request.scope["raw_path"].decode("latin-1"))
        method = request.scope["method"]
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allow = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods)).encode()
            if preflight and method == "OPTIONS":
                return _preflight(allow)
            raise _MethodNotAllowed(method, allow)
        if route.scopes:
            request.caller = self._access.identify(request.headers)
            request.caller.require(*route.scopes)
        else:
            request.caller = self._access.recognise(request.headers)
        request.path_values = values
        response = await route.handler(request)
        if method == "HEAD":
            response.body = b""
        return response

    def _find(self, path: str) -> tuple[dict[str, Route], tuple[str, ...]]:
        methods = self._exact.get(path)
        if methods is not None:
            return methods, ()
        if path in self._sockets:
            raise RequestError(
                "this is the address of a websocket",
                status=426,
                code="websocket_only",
                hint="Open it with a websocket client, at ws:// or wss://.",
            )
        for pattern, found in self._patterns:
            match = pattern.match(path)
            if match:
                return found, tuple(_segment(text) for text in match.groups())
        raise RequestError(
            f"there is nothing at {path[:200]!r}",
            status=404,
            code="not_found",
            hint="GET /docs shows what there is.",
        )

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            self._access.check_origin(socket.headers)
            route = self._sockets.get(scope["path"])
            if route is None:
                raise RequestError(
                    "there is no websocket at this path",
                    status=404,
                    code="not_found",
                    hint="GET /docs shows what there is.",
                )
            if route.scopes:
                socket.caller = self._access.identify(socket.headers)
                socket.caller.require(*route.scopes)
            await route.handler(socket)
        except Disconnected:
            return
        except TidemarkError as error:
            await _end_socket(socket, error)
        except Exception:
            log.exception("websocket %s failed", socket.request_id)
            await _end_socket(socket, _internal(socket.request_id))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._startup()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._shutdown()
        await send({"type": "lifespan.shutdown.complete"})


class _MethodNotAllowed(RequestError):
    code = "method_not_allowed"

    def __init__(self, method: str, allow: bytes) -> None:
        super().__init__(
            f"{method[:32]} is not possible here", status=405, hint=f"Possible: {allow.decode()}."
        )
        self.allow = allow


def status_of(error: TidemarkError) -> int:
    """The HTTP status that an error is answered with."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, QueueFull):
        return 429
    if isinstance(error, LedgerError):
        return 503
    return 500


def error_response(error: TidemarkError, request_id: str) -> Response:
    """The one shape of an error, with `Retry-After` where trying again helps."""
    headers: Headers = []
    if isinstance(error, QueueFull | LedgerUnavailable):
        headers.append((b"retry-after", b"1"))
    elif isinstance(error, ClockLeap):
        headers.append((b"retry-after", b"30"))
    elif isinstance(error, RequestError) and error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    elif isinstance(error, _MethodNotAllowed):
        headers.append((b"allow", error.allow))
    elif status_of(error) == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    elif status_of(error) == 426:
        headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    return json_response(
        {"error": error.as_dict(), "requestId": request_id}, status_of(error), headers
    )


async def _end_socket(socket: WebSocket, error: TidemarkError) -> None:
    """Say no in the one error shape: over HTTP before the handshake, by a close code after it."""
    if socket.accepted:
        status = status_of(error)
        code = INTERNAL if status == 500 else CLOSE_CODE_BASE + status
        await socket.close(code, f"{error.code}: {error.message}")
    else:
        response = error_response(error, socket.request_id)
        await socket.refuse(response.status, response.headers, response.body)


def _internal(request_id: str) -> TidemarkError:
    return TidemarkError(
        "an error of our own making",
        hint=f"The server's log has the details under {request_id}. Please report it.",
    )


def _preflight(allow: bytes) -> Response:
    return Response(
        NO_CONTENT,
        b"",
        headers=[
            (b"access-control-allow-methods", allow),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"%d" % CORS_MAX_AGE_S),
        ],
    )


def _segment(text: str) -> str:
    try:
        value = unquote(text, errors="strict")
    except UnicodeDecodeError:
        value = "\0"
    if "\0" in value:
        raise RequestError(
            "the path cannot be read",
            code="invalid_path",
            hint="Send UTF-8, percent-encoded, without NUL characters.",
        )
    return value
