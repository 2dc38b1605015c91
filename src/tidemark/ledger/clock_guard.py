"""Holds ingest when the wall clock leaps forward, because order can never be taken back.

A clock that jumps back is harmless: `received_at` goes on from the last commit. One that jumps
forward would stamp the future into the ledger for good, so a step of more than the limit beyond the
elapsed clock stops ingest until an operator says that the new time is right.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import ClockLeap

UNKNOWN_BOOT: Final = "unknown"


class ClockAnchor(msgspec.Struct, frozen=True):
    """Two readings by which later ones are judged; `boot` names the boot they belong to."""

    boot: str
    wall_us: int
    elapsed_us: int


class ClockHold(msgspec.Struct, frozen=True):
    """A leap that a process saw, and on which machine."""

    boot: str
    host: str
    leap_us: int


class ClockRecord(msgspec.Struct, frozen=True):
    """What the ledger keeps for all processes, on however many machines."""

    anchor: ClockAnchor | None = None
    holds: tuple[ClockHold, ...] = ()

    @classmethod
    def from_texts(cls, anchor: str | None, holds: str | None) -> ClockRecord:
        return cls(
            None if anchor is None else msgspec.json.decode(anchor, type=ClockAnchor),
            () if holds is None else msgspec.json.decode(holds, type=tuple[ClockHold, ...]),
        )

    def texts(self) -> tuple[str | None, str | None]:
        return (
            None if self.anchor is None else msgspec.json.encode(self.anchor).decode(),
            msgspec.json.encode(self.holds).decode() if self.holds else None,
        )


class ClockGuard:
    """Reads the wall clock and refuses a leap.

    The ledger holds the anchor and the holds, so a hold survives restarts and one confirmation is
    enough for all processes of a machine. A store asks `now_us`; while that raises, it reads the
    record under the ledger's lock, lets the guard `reconsider`, writes the record that it may get
    back, and then says so with `hold_was_stored`.
    """

    def __init__(
        self, clock: Clock, limit_us: int, *, boot: str | None = None, host: str | None = None
    ) -> None:
        self._clock = clock
        self._limit_us = limit_us
        self._boot = boot_id() if boot is None else boot
        self._host = socket.gethostname() if host is None else host
        self._anchor = self.take_anchor()
        self._hold_is_stored = False
        self.hold_us: int | None = None

    def take_anchor(self) -> ClockAnchor:
        return ClockAnchor(self._boot, self._clock.wall_us(), self._clock.elapsed_us())

    def restore(self, record: ClockRecord) -> None:
        """Go on where earlier processes of this machine were.

        An anchor counts for the boot that it is from. A hold outlasts its boot.
        """
        if record.anchor is not None and record.anchor.boot == self._boot:
            self._anchor = record.anchor
        ours = [hold for hold in record.holds if self._concerns_us(hold)]
        self.hold_us = ours[0].leap_us if ours else None
        self._hold_is_stored = bool(ours)

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

    def reconsider(self, record: ClockRecord) -> ClockRecord | None:
        """Judge anew by what the ledger says; gives what is to be stored instead, if anything."""
        was_stored, held_us = self._hold_is_stored, self.hold_us
        self.restore(record)
        if self._hold_is_stored:
            return None
        if was_stored:
            # It was held and is not any more: an operator has confirmed a clock.
            if record.anchor is None or not self._is_this_boot(record.anchor.boot):
                # Not this one: a machine of the same name, perhaps.
                self.hold_us = held_us
                return self._with_hold(record)
            if record.anchor.boot != self._boot:
                self._anchor = self.take_anchor()
        with suppress(ClockLeap):
            self.now_us()
        return None if self.hold_us is None else self._with_hold(record)

    def hold_was_stored(self) -> None:
        """From now on a ledger without the hold means that an operator has confirmed the time."""
        self._hold_is_stored = True

    def confirmed(self, record: ClockRecord, anchor: ClockAnchor) -> ClockRecord:
        """What to store when an operator says that the clock was right at this anchor."""
        others = (hold for hold in record.holds if not self._concerns_us(hold))
        return ClockRecord(anchor, tuple(others))

    def _with_hold(self, record: ClockRecord) -> ClockRecord:
        assert self.hold_us is not None
        hold = ClockHold(self._boot, self._host, self.hold_us)
        return ClockRecord(record.anchor, (*record.holds, hold))

    def _concerns_us(self, hold: ClockHold) -> bool:
        return self._is_this_boot(hold.boot) or hold.host == self._host or _is_unknown(hold.boot)

    def _is_this_boot(self, boot: str) -> bool:
        return boot == self._boot or (_is_unknown(boot) and _is_unknown(self._boot))


def leap_error(leap_us: int) -> ClockLeap:
    seconds = leap_us // MICROS_PER_SECOND
    return ClockLeap(
        f"the wall clock leapt forward by {seconds} s; ingest is held",
        hint="Look at the clock, set it right if it is wrong, then confirm it on this machine with "
        "`tidemark confirm-clock` (or POST /admin/clock/confirm to it). Nothing sent meanwhile is "
        "stored; senders may retry.",
    )


def boot_id() -> str:
    """Names the current boot, so that elapsed clocks of two boots are never compared."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text().strip()
    except OSError:
        # Without a boot id an earlier process' anchor is never taken over.
        return f"{UNKNOWN_BOOT}-{secrets.token_hex(8)}"


def _is_unknown(boot: str) -> bool:
    return boot.startswith(UNKNOWN_BOOT)
