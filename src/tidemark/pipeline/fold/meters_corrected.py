"""A meter's owners folded anew from all of their facts, because some of those were corrected.

An original that was ever voided is void; else the amend with the highest sequence says what it is;
else it is what was sent. Only the step from what it was before a commit to what it is after it
matters. In time, the counted set changes; late, it stays, and adjustments take the old value back
and add the new one. So everything follows from the ledger, and nothing need be remembered for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.fold.meter_rows import (
    Member,
    Membership,
    MeterRows,
    ReadRows,
    members_of,
)
from tidemark.pipeline.fold.parts import Part
from tidemark.pipeline.fold.rules import Fact, Slot, facts_in_order, late_reason
from tidemark.pipeline.fold.tallies import Counter, Order, Tally, to_billionths

_Name: TypeAlias = tuple[str, str]
"""Tenant and idempotency key."""


def fold_corrected(
    meter: MeterDefinition, table: pa.Table, start: int, read: ReadRows, *, logged: bool
) -> list[Part]:
    """What changes after `start`, from all facts of some owners up to the end of the batch."""
    ordered = facts_in_order(table)
    rows = MeterRows(meter, read, logged=logged)
    rows.load({fact.slot for fact in ordered if fact.period_start is not None})
    fold = _Fold(rows, start)
    for received_at, commit in groupby(ordered, key=lambda fact: fact.received_at):
        fold.commit(received_at, list(commit))
    fold.reach(None)
    return fold.parts()


class _ExactTally(Tally):
    """Aggregates of a set that facts can leave."""

    __slots__ = ("_facts", "_stale")

    def __init__(self) -> None:
        super().__init__()
        self._facts: dict[int, tuple[int, Order]] = {}
        self._stale = False

    def add(self, value: int, order: Order) -> None:
        self._facts[order.sequence] = (value, order)
        super().add(value, order)

    def remove(self, sequence: int) -> None:
        value, order = self._facts.pop(sequence)
        self.total -= value
        self.count -= 1
        if self.members is not None:
            self.members[value] -= 1
            if not self.members[value]:
                del self.members[value]
                self.distinct -= 1
        if value in (self.maximum, self.minimum) or order == self.last_order:
            self._stale = True

    def settle(self) -> None:
        """Finds the extremes anew, if one of them has left."""
        if not self._stale:
            return
        self._stale = False
        values = [value for value, _ in self._facts.values()]
        self.maximum = max(values, default=None)
        self.minimum = min(values, default=None)
        last = max(self._facts.values(), key=lambda fact: fact[1], default=None)
        self.last, self.last_order = last or (None, None)


class _ExactCounter(Counter):
    __slots__ = ()

    counted: _ExactTally
    everything: _ExactTally

    def _tally(self) -> Tally:
        return _ExactTally()


class _Original:
    """An event and what became of it: what of it is counted, and what it is now.

    The two part for ever once it is adjusted.
    """

    __slots__ = ("adjusted", "amends", "counted", "effective", "event", "voids")

    def __init__(self, event: Fact) -> None:
        self.event = event
        self.effective: Fact | None = event if event.value is not None else None
        self.counted: Fact | None = None
        self.adjusted = False
        self.voids: list[Fact] = []
        self.amends: list[Fact] = []

    def deciding(self) -> Fact | None:
        """The correction that says what it is: its first void, or else its last amend."""
        if self.voids:
            return self.voids[0]
        return self.amends[-1] if self.amends else None

    def order(self, fact: Fact) -> Order:
        """An amended fact keeps the original's place among equal times."""
        assert fact.ts is not None
        return Order(fact.ts, self.event.ingress_sequence)


