"""What is folded: meters, tables and windows, known by the hash of their meaning.

A definition names no setting that does not change results, so `live` and descriptions are not in
its hash. Each has a view of its name; what else must be kept between two batches is in views of its
own, whose names contain `__` and which no reader sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from tidemark.pipeline.definition_hash import INTERNAL_MARK, definition_hash
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.pipeline.stream_columns import TENANT_ID, stream_columns
from tidemark.pipeline.windows.definition import WindowDefinition

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.config.model import FieldType
    from tidemark.config.pipeline_model import Aggregate, Period


class MeterDefinition(msgspec.Struct, frozen=True):
    """One meter; `where` and `value` are Spark SQL over the columns of a usage event."""

    name: str
    metric: str
    aggregate: Aggregate
    period: Period
    timezone: str
    lateness_us: int
    close_after_us: int | None
    group_by: tuple[str, ...]
    where: str | None
    value: str

    @property
    def members_view(self) -> str:
        """Where a `unique` meter keeps the values it has seen."""
        return f"{self.name}{INTERNAL_MARK}members"


class TableDefinition(msgspec.Struct, frozen=True):
    """One table: the last row of each key by time and sequence.

    `fields` are those of the stream, `calculated` pairs of a name and a Spark SQL expression over
    them. `time_column` and `time_type` say where an event's time is, if not in the event itself.
    """

    name: str
    stream: str
    key: tuple[str, ...]
    fields: tuple[Column, ...]
    calculated: tuple[tuple[str, str], ...]
    delete_when: str | None
    time_column: str | None = None
    time_type: str | None = None

    @property
    def deleted_view(self) -> str:
        """Where the place in order of a deleted row is kept."""
        return f"{self.name}{INTERNAL_MARK}deleted"


Definition: TypeAlias = MeterDefinition | TableDefinition | WindowDefinition


class Definitions(msgspec.Struct, frozen=True):
    """Everything a pipeline folds. `unlogged` are the views whose changes nobody wants kept."""

    meters: tuple[MeterDefinition, ...]
    tables: tuple[TableDefinition, ...]
    windows: tuple[WindowDefinition, ...] = ()
    unlogged: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: Config) -> Definitions:
        meters = tuple(
            MeterDefinition(
                name=name,
                metric=meter.metric or name,
                aggregate=meter.aggregate,
                period=meter.period,
                timezone=meter.timezone,
                lateness_us=meter.lateness_us,
                close_after_us=meter.close_after_us,
                group_by=tuple(meter.group_by),
                where=meter.where,
                value=meter.value,
            )
            for name, meter in sorted(config.meters.items())
        )
        tables = []
        for name, view in sorted(config.views.items()):
            stream = config.streams[view.stream]
            eventtime = stream.eventtime if config.pipeline.eventtime.enabled else None
            tables.append(
                TableDefinition(
                    name=name,
                    stream=view.stream,
                    key=tuple(view.key),
                    fields=stream_columns(stream),
                    calculated=tuple(view.calculated.items()),
                    delete_when=view.delete_when,
                    time_column=eventtime.column if eventtime else None,
                    time_type=eventtime.type if eventtime else None,
                )
            )
        unlogged = {n for n, m in config.meters.items() if not m.live}
        unlogged |= {n for n, v in config.views.items() if not v.live}
        unlogged |= {n for n, w in config.windows.items() if not w.live}
        windows = tuple(WindowDefinition.of(name, config) for name in sorted(config.windows))
        return cls(meters, tuple(tables), windows, frozenset(unlogged))


def has_work(config: Config) -> bool:
    """Whether there is anything for a pipeline to do."""
    return bool(
        config.meters
        or config.views
        or config.windows
        or config.pipeline.ordered
        or config.pipeline.eventtime.enabled
    )


# The columns of a meter's row that readers see, besides its groups.
METER_KEY: Final = ("tenant_id", "metric", "customer_ref")
PERIOD_START: Final = "period_start"
COUNTERS: Final[tuple[tuple[str, FieldType], ...]] = (
    ("agg_sum", "decimal"),
    ("agg_max", "decimal"),
    ("agg_min", "decimal"),
    ("agg_count", "bigint"),
    ("agg_last", "decimal"),
    ("watermark_ts", "timestamp"),
    ("counted", "decimal"),
    ("adjusted", "decimal"),
    ("total", "decimal"),
)
# What the next fold needs besides them: where `agg_last` came from; the same aggregates over
# everything in effect, however late; and the operators' adjustments that stand.
STATE: Final[tuple[tuple[str, FieldType], ...]] = (
    ("last_ts", "timestamp"),
    ("last_sequence", "bigint"),
    ("all_sum", "decimal"),
    ("all_max", "decimal"),
    ("all_min", "decimal"),
    ("all_count", "bigint"),
    ("all_distinct", "bigint"),
    ("all_last", "decimal"),
    ("all_last_ts", "timestamp"),
    ("all_last_sequence", "bigint"),
    ("standing_sum", "decimal"),
    ("standing_count", "bigint"),
)


def meter_schema(meter: MeterDefinition, *, logged: bool = True) -> ViewSchema:
    """The view of a meter: one row per tenant, metric, customer, groups and period."""
    return ViewSchema(
        name=meter.name,
        columns=(
            *(Column(name, "string") for name in (*METER_KEY, *meter.group_by)),
            Column(PERIOD_START, "timestamp"),
            *(Column(name, kind) for name, kind in COUNTERS),
            *(Column(name, kind, hidden=True) for name, kind in STATE),
        ),
        key=(*METER_KEY, *meter.group_by, PERIOD_START),
        definition_hash=definition_hash(meter),
        logged=logged,
    )


def members_schema(meter: MeterDefinition) -> ViewSchema:
    """The values a `unique` meter has seen: counted, in effect, or both."""
    return ViewSchema(
        name=meter.members_view,
        columns=(
            Column("of_row", "string"),
            Column("value", "decimal"),
            Column("is_counted", "boolean"),
            Column("is_in_effect", "boolean"),
        ),
        key=("of_row", "value"),
        definition_hash=definition_hash(meter),
        logged=False,
    )


ORDER: Final[tuple[tuple[str, FieldType], ...]] = (("row_ts", "timestamp"), ("row_seq", "bigint"))


def table_schema(
    table: TableDefinition, calculated: tuple[Column, ...], *, logged: bool = True
) -> ViewSchema:
    """The view of a table. `calculated` are the columns that its expressions come to."""
    return ViewSchema(
        name=table.name,
        columns=(
            Column(TENANT_ID, "string"),
            *table.fields,
            *calculated,
            *(Column(name, kind, hidden=True) for name, kind in ORDER),
        ),
        key=(TENANT_ID, *table.key),
        definition_hash=definition_hash(table),
        logged=logged,
    )


def deleted_schema(table: TableDefinition) -> ViewSchema:
    """The rows that are gone, and their place in order: an older event must not bring one back."""
    return ViewSchema(
        name=table.deleted_view,
        columns=(
            Column("of_row", "string"),
            *(Column(name, kind) for name, kind in ORDER),
        ),
        key=("of_row",),
        definition_hash=definition_hash(table),
        logged=False,
    )
