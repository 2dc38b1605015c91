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
import threading
import time
from types import FrameType

log = logging.getLogger(__name__)

WORKER_VARIABLE = "TIDEMARK_WORKER"
RESTART_PAUSE_S = 1.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.2


def inherited_socket() -> socket.socket | None:
    """The socket that a parent of several workers hands to this process, if it does."""
    handed = os.environ.get(WORKER_VARIABLE)
    if handed is None:
        return None
    listener, lifeline = map(int, handed.split(":"))
    _watch_parent(lifeline)
    return socket.socket(fileno=listener)


def follow_parent() -> bool:
    """Whether a parent started this process for itself; then this process ends with it."""
    handed = os.environ.get(WORKER_VARIABLE)
    if handed is None:
        return False
    _watch_parent(int(handed))
    return True


def _watch_parent(lifeline: int) -> None:
    threading.Thread(target=_outlive_nobody, args=(lifeline,), daemon=True).start()


def _outlive_nobody(lifeline: int) -> None:
    """Stop this process as the parent would, when the parent is gone without having done so.

    Nobody writes to the pipe: it can be read when its other end, which only the parent has, is
    closed. A worker that went on would keep the port from the next parent.
    """
    os.read(lifeline, 1)
    log.error("the parent of this worker is gone; stopping")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGKILL)


def run_workers(argv: list[str], listener: socket.socket, count: int) -> int:
    """Run `count` copies of a command that serves the listener; restart those that die.

    Returns when told to stop by SIGINT or SIGTERM and all copies are gone: 0, or 1 if one had to be
    killed.
    """
    # Only this command needs it, and every command would wait for it to be loaded.
    from prometheus_client.multiprocess import mark_process_dead

    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with tempfile.TemporaryDirectory(prefix="tidemark-metrics-") as metrics_dir:
        lifeline, held = os.pipe()
        handed = (listener.fileno(), lifeline)
        environment = os.environ | {
            WORKER_VARIABLE: ":".join(map(str, handed)),
            "PROMETHEUS_MULTIPROC_DIR": metrics_dir,
        }

        def start() -> subprocess.Popen[bytes]:
            # A group of its own, so that Ctrl-C reaches the parent only, which stops them in order.
            return subprocess.Popen(argv, env=environment, pass_fds=handed, process_group=0)

        workers = [start() for _ in range(count)]
        while not stopping:
            for index, worker in enumerate(workers):
                if worker.poll() is not None and not stopping:
                    log.error(
                        "worker %d ended with %s; starting another", worker.pid, worker.returncode
                    )
                    # Its queue is gone with it and must not be counted any more.
                    mark_process_dead(worker.pid, metrics_dir)  # type: ignore[no-untyped-call]
                    time.sleep(RESTART_PAUSE_S)
                    workers[index] = start()
            time.sleep(POLL_S)
        code = _stop_all(workers)
        for descriptor in (lifeline, held):
            os.close(descriptor)
        return code


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
