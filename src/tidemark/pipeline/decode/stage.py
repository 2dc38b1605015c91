"""Decoding as a whole: rows of the ledger source in, facts of every view out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidemark.config import Config
from tidemark.pipeline import facts
from tidemark.pipeline.decode.shape import (
    EVENT_FIELDS,
    FactShape,
    as_ledger,
    error_name,
    ledger,
    made_name,
    without_fields,
)
from tidemark.pipeline.decode.stream_fields import StreamFields
from tidemark.pipeline.decode.tables import TableDecoder
from tidemark.pipeline.decode.time import TimeDecoder
from tidemark.pipeline.decode.usage import UsageDecoder
from tidemark.pipeline.decode.windows import WindowDecoder
from tidemark.pipeline.definitions import Definitions, TableDefinition
from tidemark.pipeline.output.schema import Column as ViewColumn
from tidemark.pipeline.stream_columns import stream_columns
from tidemark.pipeline.time.messages import record_streams
from tidemark.pipeline.time.plans import plan_of
from tidemark.pipeline.time.registry import EventtimeTypeRegistry
from tidemark.pipeline.windows.definition import NumberedWindow, WindowDefinition

Views: TypeAlias = Literal["all", "meters", "tables", "windows"]


_Reading: TypeAlias = tuple[str, tuple[ViewColumn, ...], str | None, str | None]
"""A stream, its fields, and where its time is and how it is written."""


class Decoder:
    """Making one checks every expression of the definitions: `ConfigError` says what is wrong."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        definitions: Definitions,
        registry: EventtimeTypeRegistry,
    ) -> None:
        self._usage: UsageDecoder | None = None
        usage = {name: s for name, s in config.streams.items() if s.kind == "usage"}
        if definitions.meters:
            [(name, stream)] = usage.items()
            meta = stream_columns(stream)
            self._usage = UsageDecoder(spark, definitions.meters, name, meta)
        # What is read of a stream is read once for all of its views.
        self._fields: dict[_Reading, StreamFields] = {}

        def fields_of(view: TableDefinition | WindowDefinition) -> StreamFields:
            reading = (view.stream, view.fields, view.time_column, view.time_type)
            if reading not in self._fields:
                self._fields[reading] = _fields(config, reading, registry)
            return self._fields[reading]

        first = len(definitions.meters)
        self._tables = [
            TableDecoder(spark, table, first + place, place, fields_of(table))
            for place, table in enumerate(definitions.tables)
        ]
        after = len(definitions.tables)
        self._windows = [
            WindowDecoder(spark, window, first + place, place, fields_of(window))
            for place, window in enumerate(definitions.windows, after)
        ]
        records = record_streams(config)
        windowed = {window.stream for window in definitions.windows}
        ordered = config.pipeline.ordered
        self._time = TimeDecoder(plan_of(config), ordered, records, registry, windowed)
        rows = [table.row_type for table in self._tables]
        self._shape = FactShape([*rows, *(window.row_type for window in self._windows)])

    @property
    def calculated(self) -> list[tuple[ViewColumn, ...]]:
        """The calculated columns of each table."""
        return [table.calculated for table in self._tables]

    @property
    def windows(self) -> list[NumberedWindow]:
        """The windows as their facts are told apart."""
        return [window.numbered for window in self._windows]

    @property
    def records(self) -> Sequence[str]:
        """The streams whose events may stand in the time of others."""
        return self._time.records

    def facts(self, events: DataFrame, *, whole: bool = False, of: Views = "all") -> DataFrame:
        """The facts of these events, and one for each commit among them.

        With `whole`, for a fold from the beginning, events that are no facts of a meter or a window
        are there too, without a value. `of` leaves out what is not needed: the time stage's is
        there with all views and with windows.
        """
        frame = as_ledger(events)
        names: list[str] = []
        if self._usage is not None and of in ("all", "meters"):
            frame, names = self._usage.facts(frame, self._shape, whole=whole)
            frame = without_fields(frame)
        decoders: list[TableDecoder | WindowDecoder] = []
        decoders += self._tables if of in ("all", "tables") else ()
        decoders += self._windows if of in ("all", "windows") else ()
        for fields in self._fields.values():
            views = [decoder for decoder in decoders if decoder.fields is fields]
            if views:
                frame = fields.added_to(frame)
                frame = frame.select("*", *(it for view in views for it in view.attempts))
                frame = frame.withColumns({error_name(view.view): view.error for view in views})
                made_facts = {
                    made_name(f"fact_{view.view}"): view.fact(self._shape, whole=whole)
                    for view in views
                }
                frame = without_fields(frame.withColumns(made_facts))
                names += made_facts
        if self._time.streams and of in ("all", "windows"):
            frame, name = self._time.fact(frame, self._shape)
            names.append(name)
        names.append(made_name("commit"))
        frame = frame.withColumn(names[-1], self._commit)
        exploded = frame.select(*self._said, fn.explode(fn.array(*names)).alias("fact"))
        # Not a filter of the array, which Spark does not compile, nor anything inside it.
        return exploded.filter(fn.col("fact").isNotNull()).select(*EVENT_FIELDS, "fact.*")

    @cached_property
    def _commit(self) -> Column:
        commit = self._shape.fact(view=facts.NO_VIEW, kind=facts.COMMIT, slot=0)
        return fn.when(ledger("record") == "commit", commit)

    @cached_property
    def _said(self) -> list[Column]:
        """What facts take over from their event."""
        return [ledger(name).alias(name) for name in EVENT_FIELDS]


def _fields(config: Config, reading: _Reading, registry: EventtimeTypeRegistry) -> StreamFields:
    stream, fields, time_column, time_type = reading
    declared = config.streams[stream].fields.items()
    return StreamFields(
        stream,
        fields,
        frozenset(name for name, field in declared if field.required),
        time_column,
        None if time_type is None else registry.unbounded(time_type),
    )
