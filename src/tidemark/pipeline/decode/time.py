"""Events as the time stage sees them: whose time they stand in, and which it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from tidemark.pipeline import facts
from tidemark.pipeline.decode.json_text import PARSER, exact_numbers
from tidemark.pipeline.decode.shape import CORRUPT, FactShape, ledger, made, made_name
from tidemark.pipeline.time.messages import (
    MESSAGES_FIELD,
    RecordTimeColumns,
    record_time_columns,
)
from tidemark.pipeline.time.plans import TimePlan
from tidemark.pipeline.time.registry import EventtimeTypeRegistry, within_known_years

_FACT: Final = made_name("fact_time")


def _text_name(place: int) -> str:
    """By the place of a stream: its name may have points, which in a column's would ask for a
    member."""
    return made_name(f"time_text_{place}")


class TimeDecoder:
    """Decodes for streams whose events have a time of their own or are written in order.

    `records` are streams whose events hold messages of others, `windowed` those whose ends close
    windows.
    """

    def __init__(
        self,
        plan: TimePlan,
        ordered: Collection[str],
        records: Collection[str],
        registry: EventtimeTypeRegistry,
        windowed: Collection[str] = (),
    ) -> None:
        self._plan = plan
        self._ordered = sorted(ordered)
        self._records = sorted(set(records) - set(plan.timed)) if plan.timed else []
        self._registry = registry
        self._windowed = windowed
        self._timed = sorted({*plan.timed, *self._ordered, *self._records})
        # Putting these together takes longer than a small batch.
        self._made: Sequence[dict[str, Column]] | None = None

    @property
    def streams(self) -> Sequence[str]:
        """The streams it looks at; of all others nobody needs the time."""
        return sorted({*self._timed, *self._windowed})

    @property
    def records(self) -> Sequence[str]:
        """The streams whose events may stand in the time of others."""
        return self._records

    def fact(self, frame: DataFrame, shape: FactShape) -> tuple[DataFrame, str]:
        """The rows with a column for the time stage's fact, null where there is none."""
        # Step by step: what a step uses more than once, Spark would work out each time.
        for step in self._steps(shape):
            frame = frame.withColumns(step)
        return frame, _FACT

    def _steps(self, shape: FactShape) -> Sequence[dict[str, Column]]:
        if self._made is None:
            texts = {
                _text_name(place): self._text(name) for place, name in enumerate(self._plan.timed)
            }
            self._made = (
                texts,
                {made_name("time_moment"): self._moment()},
                {made_name("time_stream"): self._stream(), made_name("time_ts"): self._ts()},
                {_FACT: self._fact(shape)},
            )
        return self._made

    def _fact(self, shape: FactShape) -> Column:
        stream, control = ledger("stream"), ledger("control")
        # Spread over all tasks: nothing of this has to meet before it is in the driver.
        place = {"view": fn.lit(facts.NO_VIEW), "slot": ledger("ingress_sequence")}
        kept = fn.when(made("time_stream").isin(self._ordered), ledger("data"))
        tuple_of = shape.fact(
            **place,
            kind=facts.TUPLE,
            ts=made("time_ts"),
            time_stream=made("time_stream"),
            payload=kept,
        )
        error = shape.fact(
            **place,
            kind=facts.ERROR,
            error_code="invalid_event_time",
            error_message="the time of this event is missing or cannot be read",
        )
        unreadable = shape.fact(
            **place,
            kind=facts.ERROR,
            error_code="undecodable",
            error_message="the messages of this record cannot be read",
        )
        return fn.when(
            stream.isin(self.streams),
            fn.when(control == "end", shape.fact(**place, kind=facts.END, time_stream=stream))
            .when(control.isNotNull(), None)
            .when(self._is_unreadable(), unreadable)
            .when(made("time_stream").isNull(), None)
            .when(~stream.isin(self._timed), None)
            .when(made("time_ts").isNull(), error)
            .otherwise(tuple_of),
        )

    def _stream(self) -> Column:
        """In whose time an event stands; null for a record without any."""
        if not self._records:
            return ledger("stream")
        is_record = ledger("stream").isin(self._records)
        return fn.when(is_record, self._of_messages().stream).otherwise(ledger("stream"))

    def _text(self, stream: str) -> Column:
        """The time of an event as it is written; null for those of other streams."""
        column = self._plan.timed[stream].column
        assert column is not None
        # A schema finds a field of any name; a path would have to be escaped.
        shape = StructType([StructField(column, StringType())])
        data = fn.when(ledger("stream") == stream, ledger("data"))
        return fn.from_json(exact_numbers(data), shape, PARSER)[column]

    def _moment(self) -> Column:
        moment = fn.lit(None).cast("timestamp")
        for place, (stream, time) in enumerate(self._plan.timed.items()):
            assert time.type is not None
            parsed = self._registry.unbounded(time.type)(fn.col(_text_name(place)))
            moment = fn.when(ledger("stream") == stream, parsed).otherwise(moment)
        return moment

    def _ts(self) -> Column:
        own = fn.unix_micros(within_known_years(made("time_moment")))
        is_timed = ledger("stream").isin(list(self._plan.timed))
        ts = fn.when(is_timed, own).otherwise(ledger("received_at"))
        if self._records:
            own = fn.unix_micros(self._of_messages().ts)
            ts = fn.when(ledger("stream").isin(self._records), own).otherwise(ts)
        return ts

    def _of_messages(self) -> RecordTimeColumns:
        messages = self._record()[MESSAGES_FIELD]
        return record_time_columns(messages, self._plan.timed, self._registry)

    def _is_unreadable(self) -> Column:
        """Whether nobody knows if a record has a time."""
        return self._record()[CORRUPT].isNotNull() if self._records else fn.lit(False)

    def _record(self) -> Column:
        shape = StructType([StructField(n, StringType()) for n in (MESSAGES_FIELD, CORRUPT)])
        data = fn.when(ledger("stream").isin(self._records), ledger("data"))
        return fn.from_json(data, shape, PARSER | {"columnNameOfCorruptRecord": CORRUPT})
