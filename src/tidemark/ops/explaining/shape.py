"""An explanation as it is answered, in the order of the flow.

Times are texts with six digits and `Z`, 64-bit numbers are strings, and what an event does not have
is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemark.config.durations import format_duration
from tidemark.ledger.event_json import EventView, RejectView
from tidemark.ledger.port import EventRow
from tidemark.live.triggers.port import DeliveryRecord
from tidemark.mirror.places import UNKNOWN
from tidemark.ops.adjustments import AdjustmentEntry, adjusted_period_end, adjustment_entry
from tidemark.ops.explaining.contents import reason_of
from tidemark.ops.explaining.corrections import deciding
from tidemark.ops.explaining.gathering import InViews, MeterFinding, TableFinding
from tidemark.ops.explaining.in_ledger import InLedger
from tidemark.ops.explaining.origins import KeyOrigin
from tidemark.ops.explaining.row_shapes import MovedShown, moved_shown, shown_time
from tidemark.ops.explaining.rows import moved
from tidemark.ops.explaining.triggering import MovedRow, TriggerFinding
from tidemark.ops.explaining.verdicts import Judged
from tidemark.ops.explaining.window_shape import WindowShown
from tidemark.ops.pipeline_errors import PipelineErrorEntry
from tidemark.pipeline.definitions import METER_KEY, PERIOD_START, MeterDefinition
from tidemark.pipeline.stream_columns import TENANT_ID
from tidemark.timestamps import format_timestamp


class _Shape(msgspec.Struct, rename="camel", omit_defaults=True):
    pass


class IdentityShown(_Shape):
    """`origin` is `given` by the sender, or `derived` from a tuple of the event's own values."""

    origin: str
    derived_from: dict[str, Any] | None = None


class CommitShown(_Shape):
    """The commit of the event, and when the one before it was."""

    received_at: str
    first_sequence: str
    last_sequence: str
    chain: str
    previous_received_at: str | None = None


class MirroredShown(_Shape):
    """Where the event is in Kafka."""

    topic: str
    partition: int
    offset: str


class PipelineShown(_Shape):
    """Whether the views hold the event; if nobody can say, `reason` says why."""

    folded: bool | None
    frontier: str | None = None
    reason: str = ""


class TimeShown(_Shape):
    """How the event's stream tells time, and the event's own time."""

    plan: str
    occurred_at: str
    column: str | None = None
    type: str | None = None
    value: msgspec.Raw | None = None


class CorrectionShown(_Shape):
    """One correction of the event, or of its original."""

    ingress_sequence: str
    received_at: str
    control: str
    idempotency_key: str
    folded: bool | None
    decides: bool
    reason: str | None = None


class JudgedShown(_Shape):
    """One content of the event against one row of a meter: its period, and when it were late.

    Late is what happened before `late_before`, or is committed after `closes_at`.
    """

    said_by: str
    ts: str
    period_start: str
    period_end: str
    lateness: str
    late: bool | None
    watermark_ts: str | None = None
    late_before: str | None = None
    closes_at: str | None = None
    late_reason: str | None = None
    groups: dict[str, str | None] | None = None


class MeterShown(_Shape):
    """What became of the event in one meter."""

    meter: str
    outcome: str
    reason: str
    judged: list[JudgedShown] = []
    moved: list[MovedShown] = []


class TableShown(_Shape):
    """What became of the event in one table; `shown_sequence` is what its row comes from now."""

    table: str
    outcome: str
    reason: str
    moved: list[MovedShown] = []
    shown_sequence: str | None = None


class ViewShown(_Shape):
    """A view that shows the change of a row, to subscribers with this `ts_timestamp`."""

    view: str
    row: dict[str, msgspec.Raw]
    operation: str
    ts_timestamp: str


class DeliveryShown(_Shape):
    """What became of an event on its way to its webhook."""

    status: str
    attempts: int
    created_at: str
    next_attempt_at: str | None = None
    settled_at: str | None = None
    response_status: int | None = None
    last_error: str | None = None


class TriggerShown(_Shape):
    """What a trigger that watched the row made of its change; the event's id, if it has one."""

    trigger: str
    view: str
    row: dict[str, msgspec.Raw]
    outcome: str
    reason: str
    event_type: str | None = None
    event_id: str | None = None
    delivery: DeliveryShown | None = None


class EventExplained(_Shape, tag_field="kind", tag="event"):
    """Everything that is known of an event."""

    answer: str
    event: EventView
    identity: IdentityShown
    commit: CommitShown
    pipeline: PipelineShown
    time: TimeShown
    mirrored: MirroredShown | None = None
    errors: list[PipelineErrorEntry] = []
    original: EventView | None = None
    corrections: list[CorrectionShown] = []
    meters: list[MeterShown] = []
    tables: list[TableShown] = []
    windows: list[WindowShown] = []
    adjustments: list[AdjustmentEntry] = []
    views: list[ViewShown] = []
    triggers: list[TriggerShown] = []
    refusals: list[RejectView] = []
    notes: list[str] = []


