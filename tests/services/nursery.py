"""Python processes that need not load Tidemark: one that has loaded it forks them.

    process = shared_nursery().fork(["-m", "tidemark", "serve"], output=log, cwd=home, env=env)

Such a process is one of its own, in a session of its own, and has nothing of ours but what it is
given. To load Tidemark takes most of the time in which a server starts, and tests start hundreds.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from tests.services.nursery_process import LENGTH, REPORT, Request

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = "tests.services.nursery_process"


class NurseryFailed(Exception):
    """The process that forks is gone, and what it knew with it."""


class Forked:
    """A process that was forked, to be used like a `subprocess.Popen` whose `stdin` is a pipe."""

    def __init__(self, arguments: Sequence[str], stdin: int, reports: int) -> None:
        self.args = arguments
        self.stdin = os.fdopen(stdin, "wb")
        self.returncode: int | None = None
        self._reports = reports
        # Not as soon as the last is read: another thread may wait for it.
        weakref.finalize(self, os.close, reports)
        self._reading = threading.Lock()
        self.pid = self._read()

    def poll(self) -> int | None:
        """How it ended, negative if by a signal; nothing as long as it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is None and self._can_be_read(timeout):
            with self._reading:
                # Another thread may have waited for the same.
                if self.returncode is None:
                    self.returncode = self._read()
        return self.returncode

    def _can_be_read(self, timeout: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._reports, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def _read(self) -> int:
        report = os.read(self._reports, REPORT.size)
        if not report:
            raise NurseryFailed("the process that forks others is gone")
        (number,) = REPORT.unpack(report)
        assert isinstance(number, int)
        return number


class Nursery:
    """The process that has loaded Tidemark. It ends with the one that started it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            # What is read when a module is loaded would be the same for all that are forked.
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("TIDEMARK_", "PROMETHEUS_"))
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=ROOT,
                env=environment,
            )
        self._asking = threading.Lock()

    def fork(
        self,
        arguments: Sequence[str],
        *,
        output: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
    ) -> Forked:
        """`python ARGUMENTS`, which begin with `-c` or `-m`; what it says all goes to `output`."""
        request = msgspec.json.encode(Request(list(arguments), str(cwd), dict(env)))
        stdin, ours = os.pipe()
        reports, theirs = os.pipe()
        given = [stdin, output.fileno(), theirs]
        try:
            with self._asking:
                socket.send_fds(self._control, [LENGTH.pack(len(request))], given)
                self._control.sendall(request)
        finally:
            os.close(stdin)
            os.close(theirs)
        return Forked(arguments, ours, reports)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._control.close()
        self._process.wait()


def run(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path = ROOT, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` does it, with all that the process says in `stdout`."""
    with tempfile.TemporaryFile() as output:
        process = shared_nursery().fork(arguments, output=output, cwd=cwd, env=env)
        process.stdin.close()
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        output.seek(0)
        said = output.read().decode(errors="replace")
    return subprocess.CompletedProcess(process.args, code, said)


_nursery: Nursery | None = None
_starting = threading.Lock()


def shared_nursery() -> Nursery:
    """The one of this process."""
    global _nursery
    with _starting:
        if _nursery is None:
            _nursery = Nursery()
            atexit.register(_nursery.close)
    return _nursery
