"""ClickHouse over HTTP: the engine of chDB behind the interface that its clients speak.

No package index has a server of these years. So this answers, in a process of its own, what a
client asks over HTTP: statements with settings and parameters, inserts with a body, a password that
is checked, errors with their codes. What a statement does is done by the engine and by nothing
here.

    python -m tests.services.clickhouse_server DIRECTORY PORT PASSWORD
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

import pyarrow as pa

USER: Final = "analyst"
PASSWORD: Final = "hunter2"
_WAIT_S: Final = 30.0
_AUTHENTICATION_FAILED: Final = 516
# Of the way a request takes, and nothing to the engine.
_OF_HTTP: Final = frozenset(
    ("query", "query_id", "database", "wait_end_of_query", "client_protocol_version", "compress")
)


class ClickHouseServer:
    """A server to start, kill and start again on the same directory."""

    def __init__(self, directory: Path, port: int) -> None:
        self.url = f"http://{USER}:{PASSWORD}@127.0.0.1:{port}"
        self.port = port
        self._command = [sys.executable, "-m", __name__, str(directory), str(port), PASSWORD]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        deadline = time.monotonic() + _WAIT_S
        while True:
            assert self._process.poll() is None, "the server has ended"
            try:
                urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is sent at once; in two pieces it would wait for the other side each time.
    wbufsize = -1
    directory = ""
    password = ""

    def do_GET(self) -> None:
        self._answer(200, b"Ok.\n", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            self._require_password()
            parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            answer = _run(self.directory, parameters, _plain(body, self.headers))
        except _Refused as error:
            told = {"X-ClickHouse-Exception-Code": str(error.code)}
            status = 403 if error.code == _AUTHENTICATION_FAILED else 500
            self._answer(status, f"{error}\n".encode(), told)
        else:
            self._answer(200, answer, {"X-ClickHouse-Timezone": "UTC"})

    def _require_password(self) -> None:
        _, _, said = self.headers.get("Authorization", "").partition(" ")
        if base64.b64decode(said).decode() != f"{USER}:{self.password}":
            message = f"Code: {_AUTHENTICATION_FAILED}. DB::Exception: Authentication failed"
            raise _Refused(_AUTHENTICATION_FAILED, message)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


def _plain(body: bytes, headers: Any) -> bytes:
    encoding = headers.get("Content-Encoding")
    if encoding is None:
        return body
    plain: bytes = pa.input_stream(pa.BufferReader(body), compression=encoding).read()
    return plain


def _run(directory: str, parameters: dict[str, str], body: bytes) -> bytes:
    # Each has a session of its own, as a request without a session id has.
    connection = _connect(directory)
    try:
        if "database" in parameters:
            connection.query(f"USE {parameters['database']}")
        for name, value in parameters.items():
            if name not in _OF_HTTP and not name.startswith(("param_", "send_", "http_")):
                connection.query(f"SET {name} = '{value}'")
        values = {
            name.removeprefix("param_"): value
            for name, value in parameters.items()
            if name.startswith("param_")
        }
        statement = parameters.get("query")
        if statement is None:
            return _bytes(connection.query(body.decode(), "TabSeparated", params=values))
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            place = rf" FROM INFILE '{file.name}' FORMAT \1"
            return _bytes(connection.query(re.sub(r"\s+FORMAT\s+(\w+)\s*$", place, statement)))
    except Exception as error:
        found = re.search(r"Code: (\d+)", str(error))
        raise _Refused(int(found[1]) if found else 1, str(error)) from error
    finally:
        connection.close()


def _bytes(result: Any) -> bytes:
    found: bytes = result.bytes() or b""
    return found


def _connect(directory: str) -> Any:
    # Only the process that serves loads it.
    import chdb

    connect: Any = chdb.connect
    return connect(directory)


def _serve(directory: str, port: str, password: str) -> None:
    # The engine stays as long as one connection does.
    first = _connect(directory)
    first.query("CREATE DATABASE IF NOT EXISTS tidemark")
    _Handler.directory, _Handler.password = directory, password
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