class RejectExplained(_Shape, tag_field="kind", tag="reject"):
    """Why an event was refused, and the event that it is in conflict with."""

    answer: str
    reject: RejectView
    original: EventView | None = None


def identity_shown(origin: KeyOrigin) -> IdentityShown:
    if origin.derived_from is None:
        return IdentityShown("given")
    return IdentityShown("derived", dict(origin.derived_from))


def commit_shown(found: InLedger) -> CommitShown:
    commit = found.commit
    return CommitShown(
        received_at=format_timestamp(commit.received_at),
        first_sequence=str(commit.first_sequence),
        last_sequence=str(commit.last_sequence),
        chain=commit.chain.hex(),
        previous_received_at=shown_time(found.previous_received_at),
    )


def mirrored_shown(found: InLedger, topic_prefix: str) -> MirroredShown | None:
    if found.mirrored is None or found.mirrored == UNKNOWN:
        return None
    partition, offset = found.mirrored
    return MirroredShown(topic_prefix + found.event.stream, partition, str(offset))


def corrections_shown(
    corrections: Sequence[EventRow], frontier_sequence: int | None
) -> list[CorrectionShown]:
    """`frontier_sequence` is None where nobody knows what is folded."""
    decides = deciding(corrections)
    return [
        CorrectionShown(
            ingress_sequence=str(correction.ingress_sequence),
            received_at=format_timestamp(correction.received_at),
            control=str(correction.control),
            idempotency_key=correction.idempotency_key,
            folded=None
            if frontier_sequence is None
            else correction.ingress_sequence <= frontier_sequence,
            decides=correction is decides,
            reason=reason_of(correction),
        )
        for correction in corrections
    ]


def adjustments_shown(views: InViews) -> list[AdjustmentEntry]:
    return [
        adjustment_entry(it, adjusted_period_end(it, views.current_meters.get(it.view)))
        for it in views.adjustments
    ]


def meter_shown(finding: MeterFinding) -> MeterShown:
    meter = finding.meter
    key = (*METER_KEY, *meter.group_by, PERIOD_START)
    return MeterShown(
        meter.name,
        finding.verdict.outcome,
        finding.verdict.reason,
        [_judged(meter, judged) for judged in finding.judged],
        moved_shown((judged.history for judged in finding.judged), key),
    )


def table_shown(finding: TableFinding) -> TableShown:
    shown = [it.shown_sequence for it in finding.histories if it.shown_sequence is not None]
    return TableShown(
        finding.table.name,
        finding.verdict.outcome,
        finding.verdict.reason,
        moved_shown(finding.histories, (TENANT_ID, *finding.table.key)),
        str(shown[-1]) if shown else None,
    )


def view_shown(row: MovedRow) -> ViewShown:
    what = moved(row.change, row.schema.key)
    timestamp = str(row.change.received_at)
    return ViewShown(row.schema.name, what.row, what.operation, timestamp)


def trigger_shown(finding: TriggerFinding) -> TriggerShown:
    row, delivery = finding.row, finding.delivery
    return TriggerShown(
        trigger=finding.trigger.name,
        view=row.schema.name,
        row=moved(row.change, row.schema.key).row,
        outcome=finding.outcome,
        reason=finding.reason,
        event_type=finding.event_type,
        event_id=finding.event_id,
        delivery=None if delivery is None else _delivery(delivery),
    )


def _delivery(record: DeliveryRecord) -> DeliveryShown:
    return DeliveryShown(
        status=record.status,
        attempts=record.attempts,
        created_at=format_timestamp(record.created_at),
        next_attempt_at=shown_time(record.next_attempt_at),
        settled_at=shown_time(record.settled_at),
        response_status=record.last_status,
        last_error=record.last_error,
    )


def _judged(meter: MeterDefinition, judged: Judged) -> JudgedShown:
    place, history = judged.place, judged.history
    watermark = None if history.unknown else history.watermark
    closes = meter.close_after_us
    return JudgedShown(
        said_by=str(place.content.event.ingress_sequence),
        ts=format_timestamp(place.ts),
        period_start=format_timestamp(place.period_start),
        period_end=format_timestamp(place.period_end),
        lateness=format_duration(meter.lateness_us),
        late=None if history.unknown else judged.late is not None,
        watermark_ts=shown_time(watermark),
        late_before=None
        if watermark is None
        else shown_time(max(0, watermark - meter.lateness_us)),
        closes_at=None if closes is None else shown_time(place.period_end + closes),
        late_reason=judged.late,
        groups=dict(zip(meter.group_by, place.groups, strict=True)) or None,
    )
