"""Holds ingest when the wall clock leaps forward, because order can never be taken back.

A clock that jumps back is harmless: `received_at` goes on from the last commit. One that jumps
forward would stamp the future into the ledger for good, so a step of more than the limit beyond the
elapsed clock stops ingest until an operator says that the new time is right.
"""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import ClockLeap


class ClockAnchor(msgspec.Struct, frozen=True):
    """A pair of readings that later readings are judged by; `boot` names the boot they belong to."""

    boot: str
    wall_us: int
    elapsed_us: int


class ClockGuard:
    """Reads the wall clock and refuses a leap. A hold survives restarts through the ledger."""

    def __init__(self, clock: Clock, limit_us: int, *, boot: str | None = None) -> None:
        self._clock = clock
        self._limit_us = limit_us
        self._boot = boot_id() if boot is None else boot
        self._anchor = self.take_anchor()
        self.hold_us: int | None = None

    def take_anchor(self) -> ClockAnchor:
        return ClockAnchor(self._boot, self._clock.wall_us(), self._clock.elapsed_us())

    def restore(self, anchor: ClockAnchor | None) -> None:
        """Judge by the readings of an earlier process, if this is still the same boot."""
        if anchor is not None and anchor.boot == self._boot:
            self._anchor = anchor

    @property
    def anchor(self) -> ClockAnchor:
        return self._anchor

    def now_us(self) -> int:
        """The wall clock, or `ClockLeap` while ingest is held."""
        wall_us = self._clock.wall_us()
        if self.hold_us is None:
            elapsed_us = self._clock.elapsed_us() - self._anchor.elapsed_us
            leap_us = wall_us - self._anchor.wall_us - elapsed_us
            if leap_us <= self._limit_us:
                return wall_us
            self.hold_us = leap_us
        raise leap_error(self.hold_us)

    def confirm(self) -> None:
        """The operator says that the clock is right as it is now."""
        self._anchor = self.take_anchor()
        self.hold_us = None


def leap_error(leap_us: int) -> ClockLeap:
    seconds = leap_us // MICROS_PER_SECOND
    return ClockLeap(
        f"the wall clock leapt forward by {seconds} s; ingest is held",
        hint="Set the clock right, or confirm that it is right with `tidemark confirm-clock` "
        "(or POST /admin/clock/confirm). Nothing sent meanwhile is stored; senders may retry.",
    )


def boot_id() -> str:
    """Names the current boot, so that elapsed clocks of two boots are never compared."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text().strip()
    except OSError:
        # Without a boot id an earlier process' anchor is never taken over.
        return f"{platform.node()}-unknown"
