"""A small HTTP server that speaks the ingest contract and misbehaves on demand.

It stores events by key as the ledger does, so a test can tell whether an event took effect once,
and it keeps every body, so a test can tell whether a retry was the same bytes. Each request takes
the next fault of the script; when the script is over, the server is well.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

Fault = Literal[
    "none",
    "drop_before_storing",
    "drop_after_storing",
    "cut_the_answer",
    "garbage",
    "too_few_results",
    "slow",
    "trickle",
    "endless",
    "429",
    "502",
    "503",
    "504",
    "413",
    "413_unread",
    "400",
    "401",
    "500",
    "302",
]
STATUS_FAULTS = ("429", "502", "503", "504", "413", "400", "401", "500", "302")


@dataclass
class Stored:
    sequence: int
    event: dict[str, Any]
    received_at: str


@dataclass
class Peer:
    """Use it as a context manager; `url` is where it listens."""

    script: list[Fault] = field(default_factory=list)
    retry_after: str | None = "0"
    slow_s: float = 1.0
    tls: ssl.SSLContext | None = None
    max_events: int = 1000
    max_bytes: int = 5 * 1024 * 1024
    stored: dict[str, Stored] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    arrived_at: list[float] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    waiting: int = 0
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.peer = self
        scheme = "http"
        if self.tls is not None:
            scheme = "https"
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self.released.set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.closing.set()
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.close_connections()
        self._server.server_close()

    def hold(self) -> None:
        """Answer nothing until `release`."""
        self.released.clear()

    def release(self) -> None:
        self.released.set()

    def await_waiting(self, count: int) -> None:
        """Wait until so many requests have come, and a little longer for one too many."""
        wait_until(lambda: self.waiting >= count)
        time.sleep(0.05)
        assert self.waiting == count

    def store(self, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the ledger would do."""
        results = [self._store_one(event) for event in events]
        statuses = [result["status"] for result in results]
        return {
            "accepted": statuses.count("accepted"),
            "duplicates": statuses.count("duplicate"),
            "conflicts": statuses.count("conflict"),
            "rejected": statuses.count("rejected"),
            "requestId": "r",
            "results": results,
        }

    def _store_one(self, event: dict[str, Any]) -> dict[str, Any]:
        if event.get("metric") == "bad":
            return {"status": "rejected", "error": error_body("unknown_metric", "metric")}
        key = key_of(event)
        known = self.stored.get(key)
        status = "duplicate"
        if known is None:
            sequence = len(self.stored) + 1
            known = Stored(sequence, event, f"2025-01-01T00:00:00.{sequence:06d}Z")
            self.stored[key] = known
            status = "accepted"
        elif known.event != event:
            return {
                "status": "conflict",
                "idempotencyKey": key,
                "error": error_body("identity_conflict"),
            }
        return {
            "status": status,
            "idempotencyKey": key,
            "ingressSequence": str(known.sequence),
            "receivedAt": known.received_at,
        }


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that must become so."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def key_of(event: dict[str, Any]) -> str:
    """The client's key, else the identity tuple. Trades declare `trade_id` as theirs."""
    if "idempotencyKey" in event:
        return str(event["idempotencyKey"])
    if "stream" in event:
        return json.dumps([event["tenantId"], event["stream"], event["data"]["trade_id"]])
    fields = ("tenantId", "metric", "customerRef", "resourceId", "ts")
    return json.dumps([event.get(name) for name in fields])


def error_body(code: str, at: str | None = None) -> dict[str, str]:
    body = {"code": code, "message": f"it is {code}", "hint": "do otherwise"}
    return body if at is None else {**body, "field": at}


class _Server(ThreadingHTTPServer):
    peer: Peer
    daemon_threads = False

    def __init__(self, *args: Any) -> None:
        self.open_sockets: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_sockets.add(request)
        self.peer.connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open_sockets.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        # A handler that waits for the next request of a kept connection ends with this.
        for request in list(self.open_sockets):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was reset on purpose is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        peer = self.server.peer
        with peer.lock:
            peer.waiting += 1
        peer.released.wait()
        with peer.lock:
            fault = peer.script.pop(0) if peer.script else None
            peer.arrived_at.append(time.monotonic())
            peer.headers.append(dict(self.headers))
        if fault == "413_unread":
            self._answer(413, json.dumps({"error": error_body("too_large")}).encode())
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with peer.lock:
            peer.bodies.append(body)
        if fault == "drop_before_storing":
            self._reset()
        elif fault in STATUS_FAULTS:
            self._answer_fault(int(fault))
        else:
            self._answer_events(body, fault)

    def _answer_events(self, body: bytes, fault: Fault | None) -> None:
        peer = self.server.peer
        events = json.loads(body)["events"]
        if len(events) > peer.max_events or len(body) > peer.max_bytes:
            self._answer_fault(413)
            return
        with peer.lock:
            answer = peer.store(events)
        if fault == "too_few_results":
            answer["results"].pop()
        text = b"<html>" if fault == "garbage" else json.dumps(answer).encode()
        if fault == "drop_after_storing":
            self._reset()
            return
        if fault == "slow":
            peer.closing.wait(peer.slow_s)
        if fault == "trickle":
            self._answer(200, b"", length=10_000)
            while time.monotonic() < peer.arrived_at[0] + peer.slow_s:
                self.wfile.write(b" ")
                peer.closing.wait(0.02)
            return
        if fault == "endless":
            self._answer(200, b" " * 100_000, length=10**9)
            self.wfile.write(b" " * 10_000_000)
            return
        if fault == "cut_the_answer":
            self._answer(200, text[: len(text) // 2], length=len(text))
            self._reset()
            return
        self._answer(200, text)

    def _answer_fault(self, status: int) -> None:
        if status in (502, 504):
            self._answer(status, b"<html>bad gateway</html>")
        else:
            text = json.dumps({"error": error_body(f"code_{status}"), "requestId": "r"}).encode()
            self._answer(status, text)

    def _answer(self, status: int, body: bytes, *, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        retry_after = self.server.peer.retry_after
        if status in (429, 503) and retry_after is not None:
            self.send_header("Retry-After", retry_after)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        # Closing with a linger of zero sends a reset instead of an orderly end.
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """The test says what went wrong."""
