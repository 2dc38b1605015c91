"""Events of a stream as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidemark.pipeline import facts
from tidemark.pipeline.decode.json_text import raw_member
from tidemark.pipeline.decode.shape import (
    SPARK_TYPES,
    FactShape,
    attempt_name,
    ledger,
    made,
    made_name,
    struct_of,
    typed,
)
from tidemark.pipeline.definitions import TENANT_ID, TableDefinition
from tidemark.pipeline.expressions import checked_type, require_type, tried, view_type
from tidemark.pipeline.output.schema import Column as ViewColumn

TimeParser = Callable[[Column], Column]

# Sums and products may be wider than what an event can carry.
_WIDE_DECIMAL = "decimal(38,9)"
# The years 1 to 9999, which is what text can show.
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999
# Holds the text that is no JSON. No field has such a name.
_CORRUPT = "@corrupt"
_KEPT_AS = {"timestamp": "bigint", "decimal": _WIDE_DECIMAL}


class TableDecoder:
    """Decodes for one table. Making one checks its expressions and finds out their types."""

    def __init__(
        self,
        spark: SparkSession,
        table: TableDefinition,
        view: int,
        place: int,
        required: frozenset[str],
        time_parser: TimeParser | None,
    ) -> None:
        self._spark = spark
        self._table = table
        self._view = view
        self._place = place
        self._required = required
        self._time_parser = time_parser
        # Putting one together takes longer than a small batch.
        self._fact: Column | None = None
        columns = self._columns()
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
        return f"struct<{', '.join(f'`{c.name}`: {_kept_as(c)}' for c in columns)}>"

    def fact(self, frame: DataFrame, shape: FactShape) -> tuple[DataFrame, str]:
        """The rows with a column for the table's fact, null where there is none."""
        table, view = self._table, self._view
        frame = self._with_fields(frame)
        attempts = {
            place: expression
            for place, expression in enumerate(
                [table.delete_when, *(expression for _, expression in table.calculated)]
            )
            if expression is not None
        }
        frame = frame.select(
            "*",
            *(
                tried(self._spark, expression).alias(attempt_name(view, place))
                for place, expression in attempts.items()
            ),
        )
        if self._fact is None:
            self._fact = self._fact_column(shape, list(attempts))
        name = made_name(f"fact_{view}")
        return frame.withColumn(name, self._fact), name

    def _fact_column(self, shape: FactShape, attempts: Sequence[int]) -> Column:
        table, view = self._table, self._view
        values = {place: fn.col(attempt_name(view, place)) for place in attempts}
        error = self._error(list(values.values()))
        key = (fn.col(name) for name in table.key)
        owner = {
            "view": fn.lit(view),
            "slot": fn.xxhash64(fn.lit(view), ledger("tenant_id"), *key),
        }
        control = ledger("control")
        deleted = fn.coalesce(values[0]["v"], fn.lit(False)) if 0 in values else fn.lit(False)
        row = fn.struct(
            ledger("tenant_id").alias(TENANT_ID),
            *(_kept(fn.col(column.name), column) for column in table.fields),
            *(_kept(values[place]["v"], column) for place, column in enumerate(self.calculated, 1)),
        )
        fact = shape.fact(
            **owner,
            kind=fn.coalesce(control, fn.lit(facts.FACT)),
            ts=made("time"),
            deleted=deleted,
            **{facts.table_column(self._place): row},
        )
        return fn.when(
            (ledger("stream") == table.stream)
            & (control.isNull() | control.isin(facts.VOID, facts.AMEND)),
            fn.when(control == "void", shape.fact(**owner, kind=facts.VOID))
            .when(
                error.isNotNull(),
                shape.fact(
                    **owner,
                    kind=facts.ERROR,
                    # Where an amend finds it that makes it an event after all.
                    ts=made("time") if self._time_parser is None else None,
                    error_code=error[0],
                    error_message=error[1],
                ),
            )
            .otherwise(fact),
        )

    def _columns(self) -> StructType:

        fields = ", ".join(f"`{f.name}` {SPARK_TYPES[f.type]}" for f in self._table.fields)
        return struct_of(fields)

    def _with_fields(self, frame: DataFrame) -> DataFrame:
        table = self._table
        amended = ledger("control") == "amend"
        event = raw_member(fn.when(amended, ledger("data")), "event")
        content = fn.when(amended, raw_member(event, "data")).when(
            ledger("control").isNull(), ledger("data")
        )
        frame = frame.withColumn(
            made_name("content"), fn.when(ledger("stream") == table.stream, content)
        )
        names = (*(field.name for field in table.fields), _CORRUPT)
        texts = ", ".join(f"`{name}`: string" for name in names)
        frame = frame.withColumn(
            made_name("texts"),
            fn.from_json(
                made("content"), f"struct<{texts}>", {"columnNameOfCorruptRecord": _CORRUPT}
            ),
        )
        fields = []
        for field in table.fields:
            text = made("texts")[field.name]
            if field.type == "json":
                raw = fn.when(text.isNotNull(), raw_member(made("content"), field.name))
                fields.append(raw.alias(field.name))
            else:
                fields.append(typed(text, field).alias(field.name))
        frame = frame.select("*", *fields)
        return frame.withColumn(made_name("time"), self._time(amended))

    def _time(self, amended: Column) -> Column:
        """Null for an amend that says none: it keeps that of its original."""
        if self._time_parser is not None and self._table.time_column is not None:
            return fn.unix_micros(self._time_parser(fn.col(self._table.time_column)))
        said = fn.unix_micros(fn.try_to_timestamp(ledger("parsed")["event"]["occurredAt"]))
        return fn.when(amended, said).otherwise(ledger("occurred_at"))

    def _error(self, attempts: list[Column]) -> Column:
        """A pair of code and message, or null if all is well."""

        def pair(code: str, message: str) -> Column:
            return fn.array(fn.lit(code), fn.lit(message))

        texts = made("texts")
        is_object = made("content").startswith("{") & texts[_CORRUPT].isNull()
        faults = fn.when(
            ~fn.coalesce(is_object, fn.lit(False)),
            pair("undecodable", "the data is not a JSON object"),
        )
        for field in self._table.fields:
            absent, value = texts[field.name].isNull(), fn.col(field.name)
            if field.name in self._required:
                faults = faults.when(absent, pair("missing_field", f"{field.name} is missing"))
            wrong = pair("invalid_field", f"{field.name} is not of type {field.type}")
            faults = faults.when(~absent & value.isNull(), wrong)
        if self._time_parser is not None:
            wrong = pair("invalid_event_time", f"{self._table.time_column} holds no valid time")
            faults = faults.when(made("time").isNull(), wrong)
        failed = pair(
            "expression_failed", f"an expression of view {self._table.name} fails for this event"
        )
        for attempt in attempts:
            faults = faults.when(attempt.isNull(), failed)
        for place, column in enumerate(self.calculated, 1):
            value = fn.col(attempt_name(self._view, place))["v"]
            for unfit, why in _unfit(value, column):
                wrong = pair("value_out_of_range", f"{column.name} {why}")
                faults = faults.when(value.isNotNull() & unfit, wrong)
        return faults


def _unfit(value: Column, column: ViewColumn) -> Iterator[tuple[Column, str]]:
    """When a calculated value cannot stand in a view, and why."""
    if column.type == "decimal":
        yield value.try_cast(_WIDE_DECIMAL).isNull(), "has more than 29 digits"
    elif column.type == "timestamp":
        known = fn.unix_micros(value).between(_FIRST_US, _LAST_US)
        yield ~known, "is outside the years 1 to 9999"
    elif column.type == "string":
        yield ~fn.is_valid_utf8(value), "is not Unicode"
        yield value.contains("\0"), "has a NUL character"


def _kept_as(column: ViewColumn) -> str:
    return _KEPT_AS.get(column.type, SPARK_TYPES[column.type])


def _kept(value: Column, column: ViewColumn) -> Column:
    if column.type == "timestamp":
        value = fn.unix_micros(value)
    elif column.type == "decimal":
        value = value.try_cast(_WIDE_DECIMAL)
    return value.cast(_kept_as(column)).alias(column.name)
