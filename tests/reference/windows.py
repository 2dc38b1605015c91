"""Windows of a stream, folded commit by commit, all rows computed anew after each.

A *lane* is one tenant of the stream. W is its watermark after the commits so far, as `eventtime`
has it, from all events whose time can be read, facts or not. Without event time the time of an
event is when it was received, and W is when the latest commit was, for all tenants.

A *fact* is an event that decodes, of which the condition is true and which has a value. Its key is
tenant and group values; null is a group of its own. It lies in every window [start, end) with
`start` a multiple of `every_us` and `end` being `size_us` later. The *counted set* of a key and a
window is what its row is computed from.

At each commit, with W and what is closed as they were before it:

1. Facts. Under `drop` and `side_output` a fact is late in a window if W has reached its time or
   the window is closed. Under `refire` it is late if W has reached the window's end and
   `refire_for_us` more. It is counted in its windows in which it is not late.
2. Corrections. An original that was ever voided is void; else the amend with the highest sequence
   says what it is; else it is what was sent. Only the step from what it was before this commit
   (for an original of this commit: what was sent) to what it is after it matters. A side that is no
   fact plays no part.
   - `drop`, `side_output`: the step is late if the original has parted, or if either side, as a
     fact of this commit, would be late in any of its windows. In time, the old side leaves its
     windows and the new one is counted in its own. Late, all stays, and the original has parted for
     ever. It has, too, once it is late as a fact in any window.
   - `refire`: in the windows in which a fact would not be late the old side leaves and the new one
     is counted.
3. Closing. A window is closed once W has reached its end, or once an `end` of its lane finds its
   counted set not empty. An `end` moves no W.
4. Rows. There is one for every window with a counted set that is not empty; with `emit="close"`
   only if it is closed.

Under `side_output` a second view has a row for whatever is late and a window it is late in: a late
fact's value; the negated old and the new value of a late step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any, Final, NamedTuple

from tests.reference.amounts import BILLION
from tests.reference.eventtime import EventTime, watermark_after
from tests.reference.facts import Fact, Slot, aggregate
from tests.reference.history import Commit, Event, Name
from tests.reference.tables import (
    Content,
    StreamCommit,
    StreamEvent,
    Table,
    Undecodable,
    Values,
    decode,
)
from tests.reference.timetypes import time_in
from tests.reference.window_definitions import Window
from tests.reference.window_rows import WindowResult, late_view, show, window_view

# 19 digits before the point and 9 after it.
VALUE_BOUND: Final = 10**28


class Side(NamedTuple):
    """What an event with some content is as a fact. `seq` is the original's."""

    tenant_id: str
    groups: tuple[Any, ...]
    ts: int
    seq: int
    value: int


@dataclass
class Original:
    """An event and what became of it.

    `counted` is what of it is in the counted sets, by the rows they are for; `effective` is what it
    is now. Unless windows refire, the two part for ever once something of it was late.
    """

    event: StreamEvent
    received_at: int
    effective: Side | None
    counted: dict[Slot, Fact] = field(default_factory=dict)
    parted: bool = False


