"""Windows as they are defined, and the views that show and keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tidemark.pipeline.definition_hash import INTERNAL_MARK, definition_hash
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.pipeline.stream_columns import TENANT_ID, stream_columns

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.config.model import FieldType
    from tidemark.config.pipeline_model import Aggregate
    from tidemark.config.window_model import Emit, LatePolicy

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

# The columns of a row besides tenant, groups and bounds.
AGGREGATES: Final[tuple[tuple[str, FieldType], ...]] = (
    ("agg_sum", "decimal"),
    ("agg_max", "decimal"),
    ("agg_min", "decimal"),
    ("agg_count", "bigint"),
    ("agg_last", "decimal"),
)
VALUE: Final = "value"
IS_CLOSED: Final = "is_closed"
# What must be kept of a window that may still change, besides its aggregates: where `agg_last` came
# from, how many different values there were, and whether it is closed, though late events may come.
_KEPT: Final[tuple[tuple[str, FieldType], ...]] = (
    ("last_ts", "timestamp"),
    ("last_sequence", "bigint"),
    ("distinct_count", "bigint"),
    (IS_CLOSED, "boolean"),
)
_LATE: Final[tuple[tuple[str, FieldType], ...]] = (
    ("ingress_sequence", "bigint"),
    ("part", "int"),
    ("event_ts", "timestamp"),
    ("amount", "decimal"),
    ("reason", "string"),
    ("idempotency_key", "string"),
    ("original_key", "string"),
)


class WindowDefinition(msgspec.Struct, frozen=True):
    """Windows over one stream; `where` and `value` are Spark SQL over its `fields`.

    `time_column` and `time_type` say where an event's time is; without them it is when its commit
    was received.
    """

    name: str
    stream: str
    fields: tuple[Column, ...]
    size_us: int
    every_us: int
    group_by: tuple[str, ...]
    aggregate: Aggregate
    value: str
    where: str | None
    emit: Emit
    late: LatePolicy
    refire_for_us: int
    time_column: str | None = None
    time_type: str | None = None

    @classmethod
    def of(cls, name: str, config: Config) -> WindowDefinition:
        window = config.windows[name]
        stream = config.streams[window.stream]
        eventtime = stream.eventtime if config.pipeline.eventtime.enabled else None
        return cls(
            name=name,
            stream=window.stream,
            fields=stream_columns(stream),
            size_us=window.size_us,
            every_us=window.every_us or window.size_us,
            group_by=tuple(window.group_by),
            aggregate=window.aggregate,
            # What is only counted needs no value, and this one is never null.
            value=window.value or "1",
            where=window.where,
            emit=window.emit,
            late=window.late,
            refire_for_us=window.refire_for_us or 0,
            time_column=eventtime.column if eventtime else None,
            time_type=eventtime.type if eventtime else None,
        )

    @property
    def groups(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.fields}
        return tuple(by_name[name] for name in self.group_by)

    @property
    def late_view(self) -> str | None:
        """Where late events are shown, if they are."""
        return _late_view(self.name) if self.late == "side_output" else None

    @property
    def open_view(self) -> str:
        """Where windows are kept that may still change."""
        return f"{self.name}{INTERNAL_MARK}open"

    @property
    def members_view(self) -> str:
        """Where the values are kept that a window of a `unique` has seen."""
        return f"{self.name}{INTERNAL_MARK}members"


class NumberedWindow(NamedTuple):
    """A window, its number among the views, and the column of its groups."""

    window: WindowDefinition
    view: int
    groups: str


def window_schemas(window: WindowDefinition, *, logged: bool = True) -> list[ViewSchema]:
    """All views of a window, its own first."""
    schemas = [window_schema(window, logged=logged), open_schema(window)]
    if window.aggregate == "unique":
        schemas.append(window_members_schema(window))
    if window.late_view is not None:
        schemas.append(late_schema(window, logged=logged))
    return schemas


def window_schema(window: WindowDefinition, *, logged: bool = True) -> ViewSchema:
    """The view of windows: one row per tenant, groups and start."""
    return ViewSchema(
        name=window.name,
        columns=(
            *_place(window),
            *(Column(name, kind) for name, kind in AGGREGATES),
            Column(VALUE, "decimal"),
            Column(IS_CLOSED, "boolean"),
        ),
        key=(TENANT_ID, *window.group_by, WINDOW_START),
        definition_hash=definition_hash(window),
        logged=logged,
    )


def late_schema(window: WindowDefinition, *, logged: bool = True) -> ViewSchema:
    """The late events of windows, one row for each event and window that it was too late for."""
    return ViewSchema(
        name=_late_view(window.name),
        columns=(*_place(window), *(Column(name, kind) for name, kind in _LATE)),
        key=(TENANT_ID, "ingress_sequence", WINDOW_START, "part"),
        definition_hash=definition_hash(window),
        logged=logged,
    )


def open_schema(window: WindowDefinition) -> ViewSchema:
    """The windows that may still change; their keys are those of their rows."""
    return ViewSchema(
        name=window.open_view,
        columns=(
            *_place(window),
            *(Column(name, kind) for name, kind in (*AGGREGATES, *_KEPT)),
        ),
        key=(TENANT_ID, *window.group_by, WINDOW_START),
        definition_hash=definition_hash(window),
        logged=False,
    )


def window_members_schema(window: WindowDefinition) -> ViewSchema:
    """The values that the windows of a `unique` have seen, for as long as they may change."""
    return ViewSchema(
        name=window.members_view,
        columns=(Column("of_row", "string"), Column("value", "decimal")),
        key=("of_row", "value"),
        definition_hash=definition_hash(window),
        logged=False,
    )


def _place(window: WindowDefinition) -> tuple[Column, ...]:
    return (
        Column(TENANT_ID, "string"),
        *window.groups,
        Column(WINDOW_START, "timestamp"),
        Column(WINDOW_END, "timestamp"),
    )


def _late_view(name: str) -> str:
    from tidemark.config.window_checks import late_view

    return late_view(name)
