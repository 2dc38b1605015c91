"""The process behind `nursery`: loads Tidemark, then forks a child for each request.

It has one thread and opens nothing, so a child is what a new Python would be that has just imported
all of this. It ends when whoever asks is gone.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
from importlib import import_module
from typing import Final, NamedTuple

import msgspec

from tidemark import crash

# What commands come to need, also late: `--help` does not wait for it, and so it is not loaded with
# the program.
LOADED: Final = (
    "tidemark.cli.program",
    "tidemark.cli.configuring",
    "tidemark.cli.importing",
    "tidemark.cli.serving",
    "tidemark.app.server",
    "uvloop",
)
LENGTH: Final = struct.Struct("!Q")
# A process, and later how it ended.
REPORT: Final = struct.Struct("!q")
DESCRIPTORS: Final = 3


class Request(msgspec.Struct, frozen=True):
    """`python ARGUMENTS`, where and with what environment."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]


class Asked(NamedTuple):
    """A request, and what came with it."""

    request: Request
    stdin: int
    output: int
    reports: int


def main(control: socket.socket) -> None:
    for name in LOADED:
        import_module(name)
    asked = _fork_until_asked_no_more(control)
    if asked is not None:
        _become(asked)


def _fork_until_asked_no_more(control: socket.socket) -> Asked | None:
    """Returns in each child with what it is to be, and in this process at the end with nothing."""
    ended, has_ended = os.pipe()
    for descriptor in (ended, has_ended):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(has_ended)
    # Only for a signal with a handler something is written there.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    reports: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([control.fileno(), ended], [], [])
        if ended in readable:
            os.read(ended, 4096)
            _report_the_ended(reports)
        if control.fileno() in readable:
            asked = _receive(control)
            if asked is None:
                return None
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                control.detach()
                return asked
            reports[child] = asked.reports
            _report(asked.reports, child)
            for descriptor in (asked.stdin, asked.output):
                os.close(descriptor)


def _receive(control: socket.socket) -> Asked | None:
    """The next request, or nothing when there will be none."""
    head, descriptors, _, _ = socket.recv_fds(control, LENGTH.size, DESCRIPTORS)
    if not head:
        return None
    (length,) = LENGTH.unpack(head)
    text = control.recv(length, socket.MSG_WAITALL)
    return Asked(msgspec.json.decode(text, type=Request), *descriptors)


def _report_the_ended(reports: dict[int, int]) -> None:
    while reports:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        descriptor = reports.pop(child)
        _report(descriptor, os.waitstatus_to_exitcode(status))
        os.close(descriptor)


def _report(descriptor: int, number: int) -> None:
    # Whoever asked may not want to know any more.
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, REPORT.pack(number))


def _become(asked: Asked) -> None:
    """Be the process that was asked for, in a session of its own."""
    os.setsid()
    for standard, given in enumerate((asked.stdin, asked.output, asked.output)):
        os.dup2(given, standard)
    # Also what leads to the process that asked, and to brothers and sisters.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    request = asked.request
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    crash.arm()
    option, program, *arguments = request.arguments
    sys.argv = [option, *arguments]
    if option == "-c":
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
