"""What triggers made of the rows that an event moved.

The id of a trigger's event follows from the trigger, the row and the time of the change, so its
delivery is found by computing it. Where none is kept, the condition of the trigger is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from tidemark.errors import TidemarkError
from tidemark.live.triggers.conditions import RuleOf, condition_of
from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.event_ids import event_id, primary_key
from tidemark.live.triggers.port import DeliveryRecord, TriggerStore
from tidemark.live.triggers.transitions import Change, Condition, EventType, step
from tidemark.ops.explaining.gathering import InViews
from tidemark.ops.explaining.rows import RowHistory
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ChangeRow

Firing: TypeAlias = Literal["fired", "not_fired", "not_yet", "unknown"]


class MovedRow(msgspec.Struct, frozen=True):
    """A row of a view that changed at the commit of the event."""

    schema: ViewSchema
    change: ChangeRow


class TriggerFinding(msgspec.Struct, frozen=True):
    """What one trigger made of one row. Without a `delivery` none is kept of it."""

    trigger: Trigger
    row: MovedRow
    outcome: Firing
    reason: str
    event_type: EventType | None = None
    event_id: str | None = None
    delivery: DeliveryRecord | None = None


class Telling(msgspec.Struct, frozen=True):
    """What is needed to tell of triggers: whose are told, what their creators see, their ids.

    Deliveries that were over by `kept_since` may be forgotten.
    """

    may_see: Callable[[Trigger], bool]
    rule_of: RuleOf
    id_prefix: str
    kept_since: int


def moved_rows(views: InViews) -> list[MovedRow]:
    """The rows that changed at the event's commit, each once, in the order of the findings."""
    histories: list[tuple[str, RowHistory]] = [
        (finding.meter.name, judged.history)
        for finding in views.meters
        for judged in finding.judged
    ]
    histories += [
        (finding.table.name, history) for finding in views.tables for history in finding.histories
    ]
    histories += [
        (finding.window.name, judged.history)
        for finding in views.windows
        for judged in finding.judged
    ]
    found = {
        (view, history.row_key): MovedRow(views.schemas[view], history.change)
        for view, history in histories
        if history.change is not None
    }
    return list(found.values())


async def look_into_triggers(
    store: TriggerStore, rows: Sequence[MovedRow], telling: Telling
) -> list[TriggerFinding]:
    """Every trigger that watched one of the rows at that time. Raises `TriggersUnavailable`."""
    by_view: dict[str, list[Trigger]] = {}
    found = []
    for row in rows:
        view, at = row.schema.name, row.change.received_at
        if view not in by_view:
            by_view[view] = await store.listed(view=view, ended=True)
        for trigger in by_view[view]:
            watched = trigger.since < at and (trigger.until is None or at <= trigger.until)
            if watched and telling.may_see(trigger):
                found.append(await _finding(store, trigger, row, telling))
    return found


async def _finding(
    store: TriggerStore, trigger: Trigger, row: MovedRow, telling: Telling
) -> TriggerFinding:
    text = row.change.row or row.change.old_row
    assert text is not None
    at = row.change.received_at
    identity = event_id(trigger.name, primary_key(row.schema, text), at, telling.id_prefix)
    delivery = await store.find_event(identity)
    if delivery is not None:
        how = "entered" if delivery.event_type == "MATCH" else "left"
        reason = f"the row {how} its condition"
        return TriggerFinding(
            trigger, row, "fired", reason, delivery.event_type, identity, delivery
        )
    if trigger.position < at:
        reason = "it has not come to this change yet"
        if not trigger.enabled:
            why = trigger.disabled_reason
            reason = f"it is disabled{f': {why}' if why else ''}"
        return TriggerFinding(trigger, row, "not_yet", reason)
    return _without_delivery(trigger, row, identity, telling)


def _without_delivery(
    trigger: Trigger, row: MovedRow, identity: str, telling: Telling
) -> TriggerFinding:
    """Of a change that the trigger has seen, and of which no event is kept."""
    try:
        condition = condition_of(row.schema, trigger, telling.rule_of)
    except TidemarkError as error:
        return TriggerFinding(
            trigger, row, "unknown", f"its condition cannot be used any more: {error.message}"
        )
    change = Change(row.schema, row.change)
    # Whether the row was matched may depend on its past, so both pasts are tried.
    outcomes = [step(condition, [change], held).transitions for held in ((), (row.change.row_key,))]
    if not any(outcomes):
        return TriggerFinding(trigger, row, "not_fired", _why_not(condition, change))
    is_kept = trigger.until is None and row.change.received_at > telling.kept_since
    if not all(outcomes) and is_kept:
        return TriggerFinding(trigger, row, "not_fired", "the row was on the same side before")
    if not all(outcomes):
        return TriggerFinding(
            trigger, row, "unknown", "whether the row was matched before is not known any more"
        )
    [transition] = outcomes[0]
    reason = "its delivery was forgotten after its time, or dropped with the trigger"
    return TriggerFinding(trigger, row, "fired", reason, transition.event_type, identity)


def _why_not(condition: Condition, change: Change) -> str:
    if not change.concerns(condition):
        return "nothing that its condition looks at has changed"
    if condition.verdict(change.new):
        return "the row matched before and after"
    if condition.verdict(change.old) is False and condition.verdict(change.new) is False:
        return "the row matched neither before nor after"
    return "the row is between `match` and `unmatch`"
