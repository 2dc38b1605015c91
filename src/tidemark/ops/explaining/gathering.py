"""Asks the views for everything that they know of an event.

The work for one explanation is bounded, and what a bound cuts off is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from tidemark.decimals import plain_decimal
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import Content, content_of
from tidemark.ops.explaining.corrections import overruled_by
from tidemark.ops.explaining.event_times import Reached
from tidemark.ops.explaining.in_ledger import InLedger
from tidemark.ops.explaining.places import meter_place, table_row_key
from tidemark.ops.explaining.rows import Neighbours, RowHistory, row_members
from tidemark.ops.explaining.table_verdicts import TableEvidence, TableVerdict, table_verdict_of
from tidemark.ops.explaining.verdicts import Evidence, Judged, Verdict, judge, verdict_of
from tidemark.ops.explaining.window_places import (
    WindowPlace,
    late_row_key,
    time_in_window,
    window_places,
)
from tidemark.ops.explaining.window_verdicts import (
    Aside,
    WindowEvidence,
    WindowJudged,
    WindowState,
    WindowVerdict,
    judge_window,
    window_verdict_of,
)
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
from tidemark.pipeline.output.schema import Value, ViewSchema
from tidemark.pipeline.windows.definition import IS_CLOSED, WindowDefinition
from tidemark.views.port import AdjustmentFilter, ErrorFilter, ViewsStore

MOST_ADJUSTMENTS: Final = 100
MOST_WINDOWS: Final = 20
_MOST_ERRORS: Final = 100
_SEQUENCE: Final = "row_seq"

RowKeyOf = Callable[[Content], str | None]


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


class WindowFinding(msgspec.Struct, frozen=True):
    """What became of an event in the windows of one definition.

    `reached` is how far time had come before its commit. `left_out` counts windows that were not
    looked at. Of what is not `is_of_event`, a correction or a failure, there is one verdict only.
    """

    window: WindowDefinition
    verdict: WindowVerdict
    judged: Sequence[WindowJudged] = ()
    reached: Reached | None = None
    left_out: int = 0
    is_of_event: bool = True


class InViews(msgspec.Struct, frozen=True):
    """What the views know of an event that they hold."""

    errors: list[ErrorRow]
    adjustments: list[Adjustment]
    meters: list[MeterFinding]
    tables: list[TableFinding]
    windows: list[WindowFinding]
    # The definitions that the views were built with, as far as they are those of now.
    current_meters: dict[str, MeterDefinition]
    schemas: dict[str, ViewSchema]


def holds(frontier: Frontier | None, event: EventRow) -> bool:
    """Whether views that stand there have folded an event."""
    return frontier is not None and event.ingress_sequence <= frontier.ingress_sequence


async def look_into_views(
    views: ViewsStore, definitions: Definitions, found: InLedger, reached: Reached
) -> InViews:
    """Everything that the views know of an event that they hold.

    `reached` is how far time had come before its commit, for those who go by it.
    """
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
    look = _Look(views, found, errors.errors, own, schemas, reached)
    meters = [await look.meter(meter) for meter in definitions.meters if event.metric is not None]
    tables = [
        await look.table(table)
        for table in definitions.tables
        if event.stream == table.stream and event.control in (None, "void", "amend")
    ]
    windows = [await look.window(window) for window in windows_of(definitions, event)]
    current = {it.name: it for it in definitions.meters if look.unlike(it) is None}
    return InViews(
        errors.errors, [*own, *by_corrections], meters, tables, windows, current, schemas
    )


def windows_of(definitions: Definitions, event: EventRow) -> list[WindowDefinition]:
    """The windows that an event may fall in, or a correction of one."""
    if event.control not in (None, "void", "amend"):
        return []
    return [window for window in definitions.windows if window.stream == event.stream]


class _Look:
    """Looks for one event in one view after the other."""

    def __init__(
        self,
        views: ViewsStore,
        found: InLedger,
        errors: list[ErrorRow],
        adjustments: list[Adjustment],
        schemas: dict[str, ViewSchema],
        reached: Reached,
    ) -> None:
        self._views = views
        self._found = found
        self._errors = errors
        self._adjustments = adjustments
        self._schemas = schemas
        self._reached = reached

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

    async def window(self, window: WindowDefinition) -> WindowFinding:
        unlike = self.unlike(window)
        if unlike is not None:
            return WindowFinding(window, WindowVerdict("unknown", unlike))
        places = [it for content in self._found.contents for it in self._places(window, content)]
        looked_at = places[-MOST_WINDOWS:]
        judged = [await self._judge(window, place) for place in looked_at]
        errors = self._errors_of(f"window {window.name}")
        evidence = WindowEvidence(self._found.event, window, judged, errors, self._overruled_by())
        return WindowFinding(
            window,
            window_verdict_of(evidence),
            judged,
            self._reached,
            left_out=len(places) - len(looked_at),
            is_of_event=self._found.event.control is None and not errors,
        )

    def _places(self, window: WindowDefinition, content: Content) -> list[WindowPlace]:
        # What is amended has the time of what it corrects, where events do not say their own.
        original = self._found.original or self._found.event
        ts = time_in_window(window, content, original.received_at)
        return [] if ts is None else window_places(window, content, ts)

    async def _judge(self, window: WindowDefinition, place: WindowPlace) -> WindowJudged:
        def key_of(content: Content) -> str | None:
            keys = {it.row_key for it in self._places(window, content)}
            return place.row_key if place.row_key in keys else None

        history = await self._history(window.name, place.row_key, key_of)
        state = await self._state(window, place)
        aside = await self._aside(window, place)
        return judge_window(
            window,
            place,
            history,
            state,
            self._reached,
            aside,
            is_corrected=bool(self._found.corrections),
        )

    async def _state(self, window: WindowDefinition, place: WindowPlace) -> WindowState:
        """Whether a window is open now; one that is final is kept as a row only."""
        for view in (window.name, window.open_view):
            values = await self._values(view, place.row_key)
            if values is not None:
                return "closed" if values[IS_CLOSED] else "open"
        return "empty"

    async def _aside(self, window: WindowDefinition, place: WindowPlace) -> Aside | None:
        if window.late_view is None or window.late_view not in self._schemas:
            return None
        event = self._found.event
        part = 1 if event.control is not None and place.content.event is event else 0
        key = late_row_key(window, place, event.ingress_sequence, part)
        values = await self._values(window.late_view, key)
        if values is None:
            return None
        amount = values["amount"]
        assert isinstance(amount, Decimal)
        return Aside(plain_decimal(amount), str(values["reason"]))

    async def _values(self, view: str, row_key: str) -> dict[str, Value] | None:
        """A row as it is now, by column."""
        rows = await self._views.read_state(view, [row_key])
        if not rows:
            return None
        names = (column.name for column in self._schemas[view].columns)
        return dict(zip(names, rows[0].values, strict=True))

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
