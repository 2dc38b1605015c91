"""The guarded leap forward, for any run of steps, restarts, failures and confirmations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.events import ManualClock
from tests.unit.planted import assert_catches
from tidemark.errors import ClockLeap
from tidemark.ledger.clock_guard import ClockAnchor, ClockGuard, boot_id, decode_anchor

Check = Callable[[], None]

LIMIT = 10
PROCESSES = 2


class Record:
    """What the ledger keeps of the clock, for all processes."""

    anchor: ClockAnchor | None = None
    hold_us: int | None = None


class Process:
    """Uses a guard as a store does. `fails` says that the write of a hold is lost."""

    def __init__(self, kind: type[ClockGuard], clock: ManualClock, record: Record) -> None:
        self.guard = kind(clock, LIMIT, boot="boot")
        self.record = record
        self.guard.restore(record.anchor, record.hold_us)
        if record.hold_us is None:
            record.anchor = self.guard.anchor

    def read(self, fails: bool) -> int | None:
        """The time, or None while it is refused."""
        try:
            return self.guard.now_us()
        except ClockLeap:
            pass
        leap_us = self.guard.reconsider(self.record.anchor, self.record.hold_us)
        if leap_us is not None and not fails:
            self.record.hold_us = leap_us
            self.guard.hold_was_stored()
        try:
            return self.guard.now_us()
        except ClockLeap:
            return None

    def confirm(self) -> None:
        anchor = self.guard.take_anchor()
        self.record.anchor, self.record.hold_us = anchor, None
        self.guard.confirm(anchor)


class Pass(msgspec.Struct, frozen=True):
    us: int


class Step(msgspec.Struct, frozen=True):
    us: int


class Read(msgspec.Struct, frozen=True):
    process: int
    fails: bool


class Confirm(msgspec.Struct, frozen=True):
    process: int


class Restart(msgspec.Struct, frozen=True):
    process: int


Action: TypeAlias = Pass | Step | Read | Confirm | Restart

NUMBERS = st.integers(0, PROCESSES - 1)
ACTIONS = st.one_of(
    st.builds(Pass, st.integers(0, 50)),
    st.builds(Step, st.sampled_from([-12, -11, -6, -1, 1, 6, 11, 12])),
    # Most of what happens is reading.
    st.builds(Read, NUMBERS, st.booleans()),
    st.builds(Read, NUMBERS, st.just(False)),
    st.builds(Read, st.just(0), st.just(False)),
    st.builds(Confirm, NUMBERS),
    st.builds(Restart, NUMBERS),
)


def a_leap_is_held_until_it_is_confirmed(kind: type[ClockGuard]) -> Check:
    @given(st.lists(ACTIONS, min_size=2, max_size=25))
    def check(actions: list[Action]) -> None:
        clock, record = ManualClock(wall_us=1_000), Record()
        processes = [Process(kind, clock, record) for _ in range(PROCESSES)]
        offset = 0  # how far the wall clock was stepped
        confirmed = [0]  # where an operator said that it is right
        has_leapt = False  # whether it was ever beyond the limit since then
        refused = [False] * PROCESSES
        for action in actions:
            match action:
                case Pass(us):
                    clock.pass_time(us)
                case Step(us):
                    clock.step(us)
                    offset += us
                    has_leapt |= offset - confirmed[-1] > LIMIT
                case Read(number, fails):
                    got = processes[number].read(fails)
                    if got is not None:
                        assert got == clock.wall_us()
                        assert offset - max(confirmed) <= LIMIT, "a leap was let through"
                        assert not refused[number], "a refusal ended without a confirmation"
                    else:
                        assert has_leapt, "time was refused without a leap"
                        # A leap that could not be stored is over when the clock is right again.
                        refused[number] = record.hold_us is not None
                case Confirm(number):
                    processes[number].confirm()
                    confirmed.append(offset)
                    has_leapt, refused = False, [False] * PROCESSES
                case Restart(number):
                    held = record.hold_us is not None
                    processes[number] = Process(kind, clock, record)
                    refused[number] = held

    return check


def test_a_leap_is_held_until_it_is_confirmed() -> None:
    a_leap_is_held_until_it_is_confirmed(ClockGuard)()


class TakesAnUnstoredHoldForConfirmed(ClockGuard):
    def reconsider(self, anchor: ClockAnchor | None, hold_us: int | None) -> int | None:
        self.hold_was_stored()
        if hold_us is None:
            self.confirm(self.take_anchor())
            return None
        return super().reconsider(anchor, hold_us)


class FollowsTheClockInSmallSteps(ClockGuard):
    def now_us(self) -> int:
        now = super().now_us()
        self._anchor = self.take_anchor()
        return now


class ForgetsWhenTheClockGoesBack(ClockGuard):
    def now_us(self) -> int:
        self.hold_us = None
        return super().now_us()


class ForgetsOverARestart(ClockGuard):
    def restore(self, anchor: ClockAnchor | None, hold_us: int | None) -> None:
        if hold_us is None:
            super().restore(anchor, None)


class IsHeldOnceMoreByEveryProcess(ClockGuard):
    def reconsider(self, anchor: ClockAnchor | None, hold_us: int | None) -> int | None:
        return super().reconsider(self._anchor, hold_us)


class CountsTimeThatPassed(ClockGuard):
    def take_anchor(self) -> ClockAnchor:
        return msgspec.structs.replace(super().take_anchor(), elapsed_us=0)


@pytest.mark.parametrize(
    "broken",
    [
        TakesAnUnstoredHoldForConfirmed,
        FollowsTheClockInSmallSteps,
        ForgetsWhenTheClockGoesBack,
        ForgetsOverARestart,
        IsHeldOnceMoreByEveryProcess,
        CountsTimeThatPassed,
    ],
)
def test_a_guard_with_a_bug_is_caught(broken: type[ClockGuard]) -> None:
    assert_catches(a_leap_is_held_until_it_is_confirmed, broken)


def test_the_limit_itself_is_no_leap() -> None:
    clock = ManualClock()
    guard = ClockGuard(clock, LIMIT, boot="boot")
    clock.step(LIMIT)
    assert guard.now_us() == clock.wall_us()
    clock.step(1)
    with pytest.raises(ClockLeap):
        guard.now_us()


def test_an_anchor_of_another_boot_says_nothing() -> None:
    """The elapsed clock began anew, so the two cannot be compared."""
    before = ClockGuard(ManualClock(wall_us=0, elapsed_us=0), LIMIT, boot="one").anchor
    guard = ClockGuard(ManualClock(wall_us=10**9, elapsed_us=5), LIMIT, boot="two")
    guard.restore(before, None)
    assert guard.now_us() == 10**9


def test_a_hold_outlasts_a_boot() -> None:
    guard = ClockGuard(ManualClock(), LIMIT, boot="two")
    guard.restore(None, 99)
    with pytest.raises(ClockLeap):
        guard.now_us()


def test_an_anchor_is_kept_as_text() -> None:
    guard = ClockGuard(ManualClock(), LIMIT, boot="boot")
    assert decode_anchor(msgspec.json.encode(guard.anchor).decode()) == guard.anchor
    assert decode_anchor(None) is None


def test_a_boot_has_one_name_if_the_system_gives_one() -> None:
    assert boot_id()


def test_without_a_name_every_process_is_a_boot_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or an anchor from before a restart of the machine would hold ingest for nothing."""

    def unreadable(path: object) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr("pathlib.Path.read_text", unreadable)
    assert boot_id() != boot_id()
