"""Meters, folded commit by commit, each row computed anew from everything known so far.

A *fact* of a meter is a usage event of its metric that passes its condition. Its key is tenant,
metric, customer, group values and the period in which its time lies. The *counted set* of a key is
what its counters are computed from; its watermark is the greatest time that ever entered that set
and never moves back.

At each commit:

1. Facts. A fact is late if the watermark of its key, as it was before this commit, is more than
   `lateness_us` ahead of it, or if the commit before this one was received more than
   `close_after_us` after the end of its period. What is not late is counted. What is late becomes
   an adjustment and touches no counter.
2. Operators' adjustments. They are never late and touch no counter.
3. Corrections. An original that was ever voided is void; else the amend with the highest sequence
   says what it is; else it is what was sent. Only the step from what it was before this commit
   (for an original of this commit: what was sent) to what it is after it matters. The step is late
   if the original was ever adjusted, or if what it was or what it is would be late as a fact of
   this commit. In time, the counted set changes. Late, the counted set stays, and adjustments take
   the old value back and add the new one. A side that is no fact of this meter plays no part.
4. Rows. A key has a row from the first time that a counted fact or an adjustment touches it.

`counted` is the meter's aggregate of the counted set. `total` is its aggregate of everything that
is in effect, however late, plus the operators' adjustments that stand. `adjusted` is `total` less
`counted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.reference.amounts import format_amount, parse_amount
from tests.reference.definitions import Meter
from tests.reference.facts import Fact, Slot, add, aggregate, group_value, shown
from tests.reference.fingerprint import (
    Change,
    Key,
    MeterResult,
    Op,
    Row,
    adjustment_order,
    canonical_json,
)
from tests.reference.history import Commit, Event, Name, name_of, target_of
from tests.reference.instants import format_instant
from tests.reference.periods import period_of


@dataclass
class Original:
    """A usage event and what became of it.

    `counted` is what of it is in the counted set, `effective` what it is now. The two part for ever
    once it is adjusted.
    """

    event: Event
    effective: Fact | None
    counted: Fact | None = None
    adjusted: bool = False


@dataclass
class OperatorAdjustment:
    event: Event
    slot: Slot
    amount: int
    stands: bool = True


class MeterFold:
    """One meter over a growing history.

    Its small methods are the rules; a subclass that changes one of them is a planted bug.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.originals: dict[Name, Original] = {}
        self.operator_adjustments: dict[Name, OperatorAdjustment] = {}
        self.corrections: dict[Name, list[Event]] = {}
        self.watermarks: dict[Slot, int] = {}
        self.watermarks_before: dict[Slot, int] = {}
        self.received_before: int | None = None
        self.received_at = 0
        self.touched: set[Slot] = set()
        self.new_adjustments: list[Row] = []
        self.result = MeterResult()
        self.rows: dict[Key, Row] = {}

    def commit(self, received_at: int, events: Sequence[Event]) -> None:
        self.received_at = received_at
        self.watermarks_before = dict(self.watermarks)
        self.new_adjustments = []
        for event in events:
            if event["control"] is None and event["metric"] == self.meter.metric:
                self.take_usage(event)
        for event in events:
            if event["control"] == "adjust" and event["metric"] == self.meter.metric:
                self.take_operator_adjustment(event)
        corrections: dict[Name, list[Event]] = {}
        for event in events:
            if event["control"] in ("void", "amend"):
                corrections.setdefault(target_of(event), []).append(event)
        for target, new in corrections.items():
            self.take_corrections(target, new)
        self.finish_commit()
        self.received_before = received_at

    def take_usage(self, event: Event) -> None:
        fact = self.fact_of(event, event["seq"])
        original = Original(event, effective=fact)
        self.originals[name_of(event)] = original
        if fact is None:
            return
        reason = self.late_reason(fact)
        if reason is None:
            self.count(original, fact)
        else:
            original.adjusted = True
            self.write_adjustment(fact.slot, fact.value, reason, event, None)

    def take_operator_adjustment(self, event: Event) -> None:
        period_start, reason = event.get("period_start"), event.get("reason")
        if period_start is None or reason is None or event["quantity"] is None:
            raise ValueError(f"an adjustment that lacks something: {event}")
        slot = self.slot_of(event, (None,) * len(self.meter.group_by), period_start)
        amount = parse_amount(event["quantity"])
        self.operator_adjustments[name_of(event)] = OperatorAdjustment(event, slot, amount)
        self.write_adjustment(slot, amount, reason, event, None)

    def take_corrections(self, target: Name, new: Sequence[Event]) -> None:
        """All corrections of one original in one commit."""
        earlier = self.corrections.get(target, [])
        self.corrections[target] = [*earlier, *new]
        before = self.deciding_correction(earlier)
        after = self.deciding_correction(self.corrections[target])
        if after is None or after is before:
            return
        if target in self.originals:
            self.change_original(self.originals[target], after)
        if target in self.operator_adjustments:
            self.void_operator_adjustment(self.operator_adjustments[target], after)

    def deciding_correction(self, corrections: Sequence[Event]) -> Event | None:
        """Which of the corrections of one original says what it is: its first void, or else its
        last amend."""
        voids = [event for event in corrections if event["control"] == "void"]
        amends = [event for event in corrections if event["control"] == "amend"]
        if voids:
            return min(voids, key=lambda event: event["seq"])
        return max(amends, key=lambda event: event["seq"], default=None)

    def change_original(self, original: Original, correction: Event) -> None:
        old = original.effective
        new = None
        if correction["control"] == "amend":
            amended = self.amended(original.event, correction)
            new = self.fact_of(amended, self.sequence_for_ties(original.event, correction))
        original.effective = new
        if old is None and new is None:
            return
        if self.is_late_step(original, old, new):
            self.change_late(original, old, new, correction)
        else:
            self.uncount(original)
            if new is not None:
                self.count(original, new)

    def is_late_step(self, original: Original, old: Fact | None, new: Fact | None) -> bool:
        sides = [fact for fact in (old, new) if fact is not None]
        return original.adjusted or any(self.late_reason(fact) is not None for fact in sides)

    def change_late(
        self, original: Original, old: Fact | None, new: Fact | None, correction: Event
    ) -> None:
        original.adjusted = True
        reason = str(correction["control"])
        if old is not None:
            self.write_adjustment(old.slot, -old.value, reason, correction, original.event)
        if new is not None:
            self.write_adjustment(new.slot, new.value, reason, correction, original.event)

    def void_operator_adjustment(self, made: OperatorAdjustment, correction: Event) -> None:
        made.stands = False
        self.write_adjustment(made.slot, -made.amount, "void", correction, made.event)

    def amended(self, original: Event, correction: Event) -> Event:
        """The original with the new content: what that leaves out is absent, not inherited."""
        content = correction.get("event")
        if content is None:
            raise ValueError(f"an amend without content: {correction}")
        event = original.copy()
        event["ts"] = content["ts"]
        event["quantity"] = content["quantity"]
        event["meta"] = content.get("meta")
        event["resource_id"] = content.get("resource_id")
        return event

    def sequence_for_ties(self, original: Event, correction: Event) -> int:
        return original["seq"]

    def fact_of(self, event: Event, seq: int) -> Fact | None:
        if self.meter.where is not None and self.meter.where.holds(event) is not True:
            return None
        value = self.meter.value.of(event)
        if value is None:
            return None
        groups = tuple(group_value(event["meta"], name) for name in self.meter.group_by)
        slot = self.slot_of(event, groups, event["ts"])
        end = period_of(event["ts"], self.meter.period, self.meter.zone).end
        return Fact(slot, end, event["ts"], seq, parse_amount(value))

    def slot_of(self, event: Event, groups: tuple[str | None, ...], ts: int) -> Slot:
        start = period_of(ts, self.meter.period, self.meter.zone).start
        customer_ref = str(event["customer_ref"])
        return Slot(event["tenant_id"], self.meter.metric, customer_ref, groups, start)

    def late_reason(self, fact: Fact) -> str | None:
        """Why a fact of this commit would be late; None if it would not. Being behind the
        watermark comes before being after the close."""
        watermark = self.watermarks_before.get(fact.slot)
        if watermark is not None and fact.ts < watermark - self.meter.lateness_us:
            return "late"
        if (
            self.meter.close_after_us is not None
            and self.received_before is not None
            and self.received_before > fact.period_end + self.meter.close_after_us
        ):
            return "closed"
        return None

    def count(self, original: Original, fact: Fact) -> None:
        original.counted = fact
        self.touched.add(fact.slot)
        self.watermarks[fact.slot] = max(self.watermarks.get(fact.slot, fact.ts), fact.ts)

    def uncount(self, original: Original) -> None:
        original.counted = None

    def write_adjustment(
        self, slot: Slot, amount: int, reason: str, event: Event, original: Event | None
    ) -> None:
        self.touched.add(slot)
        self.new_adjustments.append(
            {
                **self.key_columns(slot),
                "amount": format_amount(amount),
                "reason": reason,
                "idempotency_key": event["key"],
                "ingress_sequence": str(event["seq"]),
                "original_key": None if original is None else original["key"],
                "original_sequence": None if original is None else str(original["seq"]),
                "received_at": format_instant(self.received_at),
            }
        )

    def finish_commit(self) -> None:
        old_rows = self.rows
        self.rows = self.compute_rows()
        for key in sorted(self.rows, key=canonical_json):
            old, row = old_rows.get(key), self.rows[key]
            if old != row:
                op: Op = "INSERT" if old is None else "UPDATE"
                self.result.changes.append(Change(self.received_at, key, op, old, row))
        self.new_adjustments.sort(key=adjustment_order)
        self.result.adjustments.extend(self.new_adjustments)
        self.result.rows_after.append(self.rows)

    def compute_rows(self) -> dict[Key, Row]:
        counted: dict[Slot, list[Fact]] = {slot: [] for slot in self.touched}
        everything: dict[Slot, list[Fact]] = {slot: [] for slot in self.touched}
        standing: dict[Slot, list[int]] = {slot: [] for slot in self.touched}
        for original in self.originals.values():
            if original.counted is not None:
                counted[original.counted.slot].append(original.counted)
            if original.effective is not None:
                everything[original.effective.slot].append(original.effective)
        for made in self.operator_adjustments.values():
            if made.stands:
                standing[made.slot].append(made.amount)
        rows: dict[Key, Row] = {}
        for slot in self.touched:
            row = self.compute_row(slot, counted[slot], everything[slot], standing[slot])
            key = (*slot[:3], *slot.groups, format_instant(slot.period_start))
            rows[key] = row
        return rows

    def compute_row(
        self, slot: Slot, counted: list[Fact], everything: list[Fact], standing: list[int]
    ) -> Row:
        watermark = self.watermarks.get(slot)
        counted_amount = aggregate(self.meter.aggregate, counted)
        total = add(
            aggregate(self.meter.aggregate, everything), sum(standing) if standing else None
        )
        adjusted = add(total, None if counted_amount is None else -counted_amount)
        return {
            **self.key_columns(slot),
            "agg_sum": shown(aggregate("sum", counted)),
            "agg_max": shown(aggregate("max", counted)),
            "agg_min": shown(aggregate("min", counted)),
            "agg_count": len(counted),
            "agg_last": shown(aggregate("last", counted)),
            "watermark_ts": None if watermark is None else format_instant(watermark),
            "counted": shown(counted_amount),
            "adjusted": shown(adjusted),
            "total": shown(total),
        }

    def key_columns(self, slot: Slot) -> Row:
        return {
            "tenant_id": slot.tenant_id,
            "metric": slot.metric,
            "customer_ref": slot.customer_ref,
            **dict(zip(self.meter.group_by, slot.groups, strict=True)),
            "period_start": format_instant(slot.period_start),
        }


def fold_meters(
    commits: Sequence[Commit],
    meters: Sequence[Meter],
    fold: Callable[[Meter], MeterFold] = MeterFold,
) -> dict[str, MeterResult]:
    """What each meter comes to, by its name."""
    results: dict[str, MeterResult] = {}
    for meter in meters:
        state = fold(meter)
        for received_at, events in commits:
            state.commit(received_at, events)
        results[meter.name] = state.result
    return results
