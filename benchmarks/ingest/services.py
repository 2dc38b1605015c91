"""The processes that are measured, and what they use of the machine. Reads `/proc`."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.processes import children_of

Store = Literal["postgres", "sqlite"]

STARTED_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
SERVE: Final = (sys.executable, "-m", "tidemark", "serve")
ECHO: Final = (sys.executable, "-m", "benchmarks.ingest.echo")

# Everything that is not named here has its default.
CONFIG: Final = """
streams:
  usage:
    kind: usage
"""

_PR_SET_PDEATHSIG: Final = 1
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class ServiceFailed(Exception):
    """A process did not do as told; the message holds the end of its log."""


class Service:
    """A process that listens on one port of 127.0.0.1. Entered, it is ready."""

    def __init__(
        self, command: Sequence[str], port: int, environment: Mapping[str, str], home: Path
    ) -> None:
        self.port = port
        self._home = home
        self._log = home / "log"
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEMARK_", "PROMETHEUS_"))
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**inherited, **environment},
                start_new_session=True,
                preexec_fn=_end_with_the_benchmark,
            )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while self._status() != 200:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceFailed(f"a server did not start:\n{self._log.read_text()[-4000:]}")
            time.sleep(POLL_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def rss_mib(self) -> float:
        """The memory of the process and its workers together."""
        return sum(_status_kib(pid, "VmRSS") for pid in _family(self.pid)) / 1024

    def peak_rss_mib(self) -> float:
        """The most that each of them ever had."""
        return peak_rss_mib_of(self.pid)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _status(self) -> int | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()


class ApiService(Service):
    """`tidemark serve` over an empty ledger of its own, which goes when it does."""

    def __init__(self, store: Store, postgres: PostgresServer, *, workers: int = 1) -> None:
        self._postgres = postgres
        self._database = postgres.create_database() if store == "postgres" else None
        home = _new_home()
        config = home / "tidemark.yaml"
        config.write_text(CONFIG)
        port = free_port()
        environment = {
            "TIDEMARK_CONFIG": str(config),
            "TIDEMARK_HTTP__PORT": str(port),
            "TIDEMARK_HTTP__WORKERS": str(workers),
        }
        if self._database is not None:
            environment["TIDEMARK_LEDGER__URL"] = self._database
        super().__init__(SERVE, port, environment, home)

    def close(self) -> None:
        super().close()
        if self._database is not None:
            self._postgres.drop_database(self._database)
            self._database = None


class EchoService(Service):
    """The echo server."""

    def __init__(self) -> None:
        port = free_port()
        super().__init__([*ECHO, str(port)], port, {}, _new_home())


class CpuMeter:
    """How much of one core a process and its children use between `start` and `share`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used_s = 0.0

    def start(self) -> None:
        self._used_s = _cpu_s(self._pid)

    def share(self, seconds: float) -> float:
        return (_cpu_s(self._pid) - self._used_s) / seconds


def peak_rss_mib_of(pid: int) -> float:
    """The most that a process and its children ever had, added up."""
    return sum(_status_kib(member, "VmHWM") for member in _family(pid)) / 1024


def postmaster_pid(postgres: PostgresServer) -> int:
    """The process whose children are PostgreSQL's."""
    data_directory = postgres.execute("SHOW data_directory")[0][0]
    return int((Path(data_directory) / "postmaster.pid").read_text().splitlines()[0])


def _new_home() -> Path:
    return Path(tempfile.mkdtemp(prefix="tidemark-bench-"))


def _family(pid: int) -> list[int]:
    return [pid, *children_of(pid)]


def _cpu_s(pid: int) -> float:
    """What the process, its children and those of them that are gone have used."""
    parent = _cpu_ticks(pid)
    ticks = sum(parent) + sum(sum(_cpu_ticks(child)[:2]) for child in children_of(pid))
    return ticks / _TICKS_PER_S


def _cpu_ticks(pid: int) -> list[int]:
    """User, system, and the same of children that were waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return [0, 0, 0, 0]
    return [int(value) for value in stat.rpartition(")")[2].split()[11:15]]


def _status_kib(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def _end_with_the_benchmark() -> None:
    """Nothing goes on running when the benchmark is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
