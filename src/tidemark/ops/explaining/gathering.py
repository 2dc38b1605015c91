"""Asks ledger and views for everything that is known of an event.

The work for one explanation is bounded, and what a bound cuts off is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tidemark.ledger.port import (
    CommitRow,
    EventFilter,
    EventRow,
    LedgerStore,
    RejectFilter,
    RejectRow,
)
from tidemark.ops.explaining.contents import Content, content_of
from tidemark.ops.explaining.corrections import overruled_by, sides_of
from tidemark.ops.explaining.places import meter_place, table_row_key
from tidemark.ops.explaining.rows import Neighbours, RowHistory, row_members
from tidemark.ops.explaining.table_verdicts import TableEvidence, TableVerdict, table_verdict_of
from tidemark.ops.explaining.verdicts import Evidence, Judged, Verdict, judge, verdict_of
from tidemark.pipeline.definition_hash import definition_hash
from tidemark.pipeline.definitions import (
    Definition,
    Definitions,
    MeterDefinition,
    TableDefinition,
)
from tidemark.pipeline.output.batch import Adjustment, ErrorRow, Frontier
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.errors import ChangesForgotten
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import AdjustmentFilter, ErrorFilter, ViewsStore

MOST_CORRECTIONS: Final = 100
MOST_ADJUSTMENTS: Final = 100
MOST_NEIGHBOURS: Final = 1000
MOST_REFUSALS: Final = 10
_MOST_ERRORS: Final = 100
_SEQUENCE: Final = "row_seq"

RowKeyOf = Callable[[Content], str | None]


class InLedger(msgspec.Struct, frozen=True):
    """What the ledger knows of an event.

    `corrections` are those of the event or, if it is one itself, of its `original`.
    """

    event: EventRow
    commit: CommitRow
    previous_received_at: int | None
    original: EventRow | None
    corrections: list[EventRow]
    refusals: list[RejectRow]
    neighbours: list[EventRow]
    neighbours_complete: bool

    @property
    def contents(self) -> list[Content]:
        """What it says, or what it changes and into what."""
        if self.original is not None:
            return sides_of(self.event, self.original, self.corrections)
        content = content_of(self.event)
        return [] if content is None else [content]


class MeterFinding(msgspec.Struct, frozen=True):
    """What became of an event in one meter."""

    meter: MeterDefinition
    verdict: Verdict
    judged: Sequence[Judged] = ()


class TableFinding(msgspec.Struct, frozen=True):
    """What became of an event in one table."""

    table: TableDefinition
    verdict: TableVerdict
    histories: Sequence[RowHistory] = ()


class InViews(msgspec.Struct, frozen=True):
    """What the views know of an event that they hold."""

    errors: list[ErrorRow]
    adjustments: list[Adjustment]
    meters: list[MeterFinding]
    tables: list[TableFinding]
    # The definitions that the views were built with, as far as they are those of now.
    current_meters: dict[str, MeterDefinition]
    schemas: dict[str, ViewSchema]


async def look_into_ledger(ledger: LedgerStore, event: EventRow) -> InLedger:
    """Everything that the ledger knows of one of its events."""
    [commit] = await ledger.read_commits(event.received_at - 1, 1)
    previous = await ledger.last_commit(event.received_at)
    original = None
    if event.target_key is not None:
        original = await ledger.find_event(event.tenant_id, event.target_key)
    key = event.idempotency_key if event.target_key is None else event.target_key
    is_usage = event.metric is not None
    page = await ledger.read_events(
        EventFilter(
            tenant_ids=(event.tenant_id,),
            stream=event.stream,
            metric=event.metric if is_usage else None,
            customer_ref=event.customer_ref if is_usage else None,
            sequence_from=commit.first_sequence,
            sequence_to=commit.last_sequence + 1,
        ),
        0,
        MOST_NEIGHBOURS,
    )
    return InLedger(
        event=event,
        commit=commit,
        previous_received_at=None if previous is None else previous.received_at,
        original=original,
        corrections=await ledger.find_corrections(event.tenant_id, key, MOST_CORRECTIONS),
        refusals=await ledger.read_rejects(
            RejectFilter(tenant_ids=(event.tenant_id,), idempotency_key=event.idempotency_key),
            MOST_REFUSALS,
        ),
        neighbours=[it for it in page.events if it.ingress_sequence != event.ingress_sequence],
        neighbours_complete=page.complete,
    )


def holds(frontier: Frontier | None, event: EventRow) -> bool:
    """Whether views that stand there have folded an event."""
    return frontier is not None and event.ingress_sequence <= frontier.ingress_sequence


async def look_into_views(views: ViewsStore, definitions: Definitions, found: InLedger) -> InViews:
    """Everything that the views know of an event that they hold."""
    event = found.event
    tenant, sequence = (event.tenant_id,), event.ingress_sequence
    errors = await views.read_errors(
        ErrorFilter(tenant_ids=tenant, ingress_sequence=sequence), limit=_MOST_ERRORS
    )
    own, by_corrections = [
        (await views.read_adjustments(wanted, limit=MOST_ADJUSTMENTS)).adjustments
        for wanted in (
            AdjustmentFilter(tenant_ids=tenant, ingress_sequence=sequence),
            AdjustmentFilter(tenant_ids=tenant, original_sequence=sequence),
        )
    ]
    schemas = {schema.name: schema for schema in await views.declared()}
    look = _Look(views, found, errors.errors, own, schemas)
    meters = [await look.meter(meter) for meter in definitions.meters if event.metric is not None]
    tables = [
        await look.table(table)
        for table in definitions.tables
        if event.stream == table.stream and event.control in (None, "void", "amend")
    ]
    current = {it.name: it for it in definitions.meters if look.unlike(it) is None}
    return InViews(errors.errors, [*own, *by_corrections], meters, tables, current, schemas)


class _Look:
    """Looks for one event in one view after the other."""

    def __init__(
        self,
        views: ViewsStore,
        found: InLedger,
        errors: list[ErrorRow],
        adjustments: list[Adjustment],
        schemas: dict[str, ViewSchema],
    ) -> None:
        self._views = views
        self._found = found
        self._errors = errors
        self._adjustments = adjustments
        self._schemas = schemas

    def unlike(self, definition: Definition) -> str | None:
        """Why the views say nothing of what is defined, if so."""
        schema = self._schemas.get(definition.name)
        if schema is None:
            return "the pipeline has not begun with it"
        if schema.definition_hash != definition_hash(definition):
            return "it was built with another definition than it has now"
        return None

    async def meter(self, meter: MeterDefinition) -> MeterFinding:
        found = self._found
        event = found.event
        unlike = self.unlike(meter)
        if unlike is not None:
            return MeterFinding(meter, Verdict("unknown", unlike))
        judged: list[Judged] = []
        if event.metric == meter.metric:

            def key_of(content: Content) -> str | None:
                its_place = meter_place(meter, content)
                return None if its_place is None else its_place.row_key

            for content in found.contents:
                place = meter_place(meter, content)
                if place is not None:
                    history = await self._history(meter.name, place.row_key, key_of)
                    judged.append(judge(meter, place, history, found.previous_received_at))
        evidence = Evidence(
            event=event,
            meter=meter,
            judged=judged,
            adjustments=[it for it in self._adjustments if it.view == meter.name],
            errors=self._errors_of(f"meter {meter.name}"),
            overruled_by=self._overruled_by(),
        )
        return MeterFinding(meter, verdict_of(evidence), judged)

    async def table(self, table: TableDefinition) -> TableFinding:
        unlike = self.unlike(table)
        if unlike is not None:
            return TableFinding(table, TableVerdict("unknown", unlike))

        def key_of(content: Content) -> str | None:
            return table_row_key(table, content)

        keys = dict.fromkeys(table_row_key(table, content) for content in self._found.contents)
        histories = [await self._history(table.name, key, key_of) for key in keys]
        evidence = TableEvidence(
            event=self._found.event,
            table=table,
            histories=histories,
            errors=self._errors_of(f"table {table.name}"),
        )
        return TableFinding(table, table_verdict_of(evidence), histories)

    async def _history(self, view: str, row_key: str, key_of: RowKeyOf) -> RowHistory:
        """A row at the commit of the event."""
        received_at = self._found.event.received_at
        schema = self._schemas[view]
        # The row first: a change that is not in the log after that is not in the row either.
        rows = await self._views.read_state(view, [row_key])
        row = rows[0] if rows else None
        shown_sequence, current = None, None
        if row is not None:
            values = dict(zip((it.name for it in schema.columns), row.values, strict=True))
            current = row_members(encode_row(schema, values))
            place = values.get(_SEQUENCE)
            shown_sequence = place if isinstance(place, int) else None
        known = RowHistory(
            row_key, neighbours=self._neighbours(row_key, key_of), shown_sequence=shown_sequence
        )
        replace = msgspec.structs.replace
        try:
            search = await self._views.find_change(view, row_key, received_at)
        except ChangesForgotten:
            why = "the log of changes does not reach back to its commit any more"
            return replace(known, unknown=why if schema.logged else "no log of changes is kept")
        change = search.change
        if change is not None:
            at_commit = change if change.received_at == received_at else None
            return replace(known, before=row_members(change.old_row), change=at_commit)
        if search.complete or (row is not None and row.received_at < received_at):
            return replace(known, before=current)
        return replace(
            known, unknown="so much has changed since its commit that the log was not searched"
        )

    def _neighbours(self, row_key: str, key_of: RowKeyOf) -> Neighbours:
        events = adjustments = corrections = 0
        for other in self._found.neighbours:
            if other.control in ("void", "amend"):
                corrections += 1
                continue
            content = content_of(other)
            if content is not None and key_of(content) == row_key:
                if other.control is None:
                    events += 1
                else:
                    adjustments += 1
        return Neighbours(events, adjustments, corrections, self._found.neighbours_complete)

    def _errors_of(self, stage: str) -> list[ErrorRow]:
        return [error for error in self._errors if error.stage == stage]

    def _overruled_by(self) -> EventRow | None:
        if self._found.original is None:
            return None
        return overruled_by(self._found.event, self._found.corrections)
