"""The only module that reads a clock. Everything else is handed one."""

from __future__ import annotations

import time
from typing import Protocol

MICROS_PER_SECOND = 1_000_000


class Clock(Protocol):
    """Wall time for stamping, elapsed time for judging the wall time. Both in microseconds."""

    def wall_us(self) -> int: ...

    def elapsed_us(self) -> int: ...


class SystemClock:
    """The machine's clocks. Suspended time counts as elapsed: a laptop that slept made no leap."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def elapsed_us(self) -> int:
        return time.clock_gettime_ns(_ELAPSED) // 1000


# CLOCK_BOOTTIME is Linux; elsewhere the monotonic clock is the nearest thing.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
