"""Meters with one rule broken, each the kind of mistake that a fast implementation invites.

They show that the vectors, the properties and the generated ledgers can tell right from wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.reference.definitions import Meter
from tests.reference.facts import Fact, Slot
from tests.reference.history import Event, Name
from tests.reference.meters import MeterFold, OperatorAdjustment, Original


class JudgesLateInsideTheCommit(MeterFold):
    def late_reason(self, fact: Fact) -> str | None:
        self.watermarks_before = dict(self.watermarks)
        return super().late_reason(fact)


class TakesTheBoundForLate(MeterFold):
    def late_reason(self, fact: Fact) -> str | None:
        return super().late_reason(replace(fact, ts=fact.ts - 1))


class MovesTheWatermarkBack(MeterFold):
    def uncount(self, original: Original) -> None:
        super().uncount(original)
        for slot in self.watermarks:
            facts = [other.counted for other in self.originals.values()]
            times = [fact.ts for fact in facts if fact is not None and fact.slot == slot]
            self.watermarks[slot] = max(times, default=self.watermarks[slot])


class LetsLateFactsMoveTheWatermark(MeterFold):
    """A late fact is always behind the watermark; one that is late by the close may not be."""

    def take_usage(self, event: Event) -> None:
        super().take_usage(event)
        fact = self.originals[event["tenant_id"], event["key"]].effective
        if fact is not None:
            self.watermarks[fact.slot] = max(self.watermarks.get(fact.slot, fact.ts), fact.ts)


class ForgetsLateVoids(MeterFold):
    def write_adjustment(
        self, slot: Slot, amount: int, reason: str, event: Event, original: Event | None
    ) -> None:
        self.touched.add(slot)
        if event["control"] != "void":
            super().write_adjustment(slot, amount, reason, event, original)


class LetsLateCorrectionsTouchCounters(MeterFold):
    def change_late(
        self, original: Original, old: Fact | None, new: Fact | None, correction: Event
    ) -> None:
        super().change_late(original, old, new, correction)
        self.uncount(original)


class ForgetsThatItWasAdjusted(MeterFold):
    def is_late_step(self, original: Original, old: Fact | None, new: Fact | None) -> bool:
        original.adjusted = False
        return super().is_late_step(original, old, new)


class JudgesAmendsByTheOldTimeOnly(MeterFold):
    def is_late_step(self, original: Original, old: Fact | None, new: Fact | None) -> bool:
        return super().is_late_step(original, old, None)


class JudgesAmendsByTheNewTimeOnly(MeterFold):
    def is_late_step(self, original: Original, old: Fact | None, new: Fact | None) -> bool:
        return super().is_late_step(original, old if new is None else None, new)


class ClosesByTheCommitsOwnTime(MeterFold):
    def commit(self, received_at: int, events: Sequence[Event]) -> None:
        self.received_before = received_at
        super().commit(received_at, events)


class DoesNotSeeTicks(MeterFold):
    def commit(self, received_at: int, events: Sequence[Event]) -> None:
        before = self.received_before
        super().commit(received_at, events)
        if not events:
            self.received_before = before


class ClosesOneMicrosecondEarly(MeterFold):
    def late_reason(self, fact: Fact) -> str | None:
        return super().late_reason(replace(fact, period_end=fact.period_end - 1))


class GivesAmendsTheirOwnSequence(MeterFold):
    def sequence_for_ties(self, original: Event, correction: Event) -> int:
        return correction["seq"]


class LetsTheLastCorrectionWin(MeterFold):
    def deciding_correction(self, corrections: Sequence[Event]) -> Event | None:
        return max(corrections, key=lambda event: event["seq"], default=None)


class LetsTheFirstAmendWin(MeterFold):
    def deciding_correction(self, corrections: Sequence[Event]) -> Event | None:
        decides = super().deciding_correction(corrections)
        if decides is None or decides["control"] == "void":
            return decides
        return min(corrections, key=lambda event: event["seq"])


class NamesTheLastVoid(MeterFold):
    """Of two voids in one commit."""

    def take_corrections(self, target: Name, new: Sequence[Event]) -> None:
        voids = [event for event in new if event["control"] == "void"]
        super().take_corrections(target, voids[-1:] or new)


class FindsOriginalsByKeyAlone(MeterFold):
    """One tenant's correction then reaches another's event."""

    def take_corrections(self, target: Name, new: Sequence[Event]) -> None:
        first = min((name for name in self.originals if name[1] == target[1]), default=target)
        super().take_corrections(first, new)


class InheritsMetaInAmends(MeterFold):
    def amended(self, original: Event, correction: Event) -> Event:
        event = super().amended(original, correction)
        event["meta"] = event["meta"] or original["meta"]
        return event


class CountsInUtc(MeterFold):
    def __init__(self, meter: Meter) -> None:
        super().__init__(replace(meter, zone="UTC"))


class KeepsVoidedOperatorAdjustments(MeterFold):
    def void_operator_adjustment(self, made: OperatorAdjustment, correction: Event) -> None:
        super().void_operator_adjustment(made, correction)
        made.stands = True


class SharesWatermarksAcrossGroups(MeterFold):
    def count(self, original: Original, fact: Fact) -> None:
        super().count(original, fact)
        for slot in list(self.watermarks):
            if slot._replace(groups=fact.slot.groups) == fact.slot:
                self.watermarks[slot] = max(self.watermarks[slot], fact.ts)


class TakesUnknownForTrue(MeterFold):
    def fact_of(self, event: Event, seq: int) -> Fact | None:
        where = self.meter.where
        if where is not None and where.holds(event) is None:
            event = event.copy()
            event["resource_id"] = "r1"
        return super().fact_of(event, seq)


MUTANTS: Final[tuple[type[MeterFold], ...]] = (
    JudgesLateInsideTheCommit,
    TakesTheBoundForLate,
    MovesTheWatermarkBack,
    LetsLateFactsMoveTheWatermark,
    ForgetsLateVoids,
    LetsLateCorrectionsTouchCounters,
    ForgetsThatItWasAdjusted,
    JudgesAmendsByTheOldTimeOnly,
    JudgesAmendsByTheNewTimeOnly,
    ClosesByTheCommitsOwnTime,
    DoesNotSeeTicks,
    ClosesOneMicrosecondEarly,
    GivesAmendsTheirOwnSequence,
    LetsTheLastCorrectionWin,
    LetsTheFirstAmendWin,
    NamesTheLastVoid,
    FindsOriginalsByKeyAlone,
    InheritsMetaInAmends,
    CountsInUtc,
    KeepsVoidedOperatorAdjustments,
    SharesWatermarksAcrossGroups,
    TakesUnknownForTrue,
)
