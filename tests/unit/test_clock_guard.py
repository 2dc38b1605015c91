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
from tidemark.ledger.clock_guard import (
    ClockAnchor,
    ClockGuard,
    ClockHold,
    ClockRecord,
    boot_id,
)

Check = Callable[[], None]

LIMIT = 10
PROCESSES = 2


class Book:
    """Where the ledger keeps its record of the clock, for all processes."""

    record = ClockRecord()


class Process:
    """Uses a guard as a store does. `fails` says that the write of a hold is lost."""

    def __init__(
        self, kind: type[ClockGuard], clock: ManualClock, book: Book, machine: str = "one"
    ) -> None:
        self.guard = kind(clock, LIMIT, boot=f"boot of {machine}", host=machine)
        self.book = book
        self.guard.restore(book.record)
        if self.guard.hold_us is None:
            book.record = ClockRecord(self.guard.anchor, book.record.holds)

    def read(self, fails: bool = False) -> int | None:
        """The time, or None while it is refused."""
        try:
            return self.guard.now_us()
        except ClockLeap:
            pass
        record = self.guard.reconsider(self.book.record)
        if record is not None and not fails:
            self.book.record = record
            self.guard.hold_was_stored()
        try:
            return self.guard.now_us()
        except ClockLeap:
            return None

    def confirm(self) -> None:
        record = self.guard.confirmed(self.book.record, self.guard.take_anchor())
        self.book.record = record
        self.guard.restore(record)


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
        clock, book = ManualClock(wall_us=1_000), Book()
        processes = [Process(kind, clock, book) for _ in range(PROCESSES)]
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
                        refused[number] = bool(book.record.holds)
                case Confirm(number):
                    processes[number].confirm()
                    confirmed.append(offset)
                    has_leapt, refused = False, [False] * PROCESSES
                case Restart(number):
                    held = bool(book.record.holds)
                    processes[number] = Process(kind, clock, book)
                    refused[number] = held

    return check


def test_a_leap_is_held_until_it_is_confirmed() -> None:
    a_leap_is_held_until_it_is_confirmed(ClockGuard)()


class TakesAnUnstoredHoldForConfirmed(ClockGuard):
    def reconsider(self, record: ClockRecord) -> ClockRecord | None:
        self.hold_was_stored()
        if not record.holds:
            self.restore(self.confirmed(record, self.take_anchor()))
            return None
        return super().reconsider(record)


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
    def restore(self, record: ClockRecord) -> None:
        if not record.holds:
            super().restore(record)


class IsHeldOnceMoreByEveryProcess(ClockGuard):
    def reconsider(self, record: ClockRecord) -> ClockRecord | None:
        return super().reconsider(ClockRecord(self._anchor, record.holds))


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
    guard.restore(ClockRecord(before))
    assert guard.now_us() == 10**9


def test_a_hold_outlasts_a_boot() -> None:
    guard = ClockGuard(ManualClock(), LIMIT, boot="two", host="here")
    guard.restore(ClockRecord(None, (ClockHold("one", "here", 99),)))
    with pytest.raises(ClockLeap):
        guard.now_us()


@pytest.mark.parametrize(
    ("boot", "is_held"), [("mine", True), ("other", False), (boot_id(), False)]
)
def test_a_hold_is_for_the_machine_that_saw_the_leap(boot: str, is_held: bool) -> None:
    guard = ClockGuard(ManualClock(), LIMIT, boot="mine", host="here")
    guard.restore(ClockRecord(None, (ClockHold(boot, "there", 99),)))
    assert (guard.hold_us is not None) == is_held


def test_a_hold_of_a_boot_without_a_name_is_for_everybody() -> None:
    guard = ClockGuard(ManualClock(), LIMIT, boot="mine", host="here")
    guard.restore(ClockRecord(None, (ClockHold("unknown-1", "there", 99),)))
    assert guard.hold_us == 99


def test_a_confirmation_on_another_machine_does_not_end_a_hold() -> None:
    book, wrong, right = Book(), ManualClock(), ManualClock()
    held = Process(ClockGuard, wrong, book, "one")
    other = Process(ClockGuard, right, book, "two")
    wrong.step(LIMIT + 1)
    assert held.read() is None
    assert other.read() == right.wall_us()
    other.confirm()
    assert held.read() is None
    with pytest.raises(ClockLeap) as caught:
        held.guard.now_us()
    assert "on this machine" in caught.value.hint
    assert Process(ClockGuard, wrong, book, "one").read() is None
    assert Process(ClockGuard, right, book, "two").read() == right.wall_us()
    held.confirm()
    assert held.read() == wrong.wall_us()


def test_two_machines_are_held_each_for_itself() -> None:
    book, clock = Book(), ManualClock()
    one, two = (Process(ClockGuard, clock, book, machine) for machine in ("one", "two"))
    clock.step(LIMIT + 1)
    assert (one.read(), two.read()) == (None, None)
    one.confirm()
    assert (one.read(), two.read()) == (clock.wall_us(), None)
    assert Process(ClockGuard, clock, book, "two").read() is None


def test_a_machine_of_the_same_name_does_not_confirm_for_another() -> None:
    book, clock = Book(), ManualClock()
    held = Process(ClockGuard, clock, book)
    clock.step(LIMIT + 1)
    assert held.read() is None
    twin = ClockGuard(ManualClock(), LIMIT, boot="another", host="one")
    book.record = twin.confirmed(book.record, twin.take_anchor())
    assert book.record.holds == ()
    assert held.read() is None
    assert book.record.holds


def test_a_record_is_kept_as_texts() -> None:
    anchor = ClockGuard(ManualClock(), LIMIT, boot="boot").anchor
    for record in (ClockRecord(), ClockRecord(anchor, (ClockHold("boot", "here", 7),))):
        assert ClockRecord.from_texts(*record.texts()) == record
    assert ClockRecord().texts() == (None, None)


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
