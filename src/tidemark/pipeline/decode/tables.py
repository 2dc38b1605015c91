"""Events of a stream as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from tidemark.pipeline import facts
from tidemark.pipeline.decode.shape import (
    FIRST_SHOWN_US,
    LAST_SHOWN_US,
    WIDE_DECIMAL,
    FactShape,
    attempt_name,
    error_name,
    is_void,
    kept,
    kept_as,
    kind_of,
    ledger,
)
from tidemark.pipeline.decode.stream_fields import StreamFields, fault
from tidemark.pipeline.definitions import TableDefinition
from tidemark.pipeline.expressions import checked_type, require_type, tried, view_type
from tidemark.pipeline.output.schema import Column as ViewColumn
from tidemark.pipeline.stream_columns import TENANT_ID


class TableDecoder:
    """Decodes for one table. Making one checks its expressions and finds out their types."""

    def __init__(
        self,
        spark: SparkSession,
        table: TableDefinition,
        view: int,
        place: int,
        fields: StreamFields,
    ) -> None:
        self._spark = spark
        self._table = table
        self.view = view
        self._place = place
        self.fields = fields
        # Putting columns together takes longer than a small batch.
        self._fact: Column | None = None
        columns = fields.columns
        path = f"views.{table.name}"
        calculated = []
        for name, expression in table.calculated:
            field = f"{path}.calculated.{name}"
            kind = checked_type(spark, expression, columns, field)
            calculated.append(ViewColumn(name, view_type(kind, expression, field)))
        self.calculated = tuple(calculated)
        if table.delete_when is not None:
            kind = checked_type(spark, table.delete_when, columns, f"{path}.deleteWhen")
            require_type(kind, ("boolean",), table.delete_when, f"{path}.deleteWhen")

    @property
    def row_type(self) -> str:
        """The struct that holds a row, as it stands in the facts."""
        columns = (ViewColumn(TENANT_ID, "string"), *self._table.fields, *self.calculated)
        return f"struct<{', '.join(f'`{c.name}`: {kept_as(c)}' for c in columns)}>"

    @property
    def _attempts(self) -> dict[int, str]:
        expressions = [self._table.delete_when, *(text for _, text in self._table.calculated)]
        return {place: text for place, text in enumerate(expressions) if text is not None}

    @cached_property
    def attempts(self) -> list[Column]:
        """The columns that its fact needs besides those of the stream."""
        return [
            tried(self._spark, expression).alias(attempt_name(self.view, place))
            for place, expression in self._attempts.items()
        ]

    def fact(self, shape: FactShape, *, whole: bool) -> Column:
        """The table's fact, null where there is none; `whole` makes no difference."""
        if self._fact is None:
            self._fact = self._fact_column(shape, list(self._attempts))
        return self._fact

    @cached_property
    def error(self) -> Column:
        """A pair of code and message for an event that the table cannot take; else null."""
        attempts = [fn.col(attempt_name(self.view, place)) for place in self._attempts]
        return fn.when(~is_void(), self._error(attempts))

    def _fact_column(self, shape: FactShape, attempts: Sequence[int]) -> Column:
        table, view = self._table, self.view
        values = {place: fn.col(attempt_name(view, place)) for place in attempts}
        error, control = fn.col(error_name(view)), ledger("control")
        key = (fn.col(name) for name in table.key)
        time = self.fields.time(_time_said())
        is_row = ~is_void() & error.isNull()
        deleted = fn.coalesce(values[0]["v"], fn.lit(False)) if 0 in values else fn.lit(False)
        row = fn.struct(
            ledger("tenant_id").alias(TENANT_ID),
            *(kept(fn.col(column.name), column) for column in table.fields),
            *(kept(values[place]["v"], column) for place, column in enumerate(self.calculated, 1)),
        )
        fact = shape.fact(
            view=view,
            slot=fn.xxhash64(fn.lit(view), ledger("tenant_id"), *key),
            kind=kind_of(error),
            # Of one that is wrong, so that an amend finds it that makes it an event after all.
            ts=fn.when(is_row if self.fields.has_time else ~is_void(), time),
            deleted=fn.when(is_row, deleted),
            error_code=error[0],
            error_message=error[1],
            **{facts.table_column(self._place): fn.when(is_row, row)},
        )
        return fn.when(
            (ledger("stream") == table.stream)
            & (control.isNull() | control.isin(facts.VOID, facts.AMEND)),
            fact,
        )

    def _error(self, attempts: list[Column]) -> Column:
        """The same, whatever an event is."""
        own = self.fields.fault()
        faults = fn.when(own.isNotNull(), own)
        failed = fault(
            "expression_failed", f"an expression of view {self._table.name} fails for this event"
        )
        for attempt in attempts:
            faults = faults.when(attempt.isNull(), failed)
        for place, column in enumerate(self.calculated, 1):
            value = fn.col(attempt_name(self.view, place))["v"]
            for unfit, why in _unfit(value, column):
                wrong = fault("value_out_of_range", f"{column.name} {why}")
                faults = faults.when(value.isNotNull() & unfit, wrong)
        return faults


def _time_said() -> Column:
    """When it occurred; null for an amend that says nothing: it keeps the time of its original."""
    said = fn.unix_micros(fn.try_to_timestamp(ledger("parsed")["event"]["occurredAt"]))
    return fn.when(ledger("control") == "amend", said).otherwise(ledger("occurred_at"))


def _unfit(value: Column, column: ViewColumn) -> Iterator[tuple[Column, str]]:
    """When a calculated value cannot stand in a view, and why."""
    if column.type == "decimal":
        yield value.try_cast(WIDE_DECIMAL).isNull(), "has more than 29 digits"
    elif column.type == "timestamp":
        known = fn.unix_micros(value).between(FIRST_SHOWN_US, LAST_SHOWN_US)
        yield ~known, "is outside the years 1 to 9999"
    elif column.type == "string":
        yield ~fn.is_valid_utf8(value), "is not Unicode"
        yield value.contains("\0"), "has a NUL character"
