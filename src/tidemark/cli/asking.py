"""One question to a server, and its answer or the error of the command that asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import urllib3

from tidemark.cli.answers import refusal, unreachable
from tidemark.cli.options import Server

_CONNECT_TIMEOUT_S: Final = 10.0
# Longer than the server lets anybody wait for a sequence.
_READ_TIMEOUT_S: Final = 60.0


class Asking:
    """Asks one server, over one connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # The server is named, and asked itself: no proxy, no redirect.
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=1)

    def get(self, path: str, query: Mapping[str, str], wanted: str) -> urllib3.BaseHTTPResponse:
        """The answer; an error if it is not what was wanted, or there is none."""
        answer = self._request("GET", f"{path}?{urlencode(query)}", None)
        if answer.status != 200:
            raise refusal(answer.status, answer.data, wanted)
        return answer

    def post(self, path: str, body: bytes) -> urllib3.BaseHTTPResponse:
        """The answer to a document of JSON, whatever its status is; an error if there is none."""
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: bytes | None) -> urllib3.BaseHTTPResponse:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._server.api_key:
            headers["Authorization"] = f"Bearer {self._server.api_key}"
        try:
            return self._pool.request(
                method,
                f"{self._server.url}{path}",
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # What comes before the last colon is of no use to people.
            raise unreachable(self._server.url, str(error).rpartition(": ")[2]) from error
