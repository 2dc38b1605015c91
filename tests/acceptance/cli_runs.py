"""The installed program `tidemark`, run as a user runs it: in a pipe or on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = Path(sys.executable).with_name("tidemark")
# A bound for what hangs; Spark on a busy machine takes its time.
WAIT_S: Final = 180.0

# What Java compiles well, it compiles slowly, and tests have little for it to do.
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Ran:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        [line] = self.out.splitlines()
        return json.loads(line)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without what would configure Tidemark, on a terminal that can do colours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        own.pop(name, None)
    return {**own, "TERM": "xterm-256color", "JAVA_TOOL_OPTIONS": QUICK_JAVA, **(env or {})}


def tidemark(
    *args: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str | bytes = b"",
) -> Ran:
    """Run a command to its end, in pipes."""
    done = subprocess.run(
        [PROGRAM, *map(str, args)],
        cwd=cwd,
        env=environment(env),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    ran = Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in ran.err, ran.err
    return ran


@contextlib.contextmanager
def started(
    *args: object, cwd: Path, env: Mapping[str, str] | None = None, stdin: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on while the test does, in pipes; killed if it outlives the test."""
    process = subprocess.Popen(
        [PROGRAM, *map(str, args)],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> Ran:
    """Send a signal and wait for the end."""
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


def ended(process: subprocess.Popen[str]) -> Ran:
    """Wait for a command that ends by itself."""
    out, err = process.communicate(timeout=WAIT_S)
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


def on_terminal(*args: object, cwd: Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command with its output on a terminal; `out` is all that appeared there."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [PROGRAM, *map(str, args)],
            cwd=cwd,
            env=environment({"COLUMNS": "160", **(env or {})}),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            shown = _read_terminal(ours)
            return Ran(process.wait(WAIT_S), shown.replace("\r\n", "\n"), "")
    finally:
        os.close(ours)


def _read_terminal(descriptor: int) -> str:
    shown = b""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 1)[0]:
            continue
        try:
            content = os.read(descriptor, 65_536)
        except OSError:
            # Linux says so when the last writer is gone.
            break
        if not content:
            break
        shown += content
    return shown.decode()


def without_escapes(text: str) -> str:
    return _ESCAPES.sub("", text)


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
