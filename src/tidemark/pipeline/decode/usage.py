"""Usage events as facts of meters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidemark.pipeline import facts
from tidemark.pipeline.calendar import period_columns
from tidemark.pipeline.decode.json_text import exact_numbers, raw_member
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
        # By view and `whole`: putting one together takes longer than a small batch.
        self._facts: dict[tuple[int, bool], Column] = {}
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
        attempts, made_facts = [], {}
        for view, meter in enumerate(self._meters):
            attempts.append(tried(self._spark, meter.value).alias(attempt_name(view, _VALUE)))
            if meter.where is not None:
                attempts.append(tried(self._spark, meter.where).alias(attempt_name(view, _WHERE)))
            if (view, whole) not in self._facts:
                self._facts[view, whole] = self._fact(view, meter, shape, whole=whole)
            made_facts[made_name(f"fact_{view}")] = self._facts[view, whole]
        # All at once: Spark looks at the whole plan anew with every step.
        frame = frame.select("*", *attempts).withColumns(made_facts)
        return frame, list(made_facts)

    def _columns(self) -> StructType:
        """What expressions may name, with its types."""

        meta = "map<string,string>"
        if self._meta_fields:
            members = (f"`{f.name}`: {SPARK_TYPES[f.type]}" for f in self._meta_fields)
            meta = f"struct<{', '.join(members)}>"
        return struct_of(f"{_COLUMNS}, meta {meta}")

    def _with_fields(self, frame: DataFrame) -> DataFrame:
        amended = fn.when(ledger("control") == "amend", ledger("data"))
        content = fn.when(ledger("control").isNull(), ledger("data")).otherwise(
            raw_member(raw_member(amended, "event"), "meta")
        )
        text = made_name("meta_text")
        frame = frame.withColumn(text, fn.when(ledger("stream") == self._stream, content))
        meta = fn.from_json(exact_numbers(fn.col(text)), "map<string,string>")
        frame = frame.withColumn(made_name("meta"), meta)
        own = ("tenant_id", "metric", "customer_ref", "resource_id", "quantity")
        return frame.select(
            "*",
            *(ledger(name).alias(name) for name in own),
            fn.timestamp_micros(ledger("occurred_at")).alias("ts"),
            self._meta().alias("meta"),
        )

    def _meta(self) -> Column:
        """A map of texts; where the stream declares what is in it, a struct of that."""
        if not self._meta_fields:
            return made("meta")
        return fn.struct(*(_meta_field(field).alias(field.name) for field in self._meta_fields))

    def _fact(self, view: int, meter: MeterDefinition, shape: FactShape, *, whole: bool) -> Column:
        control, parsed = ledger("control"), ledger("parsed")
        owner = {
            "view": fn.lit(view),
            "slot": fn.xxhash64(fn.lit(view), ledger("tenant_id"), ledger("customer_ref")),
        }
        # An adjustment belongs to a period and to no group.
        period_ts = fn.unix_micros(fn.try_to_timestamp(parsed["periodStart"]))
        ts = fn.when(control == "adjust", period_ts).otherwise(ledger("occurred_at"))
        start, end = period_columns(ts, meter.period, meter.timezone)
        grouped = control.isNull() | (control == "amend")
        groups = fn.array(*(fn.when(grouped, _group(name)) for name in meter.group_by))
        place = {"groups": groups, "period_start": start, "period_end": end, "ts": ts}

        attempt = fn.col(attempt_name(view, _VALUE))
        value = attempt["v"].try_cast(facts.VALUE_TYPE)
        failed, passes = attempt.isNull(), fn.lit(True)
        if meter.where is not None:
            condition = fn.col(attempt_name(view, _WHERE))
            passes = fn.coalesce(condition["v"], fn.lit(False))
            # The value of an event that is not taken plays no part.
            failed = condition.isNull() | (passes & failed)
        too_large = passes & attempt["v"].isNotNull() & value.isNull()
        kind = fn.coalesce(control, fn.lit(facts.FACT))
        return fn.when(
            (ledger("stream") == self._stream) & (ledger("metric") == meter.metric),
            fn.when(control == "void", shape.fact(**owner, kind=facts.VOID))
            .when(
                control == "adjust",
                shape.fact(
                    **owner,
                    **place,
                    kind=facts.ADJUST,
                    value=ledger("quantity"),
                    reason=parsed["reason"],
                ),
            )
            .when(
                failed | too_large,
                shape.fact(
                    **owner,
                    kind=facts.ERROR,
                    error_code=fn.when(failed, "expression_failed").otherwise("value_out_of_range"),
                    error_message=fn.when(
                        failed, f"an expression of meter {meter.name} fails for this event"
                    ).otherwise("the value does not have 19 digits before the point and 9 after"),
                ),
            )
            .when(passes & value.isNotNull(), shape.fact(**owner, **place, kind=kind, value=value))
            # An amend that makes it no fact of this meter any more.
            .when((control == "amend") | fn.lit(whole), shape.fact(**owner, kind=kind)),
        )


def _meta_field(field: ViewColumn) -> Column:
    value = typed(made("meta")[field.name], field)
    return within_known_years(value) if field.type == "timestamp" else value


def _group(name: str) -> Column:
    """A string of `meta` as it is, anything else as its JSON."""
    value, raw = made("meta")[name], raw_member(made("meta_text"), name)
    nested = value.rlike(r"^[\[{]") & raw.rlike(r"^[\[{]")
    return fn.when(nested, raw).otherwise(value)
