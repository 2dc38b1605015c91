"""Plain facts of a meter, one by one: quickest where there are few.

Within a commit order does not matter: all its facts are judged by the state before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

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
from tidemark.pipeline.fold.tallies import Counter, Order, to_billionths


def fold_plain(
    meter: MeterDefinition, table: pa.Table, read: ReadRows, *, logged: bool
) -> list[Part]:
    """What facts and operators' adjustments come to on top of what there is."""
    ordered = facts_in_order(table)
    rows = MeterRows(meter, read, logged=logged)
    counters = _counters(rows, ordered)
    unique = meter.aggregate == "unique"
    known = _load_members(rows, counters, ordered) if unique else {}
    for received_at, commit in groupby(ordered, key=lambda fact: fact.received_at):
        _fold_commit(rows, counters, received_at, list(commit))
    parts = rows.parts(counters)
    if unique:
        parts += rows.member_parts(_new_members(counters, known))
    return parts


def _fold_commit(
    rows: MeterRows, counters: dict[Slot, Counter], received_at: int, commit: Sequence[Fact]
) -> None:
    touched = {fact.slot: counters[fact.slot] for fact in commit}
    watermarks = {slot: counter.watermark for slot, counter in touched.items()}
    for fact in commit:
        assert fact.ts is not None
        assert fact.value is not None
        slot, counter = fact.slot, touched[fact.slot]
        value = to_billionths(fact.value)
        if fact.kind == facts.ADJUST:
            counter.standing_sum += value
            counter.standing_count += 1
            rows.adjust(slot, value, fact.reason or "", fact)
            continue
        assert fact.period_end is not None
        order = Order(fact.ts, fact.ingress_sequence)
        reason = late_reason(
            rows.meter,
            ts=fact.ts,
            period_end=fact.period_end,
            watermark=watermarks[slot],
            previous_received_at=fact.previous_received_at,
        )
        if reason is None:
            counter.counted.add(value, order)
            counter.see(fact.ts)
        else:
            rows.adjust(slot, value, reason, fact)
        counter.everything.add(value, order)
    for slot, counter in touched.items():
        rows.record(slot, counter, received_at)


def _counters(rows: MeterRows, ordered: Sequence[Fact]) -> dict[Slot, Counter]:
    slots = {fact.slot for fact in ordered}
    rows.load(slots)
    counters = {}
    for slot in slots:
        before = rows.columns_before(slot)
        if before is None:
            counters[slot] = Counter(rows.meter.aggregate)
        else:
            counters[slot] = Counter.of(rows.meter.aggregate, before)
            rows.start_from(slot, counters[slot])
    return counters


def _load_members(
    rows: MeterRows, counters: dict[Slot, Counter], ordered: Sequence[Fact]
) -> dict[Member, Membership]:
    """Tells each counter which of the values to come it has seen already."""
    pairs = {
        (fact.slot, to_billionths(fact.value))
        for fact in ordered
        if fact.kind == facts.FACT and fact.value is not None
    }
    known = rows.known_members(list(pairs))
    for (slot, value), membership in known.items():
        for tally, seen in (
            (counters[slot].everything, membership.is_in_effect),
            (counters[slot].counted, membership.is_counted),
        ):
            if seen and tally.members is not None:
                tally.members[value] = 1
    return known


def _new_members(
    counters: dict[Slot, Counter], known: dict[Member, Membership]
) -> dict[Member, Membership]:
    return {
        member: membership
        for member, membership in members_of(counters)
        if known.get(member) != membership
    }