class WindowFold:
    """One window over a growing history.

    Its small methods are the rules; a subclass that changes one of them is a planted bug.
    """

    def __init__(self, window: Window, settings: EventTime) -> None:
        self.window = window
        self.settings = settings
        self.content = Table(window.name, window.stream, (), window.fields)
        self.view = window_view(window.name, window.groups)
        self.late_view = late_view(window.name, window.groups)
        # The events of each commit so far whose time can be read.
        self.known: list[Commit] = []
        self.watermarks: dict[str, int | None] = {}
        self.originals: dict[Name, Original] = {}
        self.corrections: dict[Name, list[StreamEvent]] = {}
        self.ended: set[Slot] = set()
        self.late_rows: list[Values] = []
        self.received_at = 0
        self.result = WindowResult()

    def commit(self, received_at: int, events: Sequence[StreamEvent]) -> None:
        self.received_at = received_at
        own = [event for event in events if event["stream"] == self.window.stream]
        self.take_errors(own)
        self.take_facts(own)
        self.take_corrections(own)
        # Up to here W is that of the commit before.
        self.move_watermarks(own)
        self.take_ends(own)
        show(self.view, self.result, received_at, self.compute_rows())
        show(self.late_view, self.result.late, received_at, self.late_rows)

    def take_errors(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            content = event["event"] if event["control"] == "amend" else event
            if event["control"] in ("void", "end") or content is None:
                continue
            try:
                self.decoded(event, content, self.received_at)
            except Undecodable as error:
                self.result.errors.append((event["seq"], error.code))

    def take_facts(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            if event["control"] is not None:
                continue
            side = self.side_of(event, event, self.received_at)
            original = Original(event, self.received_at, side)
            self.originals[event["tenant_id"], event["key"]] = original
            for fact in self.facts_of(side):
                if self.is_late(fact):
                    original.parted = True
                    self.write_late(fact, 0, fact.value, "late", event, None)
                else:
                    original.counted[fact.slot] = fact

    def take_corrections(self, events: Sequence[StreamEvent]) -> None:
        """All of one original together."""
        new: dict[Name, list[StreamEvent]] = {}
        for event in events:
            if event["control"] in ("void", "amend") and event["target"] is not None:
                new.setdefault((event["tenant_id"], event["target"]), []).append(event)
        for target, corrections in new.items():
            earlier = self.corrections.get(target, [])
            self.corrections[target] = [*earlier, *corrections]
            before = self.deciding_correction(earlier)
            after = self.deciding_correction(self.corrections[target])
            if after is not None and after is not before:
                self.change_original(self.originals[target], after)

    def deciding_correction(self, corrections: Sequence[StreamEvent]) -> StreamEvent | None:
        """Which of the corrections of one original says what it is: its first void, or else its
        last amend."""
        voids = [event for event in corrections if event["control"] == "void"]
        if voids:
            return min(voids, key=lambda event: event["seq"])
        return max(corrections, key=lambda event: event["seq"], default=None)

    def change_original(self, original: Original, correction: StreamEvent) -> None:
        old, new = original.effective, None
        if correction["event"] is not None:
            new = self.amended(original, correction, correction["event"])
        original.effective = new
        if self.window.late == "refire":
            self.change_in_time(original, old, new)
        elif self.is_late_step(original, old, new):
            self.change_late(original, old, new, correction)
        else:
            self.change_in_time(original, old, new)

    def amended(self, original: Original, correction: StreamEvent, content: Content) -> Side | None:
        """Nothing is inherited but the sequence and, without event time, the time."""
        return self.side_of(original.event, content, original.received_at)

    def is_late_step(self, original: Original, old: Side | None, new: Side | None) -> bool:
        sides = [*self.facts_of(old), *self.facts_of(new)]
        return original.parted or any(self.is_late(fact) for fact in sides)

    def change_in_time(self, original: Original, old: Side | None, new: Side | None) -> None:
        """In all windows in which a fact would not be late."""
        for fact in self.facts_of(old):
            if not self.is_late(fact):
                original.counted.pop(fact.slot, None)
        for fact in self.facts_of(new):
            if not self.is_late(fact):
                original.counted[fact.slot] = fact

    def change_late(
        self, original: Original, old: Side | None, new: Side | None, correction: StreamEvent
    ) -> None:
        original.parted = True
        reason = str(correction["control"])
        for fact in self.facts_of(old):
            self.write_late(fact, 0, -fact.value, reason, correction, original.event)
        for fact in self.facts_of(new):
            self.write_late(fact, 1, fact.value, reason, correction, original.event)

    def move_watermarks(self, events: Sequence[StreamEvent]) -> None:
        timed = []
        for event in events:
            ts = self.told_time(event)
            if event["control"] is None and ts is not None:
                timed.append(_timed(event, ts))
        self.known.append((self.received_at, timed))
        self.watermarks = {}

    def told_time(self, event: StreamEvent) -> int | None:
        """The time of an event, whatever else is wrong with it."""
        time = self.window.time
        return self.received_at if time is None else time_in(event["data"], time.column, time.type)

    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        lanes = {event["tenant_id"] for event in events if event["control"] == "end"}
        self.ended |= {slot for slot in self.counted() if slot.tenant_id in lanes}

    def side_of(self, original: StreamEvent, content: Content, received_at: int) -> Side | None:
        """What an event with this content is as a fact; `received_at` is the original's."""
        try:
            return self.decoded(original, content, received_at)
        except Undecodable:
            return None

    def decoded(self, original: StreamEvent, content: Content, received_at: int) -> Side | None:
        """The same, but raises `Undecodable`."""
        values = decode(self.content, original["tenant_id"], content["data"])
        ts = self.time_of(values, received_at)
        try:
            if not self.passes(values):
                return None
            value = self.window.value.of(values)
        except ArithmeticError:
            raise Undecodable("expression_failed") from None
        if value is None:
            return None
        billionths = _half_up(Fraction(value) * BILLION)
        if abs(billionths) >= VALUE_BOUND:
            raise Undecodable("value_out_of_range")
        groups = tuple(values[name] for name in self.window.group_by)
        return Side(original["tenant_id"], groups, ts, original["seq"], billionths)

    def time_of(self, values: Values, received_at: int) -> int:
        if self.window.time is None:
            return received_at
        told = values[self.window.time.column]
        ts = None if told is None else self.window.time.of(told)
        if ts is None:
            raise Undecodable("invalid_event_time")
        return ts

    def passes(self, values: Values) -> bool:
        return self.window.where is None or self.window.where.holds(values) is True

    def facts_of(self, side: Side | None) -> list[Fact]:
        """One for each window, the latest first."""
        if side is None:
            return []
        facts = []
        start = side.ts // self.window.every_us * self.window.every_us
        while side.ts < start + self.window.size_us:
            slot = Slot(side.tenant_id, self.window.name, "", side.groups, start)
            facts.append(Fact(slot, start + self.window.size_us, side.ts, side.seq, side.value))
            start -= self.window.every_us
        return facts

    def is_late(self, fact: Fact) -> bool:
        """Whether a fact would be late in its window if it were one of this commit."""
        tenant_id = fact.slot.tenant_id
        if self.window.refire_for_us is not None:
            return self.has_reached(tenant_id, fact.period_end + self.window.refire_for_us)
        return self.has_reached(tenant_id, fact.ts) or self.is_closed(fact.slot)

    def is_closed(self, slot: Slot) -> bool:
        end = slot.period_start + self.window.size_us
        return self.has_reached(slot.tenant_id, end) or slot in self.ended

    def has_reached(self, tenant_id: str, ts: int) -> bool:
        watermark = self.watermark(tenant_id)
        return watermark is not None and watermark >= ts

    def watermark(self, tenant_id: str) -> int | None:
        """W after all commits known so far."""
        if self.window.time is None:
            return self.known[-1][0] if self.known else None
        if tenant_id not in self.watermarks:
            lane = [
                (received_at, [event for event in events if event["tenant_id"] == tenant_id])
                for received_at, events in self.known
            ]
            self.watermarks[tenant_id] = watermark_after(lane, self.settings)
        return self.watermarks[tenant_id]

    def counted(self) -> dict[Slot, list[Fact]]:
        """The counted sets that are not empty."""
        sets: dict[Slot, list[Fact]] = {}
        for original in self.originals.values():
            for slot, fact in original.counted.items():
                sets.setdefault(slot, []).append(fact)
        return sets

    def compute_rows(self) -> list[Values]:
        return [
            self.compute_row(slot, facts)
            for slot, facts in self.counted().items()
            if self.window.emit == "change" or self.is_closed(slot)
        ]

    def compute_row(self, slot: Slot, counted: list[Fact]) -> Values:
        return {
            **self.key_columns(slot),
            "agg_sum": _decimal(aggregate("sum", counted)),
            "agg_max": _decimal(aggregate("max", counted)),
            "agg_min": _decimal(aggregate("min", counted)),
            "agg_count": len(counted),
            "agg_last": _decimal(aggregate("last", counted)),
            "value": _decimal(aggregate(self.window.aggregate, counted)),
            "is_closed": self.is_closed(slot),
        }

    def key_columns(self, slot: Slot) -> Values:
        return {
            "tenant_id": slot.tenant_id,
            **dict(zip(self.window.group_by, slot.groups, strict=True)),
            "window_start": slot.period_start,
            "window_end": slot.period_start + self.window.size_us,
        }

    def write_late(
        self,
        fact: Fact,
        part: int,
        amount: int,
        reason: str,
        event: StreamEvent,
        original: StreamEvent | None,
    ) -> None:
        if self.window.late != "side_output":
            return
        row = {
            "ingress_sequence": event["seq"],
            "part": part,
            "event_ts": fact.ts,
            "amount": _decimal(amount),
            "reason": reason,
            "idempotency_key": event["key"],
            "original_key": None if original is None else original["key"],
        }
        self.late_rows.append({**self.key_columns(fact.slot), **row})


def fold_windows(
    commits: Sequence[StreamCommit],
    window: Window,
    settings: EventTime,
    fold: Callable[[Window, EventTime], WindowFold] = WindowFold,
) -> WindowResult:
    """What a window comes to."""
    state = fold(window, settings)
    for received_at, events in commits:
        state.commit(received_at, events)
    return state.result


def _timed(event: StreamEvent, ts: int) -> Event:
    return Event(
        seq=event["seq"],
        key=event["key"],
        tenant_id=event["tenant_id"],
        stream=event["stream"],
        metric=None,
        customer_ref=None,
        resource_id=None,
        quantity=None,
        ts=ts,
        meta=None,
        control=None,
    )


def _half_up(number: Fraction) -> int:
    """The nearest whole number; a half is rounded away from zero."""
    size = floor(abs(number) + Fraction(1, 2))
    return size if number >= 0 else -size


def _decimal(billionths: int | None) -> Fraction | None:
    return None if billionths is None else Fraction(billionths, BILLION)
