"""The time of a record that holds several messages.

Such a record is an event of a stream of its own that declares no `eventtime` and has a field
`messages` of type json: a list of `{"stream": …, "data": {…}}`. Its time is that of the first
message whose stream declares `eventtime`, and it takes its place among the events of that stream:
that stream's watermark is what it moves, waits for and may be late by. Whether the time of that
message can be read plays no part in which one it is: a record whose time cannot be read is an
error, not a record with another time. A record without such a message has no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.pipeline.time.plans import StreamTime
from tidemark.pipeline.time.registry import EventtimeTypeRegistry

if TYPE_CHECKING:
    from pyspark.sql import Column

    from tidemark.config import Config

MESSAGES_FIELD: Final = "messages"


class RecordTimeColumns(NamedTuple):
    """In whose time a record stands, and which it is: NULL in both where it has none, and only in
    `ts` where it cannot be read."""

    stream: Column
    ts: Column


def record_streams(config: Config) -> set[str]:
    """The streams whose events may hold messages of others."""
    return {
        name
        for name, stream in config.streams.items()
        if stream.eventtime is None
        and MESSAGES_FIELD in stream.fields
        and stream.fields[MESSAGES_FIELD].type == "json"
    }


def record_time_columns(
    messages: Column, declared: Mapping[str, StreamTime], registry: EventtimeTypeRegistry
) -> RecordTimeColumns:
    """The time of each record, from a column with the JSON text of its messages."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    from tidemark.pipeline.decode.json_text import PARSER

    message_type = StructType(
        [StructField("stream", StringType()), StructField("data", StringType())]
    )
    timed = fn.filter(
        fn.from_json(messages, ArrayType(message_type), PARSER),
        lambda message: message["stream"].isin(*declared),
    )
    first = fn.get(timed, fn.lit(0))
    ts = fn.lit(None).cast("timestamp")
    for stream, time in declared.items():
        if time.column is None or time.type is None:
            raise ValueError(f"the stream {stream} declares no event time")
        # A schema finds a field of any name; a path would have to be escaped.
        shape = StructType([StructField(time.column, StringType())])
        data = fn.from_json(first["data"], shape, PARSER)
        parsed = registry.resolve(time.type)(data[time.column])
        ts = fn.when(first["stream"] == stream, parsed).otherwise(ts)
    return RecordTimeColumns(first["stream"], ts)
