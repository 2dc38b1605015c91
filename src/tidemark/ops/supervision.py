"""A process that belongs to this one: started again when it dies, and never left behind."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Final

from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.ops.workers import WORKER_VARIABLE

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
# One that ran for so long had no fault at its start.
RAN_WELL_US: Final = 60 * MICROS_PER_SECOND
STOP_TIMEOUT_S: Final = 8.0
# With these a command has said what is wrong, and it would be wrong again.
TOLD_CODES: Final = frozenset({1, 2})


class Supervised:
    """One child. It holds a pipe that can be read when this process is gone, and then goes too."""

    def __init__(self, argv: Sequence[str], name: str, on_given_up: Callable[[int], None]) -> None:
        """`on_given_up` is told the exit code of a child that is not started again."""
        self._argv = list(argv)
        self.name = name
        self._on_given_up = on_given_up
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the child, if it was started. When this returns it is gone."""
        with self._lock:
            self._stopping.set()
            child = self._child
        if child is not None:
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                log.error("the %s did not stop; killing it", self.name)
                child.kill()
                child.wait()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        lifeline, held = os.pipe()
        try:
            self._run(lifeline)
        finally:
            for descriptor in (lifeline, held):
                os.close(descriptor)

    def _run(self, lifeline: int) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began_us = self._clock.elapsed_us()
            child = self._spawn(lifeline)
            if child is None:
                return
            code = child.wait()
            if self._stopping.is_set():
                return
            if code in TOLD_CODES:
                self._on_given_up(code)
                return
            if self._clock.elapsed_us() - began_us >= RAN_WELL_US:
                pause_s = FIRST_PAUSE_S
            log.error(
                "the %s ended with %s; it is started again in %.0f s", self.name, code, pause_s
            )
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _spawn(self, lifeline: int) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            self._child = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {WORKER_VARIABLE: str(lifeline)},
                pass_fds=(lifeline,),
                # Ctrl-C reaches this process only, which stops the child in order.
                process_group=0,
            )
            return self._child
