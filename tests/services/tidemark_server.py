"""Tidemark itself as a process of its own, to be called, stopped, killed and started again.

    with TidemarkServer() as server:
        answer = call(server.base_url, "POST", "/v1/events", json={"events": [...]})

It listens on one free port of 127.0.0.1 for as long as the object lives, keeps its state in a
directory of its own, and is gone when the test process is, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.services.nursery import Forked, shared_nursery
from tests.services.ports import free_port
from tidemark.config.sample import sample_text

STARTED_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 30.0
POLL_S: Final = 0.02
OTHER_PORTS: Final = 3

# `tidemark serve`, which the test process holds by its standard input: when the one is gone, so is
# the other.
PROGRAM: Final = """
import os, sys, threading

def outlive_nobody():
    os.read(0, 1)
    os._exit(70)

threading.Thread(target=outlive_nobody, daemon=True).start()

from tidemark.cli import main

sys.argv = ["tidemark", "serve", "--config", sys.argv[1]]
main()
"""


class ServerFailed(Exception):
    """The server did not do as told; the message holds the end of its log."""


class TidemarkServer:
    """One Tidemark process.

    `config` is the text of its `tidemark.yaml` (the sample by default), `env` are environment
    variables for it, such as `{"TIDEMARK_CRASH_AT": "ledger.before_commit"}`, and `ledger_url` is
    where its ledger is, unless it is SQLite in the state directory. Variables of whoever runs the
    tests that begin with `TIDEMARK_` do not reach it. `forked` spares it the time in which it would
    load its modules; where it must load them itself, it is started as any program is.
    """

    def __init__(
        self,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        ledger_url: str | None = None,
        directory: Path | None = None,
        forked: bool = True,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidemark-server-", dir=directory))
        self.config_path = self.directory / "tidemark.yaml"
        self.config_path.write_text(sample_text() if config is None else config, encoding="utf-8")
        self.port = free_port()
        self.env = dict(env or {})
        if ledger_url is not None:
            self.env["TIDEMARK_LEDGER__URL"] = ledger_url
        self._log = self.directory / "server.log"
        self._forked = forked
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self._was_ready = False

    # What a test says about the server.

    def start(self, *, wait: bool = True) -> Self:
        """Returns when `/readyz` says 200; with `wait=False` as soon as the process is there."""
        if self.is_running:
            return self
        self._spawn()
        if not wait:
            return self
        for _ in range(OTHER_PORTS):
            try:
                self.wait_until_ready()
            except ServerFailed:
                # Somebody else took the port between our finding it and our listening on it.
                ended = self.exit_code is not None
                if self._was_ready or not ended or "cannot listen" not in self.log_text():
                    raise
                self.port = free_port()
                self._spawn()
            else:
                return self
        self.wait_until_ready()
        return self

    def wait_until_ready(self, timeout_s: float = STARTED_WITHIN_S) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            ready = self._ready_status() == 200
            if not self.is_running:
                raise ServerFailed(f"Tidemark ended with {self.exit_code}:\n{self.log_tail()}")
            if ready:
                break
            if time.monotonic() > deadline:
                raise ServerFailed(f"Tidemark is not ready in time:\n{self.log_tail()}")
            time.sleep(POLL_S)
        self._was_ready = True

    def stop(self) -> int:
        """SIGTERM, then wait; the exit code."""
        return self.signal_and_wait(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the process, as a crash of it would be."""
        self.signal_and_wait(signal.SIGKILL)

    def restart(self) -> None:
        """Stops if it runs and starts on the same port over the same state."""
        if self.is_running:
            self.stop()
        self.start()

    def signal_and_wait(self, number: signal.Signals) -> int:
        if self._process is None:
            raise ServerFailed("Tidemark was not started")
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return self.wait_for_exit()

    def wait_for_exit(self, timeout_s: float = STOPPED_WITHIN_S) -> int:
        """The exit code of a process that ends by itself, negative if a signal ended it."""
        if self._process is None:
            raise ServerFailed("Tidemark was not started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerFailed(f"Tidemark did not end in time:\n{self.log_tail()}") from None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("Tidemark was not started")
        return self._process.pid

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def websocket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def ledger_file(self) -> Path:
        """The SQLite ledger, where the sample's state directory has it."""
        return self.directory / "tidemark-state" / "ledger.db"

    def log_text(self) -> str:
        """Everything that the server has written to its standard output and error."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def close(self) -> None:
        """Ends the process and removes its state. A second call does nothing."""
        if self.is_running:
            self.kill()
        self._reap()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # How it is done.

    def _spawn(self) -> None:
        self._reap()
        with self._log.open("ab") as log:
            arguments = ["-c", self._program(), str(self.config_path)]
            if self._forked:
                self._process = shared_nursery().fork(
                    arguments, output=log, cwd=self.directory, env=self._environment()
                )
                return
            # A session of its own: Ctrl-C in the terminal is for the tests, which then stop it.
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
                env=self._environment(),
            )

    def _program(self) -> str:
        return PROGRAM

    def _ready_status(self) -> int | None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def _reap(self) -> None:
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEMARK_", "PROMETHEUS_"))
        }
        return {**inherited, "TIDEMARK_HTTP__PORT": str(self.port), **self.env}
