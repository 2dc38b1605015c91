"""Processes that are forked from one that has loaded Tidemark are like any other process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.services.nursery import Forked, Nursery, NurseryFailed, shared_nursery
from tests.services.processes import is_running

# What a process knows of itself.
TELL = """
import json, os, signal, sys, threading

def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True

print(json.dumps({
    "pid": os.getpid(),
    "session": os.getsid(0),
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "arguments": sys.argv,
    "threads": threading.active_count(),
    "open": [number for number in range(100) if is_open(number)],
    "at_end_of_child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "loaded": "tidemark.app.server" in sys.modules,
}))
"""
WAIT = "import sys; sys.stdin.read()"


@pytest.fixture
def output() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def forked(output: IO[bytes], tmp_path: Path, program: str, *arguments: str, **env: str) -> Forked:
    return shared_nursery().fork(["-c", program, *arguments], output=output, cwd=tmp_path, env=env)


def said(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode()


def ended(process: Forked) -> int:
    process.stdin.close()
    return process.wait(30)


def test_it_has_what_it_was_given_and_nothing_else(output: IO[bytes], tmp_path: Path) -> None:
    brother = forked(output, tmp_path, WAIT)
    process = forked(output, tmp_path, TELL, "one", "two", ONLY="this")
    assert ended(process) == 0
    assert ended(brother) == 0
    assert json.loads(said(output)) == {
        "pid": process.pid,
        "session": process.pid,
        "directory": str(tmp_path),
        "environment": {"ONLY": "this"},
        "arguments": ["-c", "one", "two"],
        "threads": 1,
        "open": [0, 1, 2],
        "at_end_of_child": True,
        "loaded": True,
    }


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("raise RuntimeError", 1),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_how_it_ended_is_known(output: IO[bytes], tmp_path: Path, program: str, code: int) -> None:
    assert ended(forked(output, tmp_path, program)) == code


def test_a_module_is_run_as_python_would(output: IO[bytes], tmp_path: Path) -> None:
    arguments = ["-m", "tidemark", "--version"]
    process = shared_nursery().fork(arguments, output=output, cwd=tmp_path, env={})
    assert ended(process) == 0
    assert said(output).startswith("tidemark ")


def test_what_was_buffered_is_written_and_what_was_registered_is_run(
    output: IO[bytes], tmp_path: Path
) -> None:
    program = "import atexit; atexit.register(print, 'last'); print('first')"
    assert ended(forked(output, tmp_path, program)) == 0
    assert said(output) == "first\nlast\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_can_be_stopped_and_killed(
    output: IO[bytes], tmp_path: Path, number: signal.Signals
) -> None:
    process = forked(output, tmp_path, WAIT)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    assert process.wait(30) == -number
    assert not is_running(process.pid)
    # Somebody else may have its number by now.
    process.kill()
    assert ended(process) == process.poll() == process.returncode == -number


def test_each_is_armed_by_its_own_environment(output: IO[bytes], tmp_path: Path) -> None:
    program = "from tidemark.crash import crash_point; crash_point('ledger.locked')"
    for _ in range(2):
        armed = forked(output, tmp_path, program, TIDEMARK_CRASH_AT="ledger.locked")
        assert ended(armed) == -signal.SIGKILL
        assert ended(forked(output, tmp_path, program)) == 0
    wrong = forked(output, tmp_path, program, TIDEMARK_CRASH_AT="no.such.point")
    assert ended(wrong) == 1
    assert "no crash point" in said(output)


def test_when_the_forking_process_is_gone_nobody_waits_for_it(
    output: IO[bytes], tmp_path: Path
) -> None:
    nursery = Nursery()
    process = nursery.fork(["-c", WAIT], output=output, cwd=tmp_path, env={})
    os.kill(nursery.pid, signal.SIGKILL)
    with pytest.raises(NurseryFailed):
        process.wait(30)
    process.stdin.close()
    nursery.close()
