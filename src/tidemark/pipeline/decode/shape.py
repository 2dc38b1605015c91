"""The columns that decoding reads and writes, and how a view's fact is put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidemark.pipeline import facts
from tidemark.pipeline.decode.json_text import PARSER
from tidemark.pipeline.output.schema import Column as ViewColumn

# While a stream's fields stand beside them under their own names, the ledger's columns have this
# before theirs; and so has what is made on the way. No field's name begins like that.
_OURS: Final = "@"
_LEDGER: Final = f"{_OURS}ledger_"
_MADE: Final = f"{_OURS}made_"
CONTROL_SHAPE: Final = (
    "struct<event: struct<meta: string, data: string, occurredAt: string>,"
    " periodStart: string, reason: string>"
)
SPARK_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "enum": "string",
    "json": "string",
    "int": "int",
    "bigint": "bigint",
    "decimal": facts.VALUE_TYPE,
    "boolean": "boolean",
    "timestamp": "timestamp",
}
# Spark reads more than this, and would round a decimal or add today's date to a time of day.
_SPELLINGS: Final[Mapping[str, str]] = {
    "boolean": "true|false",
    "int": "-?(?:0|[1-9][0-9]*)",
    "bigint": "-?(?:0|[1-9][0-9]*)",
    "decimal": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]{1,9})?",
    "timestamp": "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
}
CORRUPT: Final = "@corrupt"
"""Holds what Spark's parser does not take, where it is asked for. No field has such a name."""
# Sums and products may be wider than what an event can carry.
WIDE_DECIMAL: Final = "decimal(38,9)"
_KEPT_AS: Final = {"timestamp": "bigint", "decimal": WIDE_DECIMAL}
# The years 1 to 9999, which is what text can show.
FIRST_SHOWN_US: Final = -62_135_596_800_000_000
LAST_SHOWN_US: Final = 253_402_300_799_999_999
# What a fact has besides what it takes over from its event.
FACT_FIELDS: Final[Mapping[str, str]] = {
    "view": "int",
    "kind": "string",
    "slot": "bigint",
    "groups": "array<string>",
    "period_start": "bigint",
    "period_end": "bigint",
    "ts": "bigint",
    "value": facts.VALUE_TYPE,
    "reason": "string",
    "deleted": "boolean",
    "time_stream": "string",
    "payload": "string",
    "error_code": "string",
    "error_message": "string",
}
EVENT_FIELDS: Final = (
    *("ingress_sequence", "received_at", "previous_received_at", "idempotency_key"),
    *("target_key", "tenant_id", "stream", "customer_ref"),
    *("first_sequence", "last_sequence", "chain", "previous_chain"),
)


class FactShape:
    """Facts of all views have the same columns: those above, a struct for each table's row, and one
    for each window's groups."""

    def __init__(self, rows: Sequence[str]) -> None:
        self.fields = dict(FACT_FIELDS) | {
            facts.table_column(place): kind for place, kind in enumerate(rows)
        }
        # Made once, because there are many of them and each takes some calls to Java.
        self._absent = {
            name: fn.lit(None).cast(kind).alias(name) for name, kind in self.fields.items()
        }
        # Not null: Spark asks after each row how large its Arrow batch is, and a list in it goes
        # through all the nulls at its end anew each time.
        self._absent["groups"] = fn.array().cast(self.fields["groups"]).alias("groups")

    def fact(self, **values: Column | str | int | None) -> Column:
        """A fact with these values and nothing else."""
        return fn.struct(
            *(
                self._absent[name]
                if value is None
                else (value if isinstance(value, Column) else fn.lit(value)).cast(kind).alias(name)
                for name, kind in self.fields.items()
                for value in (values.get(name),)
            )
        )


def struct_of(fields: str) -> StructType:
    """The type of rows with these columns, from SQL."""
    kind = StructType.fromDDL(fields)
    assert isinstance(kind, StructType)
    return kind


def ledger(name: str) -> Column:
    """A column of the ledger."""
    return fn.col(_LEDGER + name)


def made(name: str) -> Column:
    """A column made on the way."""
    return fn.col(made_name(name))


def made_name(name: str) -> str:
    return _MADE + name


def attempt_name(view: int, place: int) -> str:
    """Where the value of an expression is, in the struct that `expressions.tried` gives."""
    return made_name(f"{view}_{place}")


def error_name(view: int) -> str:
    """Where it is what keeps a view from taking an event: a pair of code and message, or null."""
    return made_name(f"error_{view}")


def is_void() -> Column:
    """Whether an event takes an earlier one away."""
    return fn.coalesce(ledger("control") == facts.VOID, fn.lit(False))


def kind_of(error: Column) -> Column:
    """What a fact is called, of an event that a view cannot take if there is an error."""
    named = fn.coalesce(ledger("control"), fn.lit(facts.FACT))
    return fn.when(error.isNotNull(), facts.ERROR).otherwise(named)


def as_ledger(events: DataFrame) -> DataFrame:
    """The rows of the source with the names above, and what a control event says parsed."""
    renamed = events.select([fn.col(name).alias(_LEDGER + name) for name in events.columns])
    control = fn.when(ledger("control").isNotNull(), ledger("data"))
    return renamed.withColumn(_LEDGER + "parsed", fn.from_json(control, CONTROL_SHAPE, PARSER))


def without_fields(frame: DataFrame) -> DataFrame:
    """Takes a stream's fields away again, to make room for the next one's."""
    return frame.select([name for name in frame.columns if name.startswith(_OURS)])


def kept_as(column: ViewColumn) -> str:
    """The type of a view's column in a fact."""
    return _KEPT_AS.get(column.type, SPARK_TYPES[column.type])


def kept(value: Column, column: ViewColumn) -> Column:
    """A value as it stands in a fact."""
    if column.type == "timestamp":
        value = fn.unix_micros(value)
    elif column.type == "decimal":
        value = value.try_cast(WIDE_DECIMAL)
    return value.cast(kept_as(column)).alias(column.name)


def typed(text: Column, column: ViewColumn) -> Column:
    """The value of a field from its text in canonical JSON; null if it is not of its type. A time
    is then still to be looked at by `within_known_years`."""
    if column.type == "enum":
        return fn.when(text.isin(list(column.values)), text)
    kind = SPARK_TYPES[column.type]
    if kind == "string":
        return text
    return fn.when(text.rlike(f"^(?:{_SPELLINGS[column.type]})$"), text).try_cast(kind)
