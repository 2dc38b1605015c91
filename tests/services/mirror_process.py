"""`tidemark mirror` as a process of its own, to be stopped, held, killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.services.nursery import ROOT, Forked, shared_nursery

STOPPED_WITHIN_S: Final = 60.0

# It is held by its standard input: when the one who started it is gone, so is the mirror.
_HELD: Final = """
import os, sys, threading

def outlive_nobody():
    os.read(0, 1)
    os._exit(70)

threading.Thread(target=outlive_nobody, daemon=True).start()
"""
_PROGRAM: Final = """
from tidemark.cli import main

sys.argv = ["tidemark", "mirror", "--config", sys.argv[1]]
main()
"""


class MirrorProcess:
    """One mirror after the other, with the same configuration.

    `variant` is text that runs before Tidemark is loaded, to tamper with it, and `hook` text that
    may run when it is. `forked` spares the process the time in which it would load its modules; its
    memory is then not its own alone.
    """

    def __init__(
        self,
        config_path: Path,
        log: Path,
        *,
        variant: str = "",
        hook: str = "",
        forked: bool = True,
    ) -> None:
        self._config_path = config_path
        self._log = log
        self._program = variant + _HELD + hook + _PROGRAM
        self._forked = forked and not variant
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Returns as soon as the process is there."""
        environ = {n: v for n, v in os.environ.items() if not n.startswith("TIDEMARK_")}
        arguments = ["-c", self._program, str(self._config_path)]
        with self._log.open("ab") as log:
            if self._forked:
                self._process = shared_nursery().fork(arguments, output=log, cwd=ROOT, env=environ)
            else:
                self._process = subprocess.Popen(
                    [sys.executable, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                    env=environ,
                    start_new_session=True,
                )

    def stop(self) -> int:
        """SIGTERM, then wait; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        self._end(signal.SIGKILL)

    @contextlib.contextmanager
    def held_still(self) -> Iterator[None]:
        """It does nothing meanwhile, and does not know."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log_text(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log_tail(self) -> str:
        return self.log_text()[-4000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._signal(number)
        try:
            return self._process.wait(STOPPED_WITHIN_S)
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
