"""GraphQL over HTTP: `/graphql` for queries and mutations, and the page in a browser.

Answers follow the draft "GraphQL over HTTP". A client that accepts
`application/graphql-response+json` is told by the status as well whether the document was refused;
for `application/json` the status is 200 for every well-formed request that a known caller made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tidemark.errors import AccessDenied, RequestError
from tidemark.live.access.sessions import Session
from tidemark.live.graphql.page import GraphiqlPage
from tidemark.live.graphql.problems import DocumentRefused, refusal
from tidemark.live.graphql.service import GraphqlService, Payload, read_json, read_payload
from tidemark.web.disconnecting import while_there
from tidemark.web.messages import Headers, Request, Response

Authenticate: TypeAlias = Callable[[Mapping[bytes, bytes], Mapping[str, object] | None], Session]

JSON_TYPE: Final = b"application/json"
GRAPHQL_TYPE: Final = b"application/graphql-response+json"
TOO_LARGE: Final = 413
_PARAMETERS: Final = ("query", "variables", "operationName", "extensions")
# Statuses that say something about the caller or the server, whatever the client accepts.
_ALWAYS_SHOWN: Final = frozenset((401, 403, 405, TOO_LARGE, 415, 429, 503))


class GraphqlEndpoint:
    """Answers `GET` and `POST /graphql`.

    No scope is asked for on the way here: who is calling is judged by `authenticate`, which is
    `Gatekeeper.authenticate`, because GraphQL takes tokens as well as keys. The page is for
    everybody; it shows nothing of the views. A query whose client has gone away is ended.
    """

    def __init__(
        self, service: GraphqlService, authenticate: Authenticate, *, max_body_bytes: int
    ) -> None:
        self._service = service
        self._authenticate = authenticate
        self._max_body_bytes = max_body_bytes
        self._page = GraphiqlPage()

    async def get(self, request: Request) -> Response:
        """A query in the address; without one, the page for people."""
        if not request.scope["query_string"] and _wants_page(request):
            return self._page.page()
        return await self._respond(request, _of_query_string)

    async def post(self, request: Request) -> Response:
        try:
            body = await request.body(self._max_body_bytes)
        except RequestError as error:
            if error.status != TOO_LARGE:
                raise
            return _refused(_too_large(self._max_body_bytes), _answer_type(request))
        return await self._respond(request, lambda _: _of_body(request, body))

    async def _respond(self, request: Request, read: Callable[[Request], Payload]) -> Response:
        kind = _answer_type(request)
        try:
            session = self._session(request)
            payload = read(request)
            operation = self._service.operation(session, payload)
            if request.scope["method"] != "POST" and operation.kind == "mutation":
                raise refusal(
                    "a mutation is not sent with GET",
                    code="mutation_over_get",
                    hint="Send it with POST.",
                    status=405,
                )
            answer = self._service.run(session, operation, payload.variables)
            # What a mutation has begun it ends.
            body = await (answer if operation.kind == "mutation" else while_there(request, answer))
        except DocumentRefused as refused:
            return _refused(refused, kind)
        # Without data the document was refused while its variables were read.
        status = 400 if kind == GRAPHQL_TYPE and "data" not in body else 200
        return _response(status, body, kind)

    def _session(self, request: Request) -> Session:
        try:
            return self._authenticate(request.headers, None)
        except AccessDenied as error:
            raise DocumentRefused.because(error) from None


def _of_query_string(request: Request) -> Payload:
    members: dict[str, Any] = dict(request.query(_PARAMETERS))
    for name in ("variables", "extensions"):
        if name in members:
            members[name] = read_json(members[name], f"the parameter `{name}`")
    return read_payload(members)


def _too_large(limit: int) -> DocumentRefused:
    return refusal(
        f"the request is larger than {limit} bytes",
        code="body_too_large",
        hint="Ask in several requests, or raise `live.max_document_bytes`.",
        status=TOO_LARGE,
    )


def _of_body(request: Request, body: bytes) -> Payload:
    content_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE.decode():
        raise refusal(
            f"the body is {content_type[:64] or 'of no type'}, not application/json",
            code="unsupported_media_type",
            hint="Send `Content-Type: application/json`.",
            status=415,
        )
    return read_payload(body)


def _answer_type(request: Request) -> bytes:
    accepted = request.headers.get(b"accept", b"")
    return GRAPHQL_TYPE if GRAPHQL_TYPE in accepted else JSON_TYPE


def _wants_page(request: Request) -> bool:
    return "text/html" in (request.header(b"accept") or "")


def _refused(refused: DocumentRefused, kind: bytes) -> Response:
    shown = kind == GRAPHQL_TYPE or refused.status in _ALWAYS_SHOWN
    headers: Headers = []
    if refused.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after_s))
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status == 405:
        headers.append((b"allow", b"POST"))
    # A body that is no request of GraphQL at all is a bad request to every client.
    status = refused.status if shown or refused.code == "invalid_request" else 200
    return _response(status, {"errors": refused.errors}, kind, headers)


def _response(
    status: int, body: dict[str, Any], kind: bytes, headers: Headers | None = None
) -> Response:
    content_type = kind + b"; charset=utf-8"
    return Response(status, msgspec.json.encode(body), content_type, headers)
