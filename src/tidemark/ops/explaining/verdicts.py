"""What the meters made of an event, and why.

A condition and a value are Spark SQL, which nobody can compute here. What can be told without is
told from what the pipeline left behind: adjustments and errors name their event for ever, and a
commit's change of a row says how many events more it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.places import MeterPlace
from tidemark.ops.explaining.rows import RowHistory
from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.fold.rules import CLOSED, LATE, late_reason
from tidemark.pipeline.output.batch import Adjustment, ErrorRow

Outcome: TypeAlias = Literal[
    "counted", "adjusted", "corrected", "no_effect", "not_counted", "unknown"
]

_PLAIN_VALUE: Final = "quantity"
_IN_TIME: Final = "it came in time: the row is as if its original had always been so"
REASONS: Final = {
    LATE: "it happened longer before the row's watermark than the meter's lateness",
    CLOSED: "its period was closed",
}


class Verdict(msgspec.Struct, frozen=True):
    """What became of an event in one meter, and why."""

    outcome: Outcome
    reason: str


class Judged(msgspec.Struct, frozen=True):
    """Whether a content was late for its place at a commit. `history` is that of its row."""

    place: MeterPlace
    history: RowHistory
    late: str | None


class Evidence(msgspec.Struct, frozen=True):
    """What is known of an event in one meter. `overruled_by` is of a correction only."""

    event: EventRow
    meter: MeterDefinition
    judged: Sequence[Judged]
    adjustments: Sequence[Adjustment]
    errors: Sequence[ErrorRow]
    overruled_by: EventRow | None = None


def takes_all(meter: MeterDefinition) -> bool:
    """Whether every event of its metric is a fact of the meter."""
    return meter.where is None and meter.value == _PLAIN_VALUE


def judge(
    meter: MeterDefinition,
    place: MeterPlace,
    history: RowHistory,
    previous_received_at: int | None,
) -> Judged:
    """Whether a content is late at a commit; nobody knows without the row before it.

    What an operator adjusts is never late.
    """
    late = None
    if not history.unknown and place.content.event.control != "adjust":
        late = late_reason(
            meter,
            ts=place.ts,
            period_end=place.period_end,
            watermark=history.watermark,
            previous_received_at=previous_received_at,
        )
    return Judged(place, history, late)


def verdict_of(evidence: Evidence) -> Verdict:
    """What a meter made of an event that the pipeline has folded."""
    meter, event = evidence.meter, evidence.event
    if event.metric != meter.metric:
        return Verdict("not_counted", f"it counts the metric {meter.metric}")
    for error in evidence.errors:
        return Verdict("not_counted", f"{error.code}: {error.message}")
    if event.control == "adjust":
        return _operators(evidence)
    if event.control is not None:
        return _correction(evidence)
    for adjustment in evidence.adjustments:
        return Verdict("adjusted", REASONS.get(adjustment.reason, adjustment.reason))
    return _of_all(evidence) if takes_all(meter) else _by_count(evidence)


def _operators(evidence: Evidence) -> Verdict:
    for adjustment in evidence.adjustments:
        return Verdict("adjusted", f"an operator adjusts the period: {adjustment.reason}")
    return Verdict("not_counted", "no adjustment was made of it")


def _correction(evidence: Evidence) -> Verdict:
    if evidence.adjustments:
        return Verdict("adjusted", "its original was counted too long ago, or adjusted itself")
    by = evidence.overruled_by
    if by is not None:
        how = "had voided" if by.control == "void" else "was the later to amend"
        return Verdict("no_effect", f"{by.ingress_sequence} {how} the original")
    histories = [judged.history for judged in evidence.judged]
    if any(history.change is not None for history in histories):
        return Verdict("corrected", _IN_TIME)
    for history in histories:
        if history.unknown and not takes_all(evidence.meter):
            return Verdict("unknown", history.unknown)
    if takes_all(evidence.meter) and any(history.unknown for history in histories):
        return Verdict("corrected", _IN_TIME)
    return Verdict("no_effect", "the row is as it was before")


def _of_all(evidence: Evidence) -> Verdict:
    """Of a meter that takes all: an event that is not adjusted is counted."""
    for judged in evidence.judged:
        history = judged.history
        others = history.neighbours
        if not history.unknown and history.change is None and not others.corrections:
            return Verdict(
                "not_counted", "its row does not agree with the ledger; `tidemark verify` says more"
            )
    return Verdict("counted", "it was not late")


def _by_count(evidence: Evidence) -> Verdict:
    """Of a meter that does not take all: whether the row counts one event more because of it."""
    not_taken = Verdict("not_counted", "its condition was not true or its value null")
    if not evidence.judged:
        return not_taken
    history = evidence.judged[0].history
    others = history.neighbours
    if history.unknown:
        return Verdict("unknown", history.unknown)
    more = history.counted_events
    if not others.corrections and others.complete:
        if more == 0:
            return not_taken
        if more == others.events + 1:
            return Verdict("counted", "it was taken, and it was not late")
    return Verdict(
        "unknown",
        f"the row counts {more} more after its commit, which has {others.count} others that may be"
        " for it: which of them, only the pipeline could tell",
    )
