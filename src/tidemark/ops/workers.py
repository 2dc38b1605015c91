"""Several API processes on one port: the parent holds the socket, the children serve it.

The order of events does not suffer: the ledger's lock is what orders, not the process.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import tempfile
import time
from types import FrameType

log = logging.getLogger(__name__)

WORKER_VARIABLE = "TIDEMARK_WORKER"
RESTART_PAUSE_S = 1.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.2


def inherited_socket() -> socket.socket | None:
    """The socket that a parent of several workers hands to this process, if it does."""
    descriptor = os.environ.get(WORKER_VARIABLE)
    return None if descriptor is None else socket.socket(fileno=int(descriptor))


def run_workers(argv: list[str], listener: socket.socket, count: int) -> int:
    """Run `count` copies of a command that serves the listener; restart those that die.

    Returns when told to stop by SIGINT or SIGTERM and all copies are gone: 0, or 1 if one had to be
    killed.
    """
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with tempfile.TemporaryDirectory(prefix="tidemark-metrics-") as metrics_dir:
        environment = os.environ | {
            WORKER_VARIABLE: str(listener.fileno()),
            "PROMETHEUS_MULTIPROC_DIR": metrics_dir,
        }

        def start() -> subprocess.Popen[bytes]:
            # A group of its own, so that Ctrl-C reaches the parent only, which stops them in order.
            return subprocess.Popen(
                argv, env=environment, pass_fds=[listener.fileno()], process_group=0
            )

        workers = [start() for _ in range(count)]
        while not stopping:
            for index, worker in enumerate(workers):
                if worker.poll() is not None and not stopping:
                    log.error(
                        "worker %d ended with %s; starting another", worker.pid, worker.returncode
                    )
                    time.sleep(RESTART_PAUSE_S)
                    workers[index] = start()
            time.sleep(POLL_S)
        return _stop_all(workers)


def _stop_all(workers: list[subprocess.Popen[bytes]]) -> int:
    for worker in workers:
        worker.terminate()
    code = 0
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for worker in workers:
        try:
            worker.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.error("worker %d did not stop; killing it", worker.pid)
            worker.kill()
            code = 1
    return code
