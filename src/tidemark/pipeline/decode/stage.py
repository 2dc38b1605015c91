"""Decoding as a whole: rows of the ledger source in, facts of every view out."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidemark.config import Config
from tidemark.pipeline import facts
from tidemark.pipeline.decode.shape import (
    EVENT_FIELDS,
    FactShape,
    as_ledger,
    ledger,
    made_name,
    without_fields,
)
from tidemark.pipeline.decode.tables import TableDecoder
from tidemark.pipeline.decode.time import TimeDecoder
from tidemark.pipeline.decode.usage import UsageDecoder
from tidemark.pipeline.definitions import Definitions
from tidemark.pipeline.output.schema import Column as ViewColumn
from tidemark.pipeline.time.messages import MESSAGES_FIELD
from tidemark.pipeline.time.plans import plan_of
from tidemark.pipeline.time.registry import EventtimeTypeRegistry

Views: TypeAlias = Literal["all", "meters", "tables"]


class Decoder:
    """Making one checks every expression of the definitions: `ConfigError` says what is wrong."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        definitions: Definitions,
        registry: EventtimeTypeRegistry,
    ) -> None:
        resolve_time = registry.resolve
        self._usage: UsageDecoder | None = None
        usage = {name: s for name, s in config.streams.items() if s.kind == "usage"}
        if definitions.meters:
            [(name, stream)] = usage.items()
            meta = [
                ViewColumn(field, declared.type, tuple(declared.values or ()))
                for field, declared in stream.fields.items()
            ]
            self._usage = UsageDecoder(spark, definitions.meters, name, meta)
        self._tables = [
            TableDecoder(
                spark,
                table,
                view=len(definitions.meters) + place,
                place=place,
                required=frozenset(
                    field
                    for field, declared in config.streams[table.stream].fields.items()
                    if declared.required
                ),
                time_parser=None if table.time_type is None else resolve_time(table.time_type),
            )
            for place, table in enumerate(definitions.tables)
        ]
        records = {
            name
            for name, stream in config.streams.items()
            if stream.eventtime is None
            and MESSAGES_FIELD in stream.fields
            and stream.fields[MESSAGES_FIELD].type == "json"
        }
        self._time = TimeDecoder(plan_of(config), config.pipeline.ordered, records, registry)
        self._shape = FactShape([table.row_type for table in self._tables])

    @property
    def calculated(self) -> list[tuple[ViewColumn, ...]]:
        """The calculated columns of each table."""
        return [table.calculated for table in self._tables]

    def facts(self, events: DataFrame, *, whole: bool = False, of: Views = "all") -> DataFrame:
        """The facts of these events, and one for each commit among them.

        With `whole`, for a fold from the beginning, usage that is no fact of a meter is there too,
        without a value, and nothing for the time stage. `of` leaves out what is not needed.
        """
        frame = as_ledger(events)
        names: list[str] = []
        if self._usage is not None and of != "tables":
            frame, names = self._usage.facts(frame, self._shape, whole=whole)
            frame = without_fields(frame)
        for table in self._tables if of != "meters" else ():
            frame, name = table.fact(frame, self._shape)
            frame = without_fields(frame)
            names.append(name)
        if self._time.streams and not whole:
            frame, name = self._time.fact(frame, self._shape)
            names.append(name)
        commit = self._shape.fact(view=facts.NO_VIEW, kind=facts.COMMIT, slot=0)
        names.append(made_name("commit"))
        frame = frame.withColumn(names[-1], fn.when(ledger("record") == "commit", commit))
        exploded = frame.select(
            *(ledger(name).alias(name) for name in EVENT_FIELDS),
            fn.explode(fn.array(*names)).alias("fact"),
        )
        # Not a filter of the array, which Spark does not compile, nor anything inside it.
        return exploded.filter(fn.col("fact").isNotNull()).select(*EVENT_FIELDS, "fact.*")
