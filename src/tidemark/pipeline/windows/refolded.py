"""What goes into folding windows anew, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from tidemark.pipeline.fold.parts import CHANGES_SCHEMA, Change, rows_schema, table_of, updated
from tidemark.pipeline.fold.tallies import Tally, to_decimal
from tidemark.pipeline.output.batch import DELETE, INSERT
from tidemark.pipeline.output.encoding import encode_row, row_key
from tidemark.pipeline.output.schema import Value, ViewSchema

Row: TypeAlias = tuple[Value, ...]
"""The values of all columns of a view."""
Key: TypeAlias = tuple[Value, ...]
"""Tenant and groups."""
Place: TypeAlias = tuple[Key, int]
"""A key and the start of a window."""

EVENT_FIELDS: Final = (
    *("ingress_sequence", "received_at", "idempotency_key", "target_key", "tenant_id"),
    *("kind", "ts", "value"),
)


class Event(NamedTuple):
    """An event or a correction; one that is no fact has no value."""

    ingress_sequence: int
    received_at: int
    idempotency_key: str
    target_key: str | None
    tenant_id: str
    kind: str
    ts: int | None
    value: Any
    groups: tuple[Value, ...]


class Refolded(NamedTuple):
    """What comes of the keys: rows to write and keys to remove, and what to go on from."""

    keys: list[Key]
    rows: pa.Table
    gone: list[str]
    changes: pa.Table
    late_rows: pa.Table
    late_changes: pa.Table
    open_rows: list[tuple[Value, ...]]
    members: list[tuple[str, Value]]


def change_of(
    schema: ViewSchema, received_at: int, key: str, old: Row | None, new: Row | None
) -> Change:
    """What readers see of a step from one row to another, which differ."""
    old_text = None if old is None else _text(schema, old)
    if new is None:
        return Change(received_at, key, DELETE, old_text, None, None)
    names = [column.name for column in schema.columns]
    differing = (
        [] if old is None else [n for n, a, b in zip(names, old, new, strict=True) if a != b]
    )
    return updated(received_at, key, old_text, _text(schema, new), differing)


def late_tables(
    schema: ViewSchema | None, late: Sequence[tuple[int, Row]]
) -> tuple[pa.Table, pa.Table]:
    """The rows of late events, each with its commit, and the changes that they are."""
    if schema is None:
        return CHANGES_SCHEMA.empty_table(), CHANGES_SCHEMA.empty_table()
    rows, changes = [], []
    for received_at, values in late:
        by_name = dict(zip((column.name for column in schema.columns), values, strict=True))
        key = row_key(schema, [by_name[name] for name in schema.key])
        rows.append((key, received_at, *values))
        changes.append(Change(received_at, key, INSERT, None, _text(schema, values), None))
    return table_of(rows_schema(schema), rows), table_of(CHANGES_SCHEMA, changes)


def aggregates_of(tally: Tally) -> Row:
    """The values of the columns `definition.AGGREGATES`."""
    return (
        to_decimal(tally.total),
        to_decimal(tally.maximum),
        to_decimal(tally.minimum),
        tally.count,
        to_decimal(tally.last),
    )


def _text(schema: ViewSchema, values: Row) -> str:
    names = (column.name for column in schema.columns)
    return encode_row(schema, dict(zip(names, values, strict=True)))
