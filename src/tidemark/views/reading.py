"""How views are read as they are, written once: both dialects agree on every query here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, ClassVar

import msgspec

from tidemark.pipeline.output.batch import Adjustment, ErrorRow, Frontier
from tidemark.pipeline.output.encoding import KEPT_KEY_BYTES, key_prefix
from tidemark.pipeline.output.errors import UnknownView
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import (
    ROW_KEY,
    ROW_RECEIVED_AT,
    Column,
    Value,
    ViewSchema,
    quoted,
)
from tidemark.views.port import (
    AdjustmentCursor,
    AdjustmentFilter,
    AdjustmentPage,
    ErrorCursor,
    ErrorFilter,
    ErrorPage,
    RowFilter,
    RowPage,
    SetAside,
)
from tidemark.views.scanning import Conditions, Query, Row, Scan
from tidemark.views.tables import VIEW_COLUMNS

ADJUSTMENT_COLUMNS = Adjustment.__struct_fields__
ERROR_COLUMNS = ErrorRow.__struct_fields__
_AMOUNT = ADJUSTMENT_COLUMNS.index("amount")

FRONTIER: Query = ("SELECT ingress_sequence, received_at, chain, ledger_id FROM frontier", ())
SCHEMAS = f"SELECT {', '.join(VIEW_COLUMNS)} FROM views"

Convert = Callable[[Any], Any]

# A driver that is given 1.5 for an integer may well write 1.
WHOLE_NUMBERS: Mapping[str, Convert] = dict.fromkeys(("int", "bigint", "timestamp"), index)


class ViewsReader(ABC):
    """The reading half of a store. A dialect says how to fetch and how it spells some types."""

    # What a dialect keeps for a type, where that is not the Python value itself.
    _to_store: ClassVar[Mapping[str, Convert]]
    _from_store: ClassVar[Mapping[str, Convert]]

    def __init__(self) -> None:
        self._schemas: dict[str, ViewSchema] = {}

    @abstractmethod
    async def _snapshot(self, *queries: Query) -> list[list[Row]]:
        """The answers to some queries, all as of one moment."""

    @abstractmethod
    def _in_list(self, column: str, count: int) -> str:
        """A condition that `column` is one of `count` values."""

    @abstractmethod
    def _in_values(self, values: Sequence[object]) -> list[object]:
        """The parameters that belong to `_in_list`."""

    async def frontier(self) -> Frontier | None:
        [[row]] = await self._snapshot(FRONTIER)
        return read_frontier(row)

    async def declared(self) -> list[ViewSchema]:
        [rows] = await self._snapshot((f"{SCHEMAS} ORDER BY name", ()))
        schemas = [read_schema(row) for row in rows]
        # Views that were removed and built anew are not those that were remembered.
        self._schemas = {schema.name: schema for schema in schemas}
        return schemas

    async def read_pipeline_state(self) -> dict[str, bytes]:
        [rows] = await self._snapshot(("SELECT name, value FROM pipeline_state", ()))
        return {row[0]: bytes(row[1]) for row in rows}

    async def read_rows(
        self, view: str, row_filter: RowFilter, *, after: str | None = None, limit: int
    ) -> RowPage:
        schema = await self._schema(view)
        bounds = Conditions()
        bounds.add_if(f"{ROW_KEY} > ?", after)
        first, end = key_range(schema, row_filter)
        bounds.add_if(f"{ROW_KEY} >= ?", first)
        bounds.add_if(f"{ROW_KEY} < ?", end)
        columns = schema.visible
        names = [ROW_KEY, ROW_RECEIVED_AT, *(quoted(column.name) for column in columns)]
        filters = self._row_conditions(schema, row_filter)
        scan = Scan(schema.table, names, [ROW_KEY], bounds, filters, limit)
        [[position], *answers] = await self._snapshot(FRONTIER, *scan.queries())
        cursor = scan.next_cursor(answers)
        return RowPage(
            tuple(column.name for column in columns),
            self._rows(columns, answers[0]),
            None if cursor is None else cursor[0],
            read_frontier(position),
        )

    async def read_adjustments(
        self,
        adjustment_filter: AdjustmentFilter,
        *,
        after: AdjustmentCursor | None = None,
        limit: int,
    ) -> AdjustmentPage:
        bounds, filters = Conditions(), Conditions()
        tenants = adjustment_filter.tenant_ids
        if tenants is not None:
            if len(tenants) == 1:
                bounds.add(
                    "substr(tenant_id, 1, 200) = substr(CAST(? AS text), 1, 200)", tenants[0]
                )
            filters.add(self._in_list("tenant_id", len(tenants)), *self._in_values(tenants))
        bounds.add_if("ingress_sequence = ?", adjustment_filter.ingress_sequence)
        bounds.add_if("original_sequence = ?", adjustment_filter.original_sequence)
        for condition, value in (
            ("view = ?", adjustment_filter.view),
            ("metric = ?", adjustment_filter.metric),
            ("customer_ref = ?", adjustment_filter.customer_ref),
            ("period_start >= ?", adjustment_filter.period_from),
            ("period_start < ?", adjustment_filter.period_to),
        ):
            filters.add_if(condition, value)
        if after is not None:
            bounds.add("(ingress_sequence, view, part) > (?, ?, ?)", *after)
        order = ADJUSTMENT_COLUMNS[:3]
        scan = Scan("adjustments", ADJUSTMENT_COLUMNS, order, bounds, filters, limit)
        [[position], *answers] = await self._snapshot(FRONTIER, *scan.queries())
        cursor = scan.next_cursor(answers)
        adjustments = [self._adjustment(row) for row in answers[0]]
        return AdjustmentPage(adjustments, cursor and tuple(cursor), read_frontier(position))

    async def read_errors(
        self, error_filter: ErrorFilter, *, after: ErrorCursor | None = None, limit: int
    ) -> ErrorPage:
        bounds, filters = Conditions(), Conditions()
        bounds.add_if("ingress_sequence = ?", error_filter.ingress_sequence)
        if after is not None:
            bounds.add("(ingress_sequence, stage) > (?, ?)", *after)
        tenants = error_filter.tenant_ids
        if tenants is not None:
            filters.add(self._in_list("tenant_id", len(tenants)), *self._in_values(tenants))
        filters.add_if("stream = ?", error_filter.stream)
        filters.add_if("code = ?", error_filter.code)
        order = ERROR_COLUMNS[:2]
        scan = Scan("pipeline_errors", ERROR_COLUMNS, order, bounds, filters, limit)
        [[position], *answers] = await self._snapshot(FRONTIER, *scan.queries())
        cursor = scan.next_cursor(answers)
        errors = [ErrorRow(*row) for row in answers[0]]
        return ErrorPage(errors, cursor and tuple(cursor), read_frontier(position))

    async def count_set_aside(self, after: int, upto: int) -> SetAside:
        counts = (
            "SELECT {0}, count(*) FROM {1}"
            " WHERE ingress_sequence > ? AND ingress_sequence <= ? GROUP BY {0}"
        )
        answers = await self._snapshot(
            (counts.format("view", "adjustments"), (after, upto)),
            (counts.format("code", "pipeline_errors"), (after, upto)),
        )
        return SetAside(*({row[0]: int(row[1]) for row in rows} for rows in answers))

    async def _schema(self, view: str) -> ViewSchema:
        """As it was when `declared` or `declare` was last called, unless it is not known yet."""
        if view not in self._schemas:
            await self.declared()
        if view not in self._schemas:
            raise UnknownView(
                f"there is no view {view}",
                hint=f"There are: {', '.join(sorted(self._schemas)) or 'none yet'}.",
                field="view",
            )
        return self._schemas[view]

    def _rows(self, columns: Sequence[Column], rows: Sequence[Row]) -> list[ViewRow]:
        """Rows of a key, a time and the values of `columns`."""
        converts = [
            (place, self._from_store[column.type])
            for place, column in enumerate(columns)
            if column.type in self._from_store
        ]
        result = []
        for row in rows:
            values = list(row[2:])
            for place, convert in converts:
                if values[place] is not None:
                    values[place] = convert(values[place])
            result.append(ViewRow(row[0], row[1], tuple(values)))
        return result

    def _stored(self, column: Column, values: Sequence[Value]) -> Sequence[object]:
        """What the store keeps for the values of a column."""
        convert = self._to_store.get(column.type)
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]

    def _kept(self, adjustment: Adjustment) -> Adjustment:
        """The adjustment as the store keeps it."""
        amount: Any = self._to_store["decimal"](adjustment.amount)
        return msgspec.structs.replace(adjustment, amount=amount)

    def _adjustment(self, row: Row) -> Adjustment:
        values = list(row)
        if "decimal" in self._from_store:
            values[_AMOUNT] = self._from_store["decimal"](values[_AMOUNT])
        return Adjustment(*values)

    def _row_conditions(self, schema: ViewSchema, row_filter: RowFilter) -> Conditions:
        conditions = Conditions()
        visible = {column.name: column for column in schema.visible}

        def add(operator: str, values: Mapping[str, Value]) -> None:
            for name, value in values.items():
                column = _visible_column(schema, visible, name)
                conditions.add(f"{quoted(name)} {operator} ?", *self._stored(column, [value]))

        nulls = [name for name, value in row_filter.equal.items() if value is None]
        for name in nulls:
            conditions.add(f"{quoted(_visible_column(schema, visible, name).name)} IS NULL")
        add("=", {name: value for name, value in row_filter.equal.items() if value is not None})
        add(">=", row_filter.at_least)
        add("<", row_filter.below)
        for name, values in row_filter.one_of.items():
            stored = self._stored(_visible_column(schema, visible, name), values)
            conditions.add(self._in_list(quoted(name), len(stored)), *self._in_values(stored))
        return conditions


def key_range(schema: ViewSchema, row_filter: RowFilter) -> tuple[str | None, str | None]:
    """Between which keys the rows of a filter lie, as far as the first columns of the key say."""
    columns: list[Column] = []
    values: list[Value] = []
    for column in schema.key_columns:
        choices = row_filter.one_of.get(column.name, ())
        if column.name in row_filter.equal:
            values.append(row_filter.equal[column.name])
        elif len(choices) == 1 and choices[0] is not None:
            values.append(choices[0])
        else:
            break
        columns.append(column)
    # A whole key ends in a bracket, the beginning of one in a comma; so does no longer value. What
    # a long key keeps of its text may be less than the filter says.
    while columns:
        text = key_prefix(columns, values)
        if len(text.encode()) < KEPT_KEY_BYTES:
            last, beyond = ("]", "^") if len(columns) == len(schema.key) else (",", "-")
            return text + last, text + beyond
        columns.pop()
        values.pop()
    return None, None


def read_frontier(row: Row) -> Frontier | None:
    """None as long as no ledger has been read."""
    if row[3] is None:
        return None
    return Frontier(row[0], row[1], bytes(row[2]), row[3])


def read_schema(row: Row) -> ViewSchema:
    """From a row of `views`."""
    name, definition_hash, columns, key, logged, *_ = row
    return ViewSchema(
        name,
        msgspec.json.decode(columns, type=tuple[Column, ...]),
        msgspec.json.decode(key, type=tuple[str, ...]),
        definition_hash,
        bool(logged),
    )


def _visible_column(schema: ViewSchema, visible: Mapping[str, Column], name: str) -> Column:
    if name not in visible:
        raise UnknownView(
            f"view {schema.name} has no column {name}",
            hint=f"Its columns are: {', '.join(visible)}.",
            field=name,
        )
    return visible[name]
