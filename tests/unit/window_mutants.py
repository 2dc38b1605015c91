"""Windows with one rule broken, each the kind of mistake that a fast implementation invites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.reference.facts import Fact, Slot
from tests.reference.tables import Content, StreamEvent, Values
from tests.reference.windows import Original, Side, WindowFold


class JudgesLateInsideTheCommit(WindowFold):
    def take_facts(self, events: Sequence[StreamEvent]) -> None:
        super().move_watermarks(events)
        super().take_facts(events)

    def move_watermarks(self, events: Sequence[StreamEvent]) -> None:
        pass


class TakesTheWatermarkItselfForInTime(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return super().is_late(replace(fact, ts=fact.ts + 1))


class ClosesOneMicrosecondLate(WindowFold):
    def is_closed(self, slot: Slot) -> bool:
        return super().is_closed(slot._replace(period_start=slot.period_start + 1))


class ForgetsTheEnd(WindowFold):
    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        pass


class EndsForOneCommitOnly(WindowFold):
    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        self.ended = set()
        super().take_ends(events)


class EndsWhatComesLater(WindowFold):
    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        super().take_ends(events)
        self.ended |= {slot for slot in self.counted() if self.ended}


class EndsAllTenants(WindowFold):
    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        if any(event["control"] == "end" for event in events):
            self.ended |= self.counted().keys()


class EndsBeforeTheFactsOfTheCommit(WindowFold):
    def take_facts(self, events: Sequence[StreamEvent]) -> None:
        super().take_ends(events)
        super().take_facts(events)

    def take_ends(self, events: Sequence[StreamEvent]) -> None:
        pass


class EndsWithAGreatestWatermark(WindowFold):
    def has_reached(self, tenant_id: str, ts: int) -> bool:
        ended = any(slot.tenant_id == tenant_id for slot in self.ended)
        return ended or super().has_reached(tenant_id, ts)


class CountsInWindowsThatHaveEnded(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return super().is_late(fact) and fact.slot not in self.ended


class SharesTheWatermarkAmongTenants(WindowFold):
    def watermark(self, tenant_id: str) -> int | None:
        tenants = {event["tenant_id"] for _, events in self.known for event in events}
        known = [super(SharesTheWatermarkAmongTenants, self).watermark(name) for name in tenants]
        return max((watermark for watermark in known if watermark is not None), default=None)


class LetsOnlyFactsMoveTheWatermark(WindowFold):
    def told_time(self, event: StreamEvent) -> int | None:
        is_fact = self.side_of(event, event, self.received_at) is not None
        return super().told_time(event) if is_fact else None


class LetsAmendsMoveTheWatermark(WindowFold):
    def move_watermarks(self, events: Sequence[StreamEvent]) -> None:
        amends: list[StreamEvent] = [
            {**event, "control": None, "data": event["event"]["data"]}
            for event in events
            if event["event"] is not None
        ]
        super().move_watermarks([*events, *amends])


class DoesNotSeeTicks(WindowFold):
    def commit(self, received_at: int, events: Sequence[StreamEvent]) -> None:
        if events:
            super().commit(received_at, events)


class DropsWhatIsLateInOneWindow(WindowFold):
    def take_facts(self, events: Sequence[StreamEvent]) -> None:
        super().take_facts(events)
        for original in self.originals.values():
            if original.parted and original.event in events:
                original.counted = {}


class TakesOpenWindowsForInTime(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return self.is_closed(fact.slot)


class TakesNothingForLate(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return False


class LetsLateStepsTouchTheCountedSet(WindowFold):
    def change_late(
        self, original: Original, old: Side | None, new: Side | None, correction: StreamEvent
    ) -> None:
        super().change_late(original, old, new, correction)
        original.counted = {}


class ForgetsThatItParted(WindowFold):
    def is_late_step(self, original: Original, old: Side | None, new: Side | None) -> bool:
        original.parted = False
        return super().is_late_step(original, old, new)


class JudgesStepsByTheOldSideOnly(WindowFold):
    def is_late_step(self, original: Original, old: Side | None, new: Side | None) -> bool:
        return super().is_late_step(original, old, None)


class JudgesStepsByTheNewSideOnly(WindowFold):
    def is_late_step(self, original: Original, old: Side | None, new: Side | None) -> bool:
        return super().is_late_step(original, old if new is None else None, new)


class TakesWhatIsAmendedAtOnceForWhatWasSent(WindowFold):
    """Where both are in one commit."""

    def take_facts(self, events: Sequence[StreamEvent]) -> None:
        amends = {event["target"]: event["event"] for event in events}
        super().take_facts([{**event, **(amends.get(event["key"]) or event)} for event in events])


class RefiresForEver(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return self.window.late != "refire" and super().is_late(fact)


class RefiresFromTheTimeOfTheFact(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return super().is_late(replace(fact, period_end=fact.ts))


class RefiresOneMicrosecondLonger(WindowFold):
    def is_late(self, fact: Fact) -> bool:
        return super().is_late(replace(fact, period_end=fact.period_end + 1))


class RefiresAllOrNothing(WindowFold):
    def change_in_time(self, original: Original, old: Side | None, new: Side | None) -> None:
        if not any(self.is_late(fact) for fact in (*self.facts_of(old), *self.facts_of(new))):
            super().change_in_time(original, old, new)


class RefiresFactsButNoCorrections(WindowFold):
    def change_in_time(self, original: Original, old: Side | None, new: Side | None) -> None:
        if not any(self.is_closed(fact.slot) for fact in self.facts_of(old)):
            super().change_in_time(original, old, new)


class LetsTheLastCorrectionWin(WindowFold):
    def deciding_correction(self, corrections: Sequence[StreamEvent]) -> StreamEvent | None:
        return max(corrections, key=lambda event: event["seq"], default=None)


class LetsTheFirstAmendWin(WindowFold):
    def deciding_correction(self, corrections: Sequence[StreamEvent]) -> StreamEvent | None:
        return super().deciding_correction(corrections[:1])


class NamesTheLastVoid(WindowFold):
    def deciding_correction(self, corrections: Sequence[StreamEvent]) -> StreamEvent | None:
        decides = super().deciding_correction(corrections)
        voided = decides is not None and decides["control"] == "void"
        return max(corrections, key=lambda event: event["seq"]) if voided else decides


class GivesAmendsTheirOwnSequence(WindowFold):
    def amended(self, original: Original, correction: StreamEvent, content: Content) -> Side | None:
        return self.side_of(correction, content, original.received_at)


class GivesAmendsTheTimeTheyAreReceived(WindowFold):
    def amended(self, original: Original, correction: StreamEvent, content: Content) -> Side | None:
        return self.side_of(original.event, content, self.received_at)


class TakesTheTimeThatWasSaid(WindowFold):
    """Without event time, the one beside the data."""

    def side_of(self, original: StreamEvent, content: Content, received_at: int) -> Side | None:
        said = received_at if content["ts"] is None else content["ts"]
        return super().side_of(original, content, said)


class ForgetsTheOldestHop(WindowFold):
    """As many windows as the size has whole distances."""

    def facts_of(self, side: Side | None) -> list[Fact]:
        return super().facts_of(side)[: self.window.size_us // self.window.every_us]


class HasNoWindowsBefore1970(WindowFold):
    def facts_of(self, side: Side | None) -> list[Fact]:
        return [fact for fact in super().facts_of(side) if fact.slot.period_start >= 0]


class HasTheEndInTheWindow(WindowFold):
    def facts_of(self, side: Side | None) -> list[Fact]:
        facts = super().facts_of(side)
        if side is not None:
            facts += super().facts_of(side._replace(ts=side.ts - 1))
        return list({fact.slot: fact for fact in facts}.values())


class HasNoGroupForNull(WindowFold):
    def facts_of(self, side: Side | None) -> list[Fact]:
        return [] if side is None or None in side.groups else super().facts_of(side)


class TakesUnknownForTrue(WindowFold):
    def passes(self, values: Values) -> bool:
        return self.window.where is None or self.window.where.holds(values) is not False


class KeepsTheRowsOfEmptiedWindows(WindowFold):
    def compute_rows(self) -> list[Values]:
        old: list[Values] = getattr(self, "old", [])
        new = super().compute_rows()
        starts = {row["window_start"] for row in new}
        self.old = [*new, *(row for row in old if row["window_start"] not in starts)]
        return self.old


class EmitsWhatIsNotClosed(WindowFold):
    def compute_rows(self) -> list[Values]:
        return [self.compute_row(slot, facts) for slot, facts in self.counted().items()]


class DoesNotSayThatItIsClosed(WindowFold):
    def compute_row(self, slot: Slot, counted: list[Fact]) -> Values:
        return {**super().compute_row(slot, counted), "is_closed": self.window.emit == "close"}


class WritesOneLateRowForAllWindows(WindowFold):
    def write_late(
        self,
        fact: Fact,
        part: int,
        amount: int,
        reason: str,
        event: StreamEvent,
        original: StreamEvent | None,
    ) -> None:
        written = {(row["ingress_sequence"], row["part"]) for row in self.late_rows}
        if (event["seq"], part) not in written:
            super().write_late(fact, part, amount, reason, event, original)


class NamesTheOriginalInLateRows(WindowFold):
    def write_late(
        self,
        fact: Fact,
        part: int,
        amount: int,
        reason: str,
        event: StreamEvent,
        original: StreamEvent | None,
    ) -> None:
        named: StreamEvent = {**event, "key": (original or event)["key"]}
        super().write_late(fact, part, amount, reason, named, original)


class DoesNotTakeTheOldSideBack(WindowFold):
    def write_late(
        self,
        fact: Fact,
        part: int,
        amount: int,
        reason: str,
        event: StreamEvent,
        original: StreamEvent | None,
    ) -> None:
        super().write_late(fact, part, fact.value, reason, event, original)


MUTANTS: Final[tuple[type[WindowFold], ...]] = tuple(
    kind for kind in WindowFold.__subclasses__() if kind.__module__ == __name__
)
