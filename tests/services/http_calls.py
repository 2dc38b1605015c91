"""Plain HTTP calls, with nothing added and nothing hidden: what a test sends is what arrives."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_S: Final = 60.0


class Answer(NamedTuple):
    """A response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json_text.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        """The error of a refused request."""
        error: dict[str, str] = self.json["error"]
        return error


def call(
    base_url: str,
    method: str,
    path: str,
    *,
    json: Any = None,
    body: bytes | Iterable[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own.

    `json` is sent as application/json; `body` as it is, and in chunks if it is not bytes.
    """
    sent = dict(headers or {})
    if json is not None:
        body = json_text.dumps(json).encode()
        sent.setdefault("Content-Type", "application/json")
    place = urlsplit(base_url)
    assert place.hostname is not None
    connection = HTTPConnection(place.hostname, place.port, timeout=TIMEOUT_S)
    try:
        chunked = body is not None and not isinstance(body, bytes)
        if chunked:
            sent["Transfer-Encoding"] = "chunked"
        connection.request(method, path, body=body, headers=sent, encode_chunked=chunked)
        response = connection.getresponse()
        content = response.read()
        return Answer(
            response.status, {name.lower(): v for name, v in response.getheaders()}, content
        )
    finally:
        connection.close()
