"""The fields of a stream's events as columns, their time, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from tidemark.pipeline.decode.json_text import PARSER, raw_member
from tidemark.pipeline.decode.shape import (
    CORRUPT,
    SPARK_TYPES,
    ledger,
    made,
    made_name,
    struct_of,
    typed,
)
from tidemark.pipeline.output.schema import Column as ViewColumn
from tidemark.pipeline.time.registry import within_known_years

TimeParser = Callable[[Column], Column]


class _Columns(NamedTuple):
    """What is added to rows, one after the other."""

    content: Column
    texts: Column
    fields: Sequence[Column]
    times: dict[str, Column]
    """In place of those fields that are times."""
    moment: Column | None
    time: Column
    fault: Column


class StreamFields:
    """How the events of one stream, and what amends put in their place, are read: once for all
    views of the stream.

    `time_column` and its parser say where an event's time is, if not in the event itself. Years
    that Tidemark does not know are looked for here.
    """

    def __init__(
        self,
        stream: str,
        fields: Sequence[ViewColumn],
        required: frozenset[str],
        time_column: str | None,
        time_parser: TimeParser | None,
    ) -> None:
        self._stream = stream
        self._fields = fields
        self._required = required
        self._time_column = time_column
        self._time_parser = time_parser

    @property
    def columns(self) -> StructType:
        """What expressions may name, with its types."""
        return struct_of(", ".join(f"`{f.name}` {SPARK_TYPES[f.type]}" for f in self._fields))

    @property
    def has_time(self) -> bool:
        """Whether the time of an event is in one of its fields."""
        return self._time_parser is not None

    def time(self, otherwise: Column) -> Column:
        """The time of an event in microseconds: `otherwise`, where no field holds it."""
        return made("time") if self.has_time else otherwise

    def fault(self) -> Column:
        """A pair of code and message for an event that no view can take, else null."""
        return made("fault")

    def added_to(self, frame: DataFrame) -> DataFrame:
        """The rows with the fields under their own names, their time and their faults."""
        # Step by step: what a step uses more than once, Spark would work out each time.
        columns = self._columns
        frame = frame.withColumn(made_name("content"), columns.content)
        frame = frame.withColumn(made_name("texts"), columns.texts)
        frame = frame.select("*", *columns.fields).withColumns(columns.times)
        if columns.moment is not None:
            frame = frame.withColumn(made_name("moment"), columns.moment)
            frame = frame.withColumn(made_name("time"), columns.time)
        return frame.withColumn(made_name("fault"), columns.fault)

    @cached_property
    def _columns(self) -> _Columns:
        # Made once: putting them together takes longer than a small batch.
        amended = ledger("control") == "amend"
        event = raw_member(fn.when(amended, ledger("data")), "event")
        content = fn.when(amended, raw_member(event, "data")).when(
            ledger("control").isNull(), ledger("data")
        )
        names = (*(field.name for field in self._fields), CORRUPT)
        texts = ", ".join(f"`{name}`: string" for name in names)
        moment = None
        if self._time_parser is not None and self._time_column is not None:
            moment = self._time_parser(fn.col(self._time_column))
        return _Columns(
            fn.when(ledger("stream") == self._stream, content),
            fn.from_json(
                made("content"), f"struct<{texts}>", PARSER | {"columnNameOfCorruptRecord": CORRUPT}
            ),
            [self._field(field).alias(field.name) for field in self._fields],
            {
                field.name: within_known_years(fn.col(field.name))
                for field in self._fields
                if field.type == "timestamp"
            },
            moment,
            fn.unix_micros(within_known_years(made("moment"))),
            self._faults(),
        )

    def _field(self, field: ViewColumn) -> Column:
        text = made("texts")[field.name]
        if field.type == "json":
            return fn.when(text.isNotNull(), raw_member(made("content"), field.name))
        return typed(text, field)

    def _faults(self) -> Column:
        texts = made("texts")
        is_object = made("content").startswith("{") & texts[CORRUPT].isNull()
        faults = fn.when(
            ~fn.coalesce(is_object, fn.lit(False)),
            fault("undecodable", "the data is not a JSON object"),
        )
        for field in self._fields:
            absent, value = texts[field.name].isNull(), fn.col(field.name)
            if field.name in self._required:
                faults = faults.when(absent, fault("missing_field", f"{field.name} is missing"))
            wrong = fault("invalid_field", f"{field.name} is not of type {field.type}")
            faults = faults.when(~absent & value.isNull(), wrong)
        if self.has_time:
            wrong = fault("invalid_event_time", f"{self._time_column} holds no valid time")
            faults = faults.when(made("time").isNull(), wrong)
        return faults


def fault(code: str, message: str) -> Column:
    """A pair of code and message."""
    return fn.array(fn.lit(code), fn.lit(message))
