"""The load generator: one process, made so that it can send more than any server here can take.

Requests are built before the clock starts. A connection sends one, reads the answer without
decoding it (the status, the length, and the four counts that open the body), notes the time and
sends the next that nobody has sent yet.

Measured jobs come one a line on standard input; the answer to each is `ready`, then, after a line
that says go, its result. So the one who measures can look at the servers in between.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Literal, Self, cast

import msgspec
import uvloop

from benchmarks.ingest.workload import Workload, requests

GIVE_UP_AFTER_S: Final = 120.0
# The answer's counts are within so many bytes of its body's beginning.
_PEEK_BYTES: Final = 120
_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_counts = re.compile(
    rb'\{"accepted":(\d+),"duplicates":(\d+),"conflicts":(\d+),"rejected":(\d+),'
).match


class Job(msgspec.Struct, frozen=True):
    """What to send where.

    Without `seconds` every request is sent once. With `seconds` they are sent over and over until
    the time is up. `answer` says what a good answer is: the API's, with a result for each event, or
    an echo. With `retry_pause_ms` a 429 is no error: the request is sent again after the pause.
    """

    port: int
    workload: Workload
    seconds: float | None = None
    answer: Literal["results", "echo"] = "results"
    retry_pause_ms: float | None = None


class Load(msgspec.Struct, frozen=True):
    """What became of a job. `cpu_share` is the generator's own use of one core."""

    seconds: float
    requests: int
    events: int
    accepted: int
    duplicates: int
    refused: int
    errors: int
    first_error: str | None
    p50_ms: float
    p99_ms: float
    cpu_share: float

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds


class LoadGenerator:
    """The process, seen from the one who measures."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ingest.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, job: Job, *, just_before: Callable[[], None] = lambda: None) -> Load:
        """Run one job to its end. `just_before` is called when everything is built."""
        self._say(msgspec.json.encode(job))
        self._hear()
        just_before()
        self._say(b"go")
        return msgspec.json.decode(self._hear(), type=Load)

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator ended; its error is above")
        return line


class _Run:
    """The requests of one job and what came back, shared by its connections."""

    def __init__(self, job: Job, to_send: list[bytes]) -> None:
        self.job = job
        self._next: Iterator[bytes] = itertools.cycle(to_send) if job.seconds else iter(to_send)
        self._stop_at = float("inf")
        self.latencies_s: list[float] = []
        self.accepted = self.duplicates = self.refused = self.errors = 0
        self.first_error: str | None = None

    def begin(self) -> float:
        now = time.perf_counter()
        if self.job.seconds is not None:
            self._stop_at = now + self.job.seconds
        return now

    def take(self) -> bytes | None:
        return None if time.perf_counter() >= self._stop_at else next(self._next, None)

    def failed(self, reason: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or reason

    def answered(self, head: bytes, content_at: int, latency_s: float) -> bool:
        """Judge an answer; False if its request is to be sent again."""
        if head.startswith(b"HTTP/1.1 429") and self.job.retry_pause_ms is not None:
            self.refused += 1
            return time.perf_counter() >= self._stop_at
        self.latencies_s.append(latency_s)
        if not head.startswith(b"HTTP/1.1 200"):
            self.failed(head[: content_at + 400].decode(errors="replace"))
        elif self.job.answer == "results":
            self._count(head, content_at)
        return True

    def _count(self, head: bytes, content_at: int) -> None:
        counts = _counts(head, content_at)
        if counts is None:
            self.failed(f"not the answer of the API: {head[:200]!r}")
            return
        accepted, duplicates, conflicts, rejected = map(int, counts.groups())
        self.accepted += accepted
        self.duplicates += duplicates
        if conflicts or rejected or accepted + duplicates != self.job.workload.shape.batch:
            self.failed(f"not every event was stored or known: {counts[0].decode()}")


class _Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way."""

    def __init__(self, run: _Run, done: asyncio.Future[None]) -> None:
        self._run = run
        self._done = done
        self._transport: asyncio.WriteTransport
        self._request: bytes | None = None
        self._sent_at = 0.0
        self._head = b""
        self._content_at = 0
        self._received = 0
        self._expected = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's own class, which has all that is needed, is none of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._run.failed(f"the server closed a connection: {error or 'end of stream'}")
            self._done.set_result(None)

    def send_next(self) -> None:
        self._request = self._run.take()
        if self._request is None:
            self._done.set_result(None)
            self._transport.close()
        else:
            self._send()

    def _send(self) -> None:
        assert self._request is not None
        self._head = b""
        self._received = self._expected = 0
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if not self._expected:
            self._head = self._head + data if self._head else data
            self._expected = self._length_of_answer()
        if self._expected and self._received >= self._expected:
            self._complete()

    def _length_of_answer(self) -> int:
        """The length with the headers; 0 as long as too little has come to judge the answer."""
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return 0
        length = _length(self._head, 0, end)
        self._content_at = end + 4
        expected = self._content_at + (int(length[1]) if length else 0)
        return expected if len(self._head) >= min(expected, end + _PEEK_BYTES) else 0

    def _complete(self) -> None:
        latency_s = time.perf_counter() - self._sent_at
        if self._run.answered(self._head, self._content_at, latency_s):
            self.send_next()
        else:
            pause_ms = self._run.job.retry_pause_ms or 0.0
            asyncio.get_running_loop().call_later(pause_ms / 1000, self._send)


async def _perform(run: _Run) -> Load:
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(run.job.workload.shape.connections):
        done = loop.create_future()
        _, connection = await loop.create_connection(
            functools.partial(_Connection, run, done), "127.0.0.1", run.job.port
        )
        connections.append((connection, done))
    cpu_s = _own_cpu_s()
    began = run.begin()
    for connection, _ in connections:
        connection.send_next()
    await asyncio.wait(
        [done for _, done in connections], timeout=(run.job.seconds or 0) + GIVE_UP_AFTER_S
    )
    seconds = time.perf_counter() - began
    cpu_s = _own_cpu_s() - cpu_s
    for _, done in connections:
        if not done.done():
            run.failed("a request was not answered in time")
    return _load(run, seconds, cpu_s)


def _load(run: _Run, seconds: float, cpu_s: float) -> Load:
    latencies_ms = sorted(1000 * latency for latency in run.latencies_s) or [0.0]
    return Load(
        seconds=seconds,
        requests=len(run.latencies_s),
        events=len(run.latencies_s) * run.job.workload.shape.batch,
        accepted=run.accepted,
        duplicates=run.duplicates,
        refused=run.refused,
        errors=run.errors,
        first_error=run.first_error,
        p50_ms=latencies_ms[len(latencies_ms) // 2],
        p99_ms=latencies_ms[min(len(latencies_ms) - 1, int(len(latencies_ms) * 0.99))],
        cpu_share=cpu_s / seconds,
    )


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Serve jobs until standard input ends."""
    # A workload is sent several times, to another ledger each time.
    built = functools.lru_cache(maxsize=16)(requests)
    for line in iter(sys.stdin.buffer.readline, b""):
        job = msgspec.json.decode(line, type=Job)
        run = _Run(job, built(job.workload))
        gc.collect()
        gc.freeze()
        gc.disable()
        _answer(b"ready")
        sys.stdin.buffer.readline()
        _answer(msgspec.json.encode(uvloop.run(_perform(run))))
        gc.enable()


def _answer(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