class _Fold:
    def __init__(self, rows: MeterRows, start: int) -> None:
        self._rows = rows
        self._meter = rows.meter
        self._start = start
        self._reached = False
        self._originals: dict[_Name, _Original] = {}
        self._counters: dict[Slot, _ExactCounter] = {}
        self._watermarks: dict[Slot, int | None] = {}
        self._touched: set[Slot] = set()
        self._changed: set[Slot] = set()
        self._members_before: dict[Member, Membership] = {}

    def commit(self, received_at: int, commit: Sequence[Fact]) -> None:
        self.reach(received_at)
        self._watermarks = {}
        self._touched = set()
        corrections: dict[_Name, list[Fact]] = {}
        for fact in commit:
            if fact.target_key is not None:
                name = (fact.tenant_id, fact.target_key)
                corrections.setdefault(name, []).append(fact)
                continue
            original = _Original(fact)
            self._originals[fact.tenant_id, fact.idempotency_key] = original
            if fact.kind == facts.ADJUST:
                self._stand(original)
            elif fact.kind == facts.FACT and fact.value is not None:
                self._take(original, fact)
        for name, new in corrections.items():
            if name in self._originals:
                self._correct(self._originals[name], new)
        if received_at > self._start:
            for slot in self._touched:
                self._record(slot, received_at)

    def reach(self, received_at: int | None) -> None:
        """Takes down how things stood at the start, when the first commit after it comes."""
        if self._reached or (received_at is not None and received_at <= self._start):
            return
        self._reached = True
        for slot, counter in self._counters.items():
            counter.counted.settle()
            counter.everything.settle()
            self._rows.start_from(slot, counter)
        self._members_before = dict(members_of(self._counters))

    def parts(self) -> list[Part]:
        changed = {slot: self._counters[slot] for slot in self._changed}
        parts = self._rows.parts(changed)
        if self._meter.aggregate != "unique":
            return parts
        before = self._members_before
        after = dict(members_of(changed))
        kept = {m: membership for m, membership in after.items() if before.get(m) != membership}
        gone = [m for m in before if m[0] in changed and m not in after]
        return parts + self._rows.member_parts(kept, gone)

    def _take(self, original: _Original, fact: Fact) -> None:
        reason = self._late_reason(fact, fact)
        if reason is None:
            self._count(original, fact)
        else:
            original.adjusted = True
            self._adjust(fact, _amount(fact), reason, fact)
        self._counter(fact.slot).everything.add(_amount(fact), original.order(fact))

    def _stand(self, original: _Original) -> None:
        fact = original.event
        counter = self._counter(fact.slot)
        value = _amount(fact)
        counter.standing_sum += value
        counter.standing_count += 1
        self._adjust(fact, value, fact.reason or "", fact)

    def _correct(self, original: _Original, new: Sequence[Fact]) -> None:
        """All corrections of one original in one commit."""
        before = original.deciding()
        original.voids += (fact for fact in new if fact.kind == facts.VOID)
        original.amends += (fact for fact in new if fact.kind != facts.VOID)
        after = original.deciding()
        if after is None or after is before:
            return
        if original.event.kind == facts.ADJUST:
            self._fall(original, after)
            return
        old = original.effective
        amended = after if after.kind == facts.AMEND and after.value is not None else None
        original.effective = amended
        if old is None and amended is None:
            return
        sides = [fact for fact in (old, amended) if fact is not None]
        if original.adjusted or any(self._late_reason(fact, after) for fact in sides):
            self._change_late(original, old, amended, after)
        else:
            self._change_in_time(original, amended)
        sequence = original.event.ingress_sequence
        if old is not None:
            self._counter(old.slot).everything.remove(sequence)
        if amended is not None:
            self._counter(amended.slot).everything.add(_amount(amended), original.order(amended))

    def _change_late(
        self, original: _Original, old: Fact | None, new: Fact | None, correction: Fact
    ) -> None:
        original.adjusted = True
        reason = facts.VOID if correction.kind == facts.VOID else facts.AMEND
        if old is not None:
            self._adjust(old, -_amount(old), reason, correction, original.event)
        if new is not None:
            self._adjust(new, _amount(new), reason, correction, original.event, part=1)

    def _change_in_time(self, original: _Original, new: Fact | None) -> None:
        if original.counted is not None:
            counter = self._counter(original.counted.slot)
            counter.counted.remove(original.event.ingress_sequence)
            original.counted = None
        if new is not None:
            self._count(original, new)

    def _fall(self, original: _Original, correction: Fact) -> None:
        """An operator's adjustment is taken back."""
        event = original.event
        counter = self._counter(event.slot)
        value = _amount(event)
        counter.standing_sum -= value
        counter.standing_count -= 1
        self._adjust(event, -value, facts.VOID, correction, event)

    def _count(self, original: _Original, fact: Fact) -> None:
        assert fact.ts is not None
        original.counted = fact
        counter = self._counter(fact.slot)
        counter.counted.add(_amount(fact), original.order(fact))
        counter.see(fact.ts)

    def _late_reason(self, fact: Fact, cause: Fact) -> str | None:
        """Why a fact would be late at the commit of what caused it to be looked at."""
        assert fact.ts is not None
        assert fact.period_end is not None
        counter = self._counters.get(fact.slot)
        watermark = None if counter is None else counter.watermark
        return late_reason(
            self._meter,
            ts=fact.ts,
            period_end=fact.period_end,
            # What this commit has already moved was taken down when it was first touched.
            watermark=self._watermarks.get(fact.slot, watermark),
            previous_received_at=cause.previous_received_at,
        )

    def _adjust(
        self,
        place: Fact,
        amount: int,
        reason: str,
        event: Fact,
        original: Fact | None = None,
        part: int = 0,
    ) -> None:
        self._counter(place.slot)
        if event.received_at > self._start:
            self._rows.adjust(place.slot, amount, reason, event, original, part)

    def _counter(self, slot: Slot) -> _ExactCounter:
        """The counter of a slot that this commit touches."""
        counter = self._counters.get(slot)
        if counter is None:
            counter = self._counters[slot] = _ExactCounter(self._meter.aggregate)
        if slot not in self._touched:
            self._touched.add(slot)
            self._watermarks[slot] = counter.watermark
        return counter

    def _record(self, slot: Slot, received_at: int) -> None:
        counter = self._counters[slot]
        counter.counted.settle()
        counter.everything.settle()
        self._changed.add(slot)
        self._rows.record(slot, counter, received_at)


def _amount(fact: Fact) -> int:
    assert fact.value is not None
    return to_billionths(fact.value)
