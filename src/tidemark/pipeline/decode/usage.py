"""Usage events as facts of meters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidemark.pipeline import facts
from tidemark.pipeline.calendar import period_columns
from tidemark.pipeline.decode.json_text import PARSER, exact_numbers, raw_member
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
from tidemark.pipeline.definitions import MeterDefinition
from tidemark.pipeline.expressions import checked_type, require_type, tried
from tidemark.pipeline.output.schema import Column as ViewColumn
from tidemark.pipeline.time.registry import within_known_years

_COLUMNS: Final = (
    "tenant_id string, metric string, customer_ref string, resource_id string,"
    f" quantity {facts.VALUE_TYPE}, ts timestamp"
)
_WHERE, _VALUE = 0, 1
_NAMES_META: Final = re.compile(r"\bmeta\b", re.IGNORECASE).search
# What an event may be to a meter, besides a void and an adjustment.
_TAKEN: Final = "taken"
_FAILED: Final = "failed"
_UNREADABLE: Final = "unreadable"
_TOO_LARGE: Final = "too_large"
_NO_FACT: Final = "no_fact"


class UsageDecoder:
    """Decodes for meters, which are the first of the views. Making one checks their expressions."""

    def __init__(
        self,
        spark: SparkSession,
        meters: Sequence[MeterDefinition],
        stream: str,
        meta_fields: Sequence[ViewColumn],
    ) -> None:
        self._spark = spark
        self._meters = meters
        self._stream = stream
        self._meta_fields = meta_fields
        # By view and `whole`: putting columns together takes longer than a small batch.
        self._facts: dict[tuple[int, bool], tuple[Column, Column]] = {}
        columns = self._columns()
        for meter in meters:
            path = f"meters.{meter.name}"
            if meter.where is not None:
                kind = checked_type(spark, meter.where, columns, f"{path}.where")
                require_type(kind, ("boolean",), meter.where, f"{path}.where")
            kind = checked_type(spark, meter.value, columns, f"{path}.value")
            numbers = ("tinyint", "smallint", "int", "bigint", "decimal")
            require_type(kind, numbers, meter.value, f"{path}.value")

    def facts(
        self, frame: DataFrame, shape: FactShape, *, whole: bool
    ) -> tuple[DataFrame, list[str]]:
        """The rows with a column for each meter's fact, null where there is none.

        With `whole`, events that are no facts are there too, without a value: a correction may
        make facts of them.
        """
        frame = self._with_fields(frame)
        standings, made_facts = {}, {}
        for view, meter in enumerate(self._meters):
            if (view, whole) not in self._facts:
                fact = self._fact(view, meter, shape)
                self._facts[view, whole] = self._standing(view, meter, whole=whole), fact
            standing, fact = self._facts[view, whole]
            standings[_standing_name(view)] = standing
            made_facts[made_name(f"fact_{view}")] = fact
        # Not more steps than these: Spark looks at the whole plan anew with every one.
        frame = frame.select("*", *self._tried).withColumns(standings).withColumns(made_facts)
        return frame, list(made_facts)

    @cached_property
    def _tried(self) -> list[Column]:
        """The expressions of meters, and the periods that events fall into."""
        # Meters with the same periods share them.
        periods = {_period_name(meter): _period(meter) for meter in self._meters}
        found = [column.alias(name) for name, column in periods.items()]
        for view, meter in enumerate(self._meters):
            for place, expression in ((_VALUE, meter.value), (_WHERE, meter.where)):
                if expression is not None:
                    attempt = tried(self._spark, expression)
                    found.append(attempt.alias(attempt_name(view, place)))
        return found

    def _columns(self) -> StructType:
        """What expressions may name, with its types."""

        meta = "map<string,string>"
        if self._meta_fields:
            members = (f"`{f.name}`: {SPARK_TYPES[f.type]}" for f in self._meta_fields)
            meta = f"struct<{', '.join(members)}>"
        return struct_of(f"{_COLUMNS}, meta {meta}")

    def _with_fields(self, frame: DataFrame) -> DataFrame:
        text, meta, fields = self._fields
        frame = frame.withColumn(made_name("meta_text"), text)
        return frame.withColumn(made_name("meta"), meta).select("*", *fields)

    @cached_property
    def _fields(self) -> tuple[Column, Column, Sequence[Column]]:
        """What an event says besides its value: as text, as a map, and as expressions name it."""
        amended = fn.when(ledger("control") == "amend", ledger("data"))
        content = fn.when(ledger("control").isNull(), ledger("data")).otherwise(
            raw_member(raw_member(amended, "event"), "meta")
        )
        own = ("tenant_id", "metric", "customer_ref", "resource_id", "quantity")
        return (
            fn.when(ledger("stream") == self._stream, content),
            fn.from_json(exact_numbers(made("meta_text")), "map<string,string>", PARSER),
            [
                *(ledger(name).alias(name) for name in own),
                fn.timestamp_micros(ledger("occurred_at")).alias("ts"),
                self._meta().alias("meta"),
                _ts().alias(made_name("usage_ts")),
            ],
        )

    def _meta(self) -> Column:
        """A map of texts; where the stream declares what is in it, a struct of that."""
        if not self._meta_fields:
            return made("meta")
        return fn.struct(*(_meta_field(field).alias(field.name) for field in self._meta_fields))

    def _standing(self, view: int, meter: MeterDefinition, *, whole: bool) -> Column:
        """What an event is to a meter; null if it does not concern it."""
        control = ledger("control")
        attempt = fn.col(attempt_name(view, _VALUE))
        failed, passes = attempt.isNull(), fn.lit(True)
        if meter.where is not None:
            condition = fn.col(attempt_name(view, _WHERE))
            passes = fn.coalesce(condition["v"], fn.lit(False))
            # The value of an event that is not taken plays no part.
            failed = condition.isNull() | (passes & failed)
        has_value = passes & attempt["v"].isNotNull()
        return fn.when(
            (ledger("stream") == self._stream) & (ledger("metric") == meter.metric),
            fn.when(control.isin(facts.VOID, facts.ADJUST), control)
            .when(self._lacks_meta(meter), _UNREADABLE)
            .when(failed, _FAILED)
            .when(has_value & _value(view).isNull(), _TOO_LARGE)
            .when(has_value, _TAKEN)
            # An amend that makes it no fact of this meter any more.
            .when((control == facts.AMEND) | fn.lit(whole), _NO_FACT),
        )

    def _lacks_meta(self, meter: MeterDefinition) -> Column:
        """Whether the parser has not taken what a meter looks at."""
        expressions = (meter.value, meter.where or "")
        if not (meter.group_by or any(map(_NAMES_META, expressions))):
            return fn.lit(False)
        return made("meta_text").isNotNull() & made("meta").isNull()

    def _fact(self, view: int, meter: MeterDefinition, shape: FactShape) -> Column:
        control, parsed = ledger("control"), ledger("parsed")
        standing, period = fn.col(_standing_name(view)), fn.col(_period_name(meter))
        wrong = standing.isin(_FAILED, _UNREADABLE, _TOO_LARGE)
        adjusts = standing == facts.ADJUST
        placed = adjusts | (standing == _TAKEN)
        # An adjustment belongs to a period and to no group.
        groups = fn.array(*(fn.when(standing == _TAKEN, _group(name)) for name in meter.group_by))
        fact = shape.fact(
            view=view,
            slot=fn.xxhash64(fn.lit(view), ledger("tenant_id"), ledger("customer_ref")),
            kind=fn.when(wrong, facts.ERROR).otherwise(fn.coalesce(control, fn.lit(facts.FACT))),
            groups=fn.when(placed, groups).otherwise(fn.array().cast("array<string>")),
            period_start=fn.when(placed, period["start"]),
            period_end=fn.when(placed, period["end"]),
            ts=fn.when(placed, made("usage_ts")),
            value=fn.when(adjusts, ledger("quantity")).when(standing == _TAKEN, _value(view)),
            reason=fn.when(adjusts, parsed["reason"]),
            error_code=fn.when(standing == _FAILED, "expression_failed")
            .when(standing == _UNREADABLE, "undecodable")
            .when(standing == _TOO_LARGE, "value_out_of_range"),
            error_message=fn.when(
                standing == _FAILED, f"an expression of meter {meter.name} fails for this event"
            )
            .when(standing == _UNREADABLE, "the meta cannot be read")
            .when(
                standing == _TOO_LARGE,
                "the value does not have 19 digits before the point and 9 after",
            ),
        )
        return fn.when(standing.isNotNull(), fact)


def _standing_name(view: int) -> str:
    return made_name(f"standing_{view}")


def _value(view: int) -> Column:
    return fn.col(attempt_name(view, _VALUE))["v"].try_cast(facts.VALUE_TYPE)


def _ts() -> Column:
    """The time by which an event finds its period."""
    period_ts = fn.unix_micros(fn.try_to_timestamp(ledger("parsed")["periodStart"]))
    return fn.when(ledger("control") == facts.ADJUST, period_ts).otherwise(ledger("occurred_at"))


def _period_name(meter: MeterDefinition) -> str:
    return made_name(f"period_{meter.period}_{meter.timezone}")


def _period(meter: MeterDefinition) -> Column:
    start, end = period_columns(made("usage_ts"), meter.period, meter.timezone)
    return fn.struct(start.alias("start"), end.alias("end"))


def _meta_field(field: ViewColumn) -> Column:
    value = typed(made("meta")[field.name], field)
    return within_known_years(value) if field.type == "timestamp" else value


def _group(name: str) -> Column:
    """A string of `meta` as it is, anything else as its JSON."""
    value, raw = made("meta")[name], raw_member(made("meta_text"), name)
    nested = value.rlike(r"^[\[{]") & raw.rlike(r"^[\[{]")
    return fn.when(nested, raw).otherwise(value)
