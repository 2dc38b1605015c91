"""Holds ingest when the wall clock leaps forward, because order can never be taken back.

A clock that jumps back is harmless: `received_at` goes on from the last commit. One that jumps
forward would stamp the future into the ledger for good, so a step of more than the limit beyond the
elapsed clock stops ingest until an operator says that the new time is right.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import ClockLeap


class ClockAnchor(msgspec.Struct, frozen=True):
    """Two readings by which later ones are judged; `boot` names the boot they belong to."""

    boot: str
    wall_us: int
    elapsed_us: int


class ClockGuard:
    """Reads the wall clock and refuses a leap.

    The ledger holds the anchor and the hold for all processes, so a hold survives restarts and one
    confirmation is enough. A store asks `now_us`; while that raises, it reads both under the
    ledger's lock, lets the guard `reconsider`, writes the hold that it may get back, and then says
    so with `hold_was_stored`.
    """

    def __init__(self, clock: Clock, limit_us: int, *, boot: str | None = None) -> None:
        self._clock = clock
        self._limit_us = limit_us
        self._boot = boot_id() if boot is None else boot
        self._anchor = self.take_anchor()
        self._hold_is_stored = False
        self.hold_us: int | None = None

    def take_anchor(self) -> ClockAnchor:
        return ClockAnchor(self._boot, self._clock.wall_us(), self._clock.elapsed_us())

    def restore(self, anchor: ClockAnchor | None, hold_us: int | None) -> None:
        """Go on where earlier processes were. An anchor counts for the boot that it is from."""
        if anchor is not None and anchor.boot == self._boot:
            self._anchor = anchor
        self.hold_us = hold_us
        self._hold_is_stored = hold_us is not None

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

    def reconsider(self, anchor: ClockAnchor | None, hold_us: int | None) -> int | None:
        """Judge anew by what the ledger says; gives the hold that is still to be stored, if any."""
        if hold_us is None and self._hold_is_stored:
            # It was held and is not any more: an operator has confirmed the time.
            self.confirm(self.take_anchor())
        self.restore(anchor, hold_us)
        if hold_us is None:
            with suppress(ClockLeap):
                self.now_us()
            return self.hold_us
        return None

    def hold_was_stored(self) -> None:
        """From now on a ledger without a hold means that an operator has confirmed the time."""
        self._hold_is_stored = True

    def confirm(self, anchor: ClockAnchor) -> None:
        """The operator says that the clock was right when the anchor was taken."""
        self.restore(anchor, None)


def decode_anchor(text: str | None) -> ClockAnchor | None:
    """The anchor as the ledger keeps it."""
    return None if text is None else msgspec.json.decode(text, type=ClockAnchor)


def leap_error(leap_us: int) -> ClockLeap:
    seconds = leap_us // MICROS_PER_SECOND
    return ClockLeap(
        f"the wall clock leapt forward by {seconds} s; ingest is held",
        hint="Look at the clock, set it right if it is wrong, then confirm it with `tidemark "
        "confirm-clock` (or POST /admin/clock/confirm). Nothing sent meanwhile is stored; senders "
        "may retry.",
    )


def boot_id() -> str:
    """Names the current boot, so that elapsed clocks of two boots are never compared."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text().strip()
    except OSError:
        # Without a boot id an earlier process' anchor is never taken over.
        return f"unknown-{secrets.token_hex(8)}"
