"""One question to a server in GraphQL, and its answer or the error of the command that asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidemark.cli.answers import not_ours, refusal
from tidemark.cli.asking import Asking
from tidemark.cli.options import Server
from tidemark.errors import ClientError

PATH: Final = "/graphql"
_NO_GRAPHQL: Final = (
    "It has no meters and no views, or `live.enabled` is false in its configuration."
)


class _Extensions(msgspec.Struct):
    code: str
    hint: str = ""
    field: str | None = None


class _Error(msgspec.Struct):
    message: str
    extensions: _Extensions


class _Answer(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None
    errors: list[_Error] = []


_decode = msgspec.json.Decoder(_Answer).decode


class GraphqlAsking:
    """Asks one server, over one connection."""

    def __init__(self, server: Server) -> None:
        self._asking = Asking(server)
        self._url = server.url

    def ask(
        self, document: str, variables: Mapping[str, Any] | None = None
    ) -> dict[str, msgspec.Raw]:
        """The root fields of the answer by name; the first error of one is raised."""
        body = msgspec.json.encode({"query": document, "variables": variables or {}})
        answer = self._asking.post(PATH, body)
        if answer.status == 404:
            raise ClientError(
                f"the server at {self._url} has no GraphQL", hint=_NO_GRAPHQL, code="no_graphql"
            )
        try:
            found = _decode(answer.data)
        except msgspec.MsgspecError:
            raise not_ours(f"HTTP {answer.status} and no answer of GraphQL") from None
        for error in found.errors:
            told = error.extensions
            raise ClientError(error.message, hint=told.hint, field=told.field, code=told.code)
        if found.data is None:
            # A server that does not serve GraphQL yet refuses as it does everywhere else.
            raise refusal(answer.status, answer.data, "answer of GraphQL")
        return found.data
