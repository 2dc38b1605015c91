"""What a fold gives: tables of rows, changes, adjustments and errors that can cross the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.output.batch import (
    INSERT,
    UPDATE,
    Adjustment,
    Changes,
    ErrorRow,
    RowWrites,
)
from tidemark.pipeline.output.encoding import encode_names
from tidemark.pipeline.output.schema import Value, ViewSchema

DECIMAL: Final = pa.decimal128(38, 9)
ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "enum": pa.string(),
    "json": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.int64(),
    "decimal": DECIMAL,
    "boolean": pa.bool_(),
}

ROWS: Final = "rows"
DELETED: Final = "deleted"
CHANGES: Final = "changes"
ADJUSTMENTS: Final = "adjustments"
ERRORS: Final = "errors"
COMMITS: Final = "commits"
# Events and ends of streams, for the time stage.
TUPLES: Final = "tuples"
ENDS: Final = "ends"
# Facts of windows, which are folded in the driver, when it is known how far time has come.
WINDOW_FACTS: Final = "window facts"
# Corrections, whose owners must be folded anew from the ledger.
CORRECTED: Final = "corrected"
# Keys of a table that were folded anew: what the first fold said of them does not hold.
REFOLDED: Final = "refolded"

CHANGES_SCHEMA: Final = pa.schema(
    [
        ("received_at", pa.int64()),
        ("row_key", pa.string()),
        ("operation", pa.string()),
        ("old_row", pa.string()),
        ("row", pa.string()),
        ("changed", pa.string()),
    ]
)
ADJUSTMENTS_SCHEMA: Final = pa.schema(
    [
        ("ingress_sequence", pa.int64()),
        ("view", pa.string()),
        ("part", pa.int32()),
        ("received_at", pa.int64()),
        ("tenant_id", pa.string()),
        ("metric", pa.string()),
        ("customer_ref", pa.string()),
        ("group_values", pa.string()),
        ("period_start", pa.int64()),
        ("amount", DECIMAL),
        ("reason", pa.string()),
        ("idempotency_key", pa.string()),
        ("original_key", pa.string()),
        ("original_sequence", pa.int64()),
    ]
)
ERRORS_SCHEMA: Final = pa.schema(
    [
        ("ingress_sequence", pa.int64()),
        ("stage", pa.string()),
        ("received_at", pa.int64()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("tenant_id", pa.string()),
        ("stream", pa.string()),
        ("idempotency_key", pa.string()),
    ]
)


class Part(NamedTuple):
    """A table of one kind, of one view."""

    view: str
    kind: str
    table: pa.Table


class Change(NamedTuple):
    """The net change of one row at one commit; `changed` is None unless it is an update."""

    received_at: int
    row_key: str
    operation: str
    old_row: str | None
    row: str | None
    changed: str | None


def rows_schema(schema: ViewSchema) -> pa.Schema:
    """The rows of a view as they are written: key, commit, and all columns as declared."""
    return pa.schema(
        [
            ("row_key", pa.string()),
            ("row_received_at", pa.int64()),
            *((column.name, ARROW_TYPES[column.type]) for column in schema.columns),
        ]
    )


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """A table from tuples."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def keys_table(keys: Sequence[str]) -> pa.Table:
    return pa.table({"row_key": pa.array(keys, pa.string())})


def updated(
    received_at: int,
    key: str,
    old: str | None,
    new: str,
    changed: Iterable[str],
) -> Change:
    """An insert where there was no row, an update where there was one."""
    if old is None:
        return Change(received_at, key, INSERT, None, new, None)
    return Change(received_at, key, UPDATE, old, new, encode_names(changed))


def to_ipc(table: pa.Table) -> bytes:
    """A table as bytes; compressed, because on its way to the driver it is copied many times."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


class Gathered:
    """The parts of a batch, put together from all tasks."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], list[pa.Table]] = {}

    def add(self, part: Part) -> None:
        if part.table.num_rows:
            self._tables.setdefault((part.view, part.kind), []).append(part.table)

    def take(self, view: str, kind: str) -> pa.Table | None:
        tables = self._tables.get((view, kind))
        return pa.concat_tables(tables) if tables else None

    def replace(self, other: Gathered) -> None:
        """Adds what was folded anew, in place of what is here of the same keys of tables."""
        for (view, kind), tables in list(other._tables.items()):
            if kind == REFOLDED:
                keys = pa.concat_tables(tables).column(0)
                for part, column in ((ROWS, "row_key"), (DELETED, "row_key"), (CHANGES, "row_key")):
                    self._drop(view, part, column, keys)
        for (view, kind), tables in other._tables.items():
            self._tables.setdefault((view, kind), []).extend(tables)

    def _drop(self, view: str, kind: str, column: str, keys: pa.ChunkedArray) -> None:
        table = self.take(view, kind)
        if table is not None:
            gone = pc.is_in(table.column(column), value_set=keys)
            self._tables[view, kind] = [table.filter(pc.invert(gone))]

    def row_writes(self, schema: ViewSchema) -> RowWrites | None:
        rows, deleted = self.take(schema.name, ROWS), self.take(schema.name, DELETED)
        if rows is None and deleted is None:
            return None
        columns: list[Sequence[Value]] = [[] for _ in schema.columns]
        keys: list[str] = []
        received_at: list[int] = []
        if rows is not None:
            keys, received_at, *columns = (column.to_pylist() for column in rows.columns)
        gone = [] if deleted is None else deleted.column(0).to_pylist()
        return RowWrites(schema.name, keys, received_at, columns, gone)

    def changes(self, schema: ViewSchema) -> Changes | None:
        table = self.take(schema.name, CHANGES)
        if table is None:
            return None
        return Changes(schema.name, *(column.to_pylist() for column in table.columns))

    def adjustments(self) -> Iterator[Adjustment]:
        yield from _structs(self._all(ADJUSTMENTS), Adjustment)

    def errors(self) -> Iterator[ErrorRow]:
        yield from _structs(self._all(ERRORS), ErrorRow)

    def _all(self, kind: str) -> Iterator[pa.Table]:
        for (_, found), tables in self._tables.items():
            if found == kind:
                yield from tables


def _structs(tables: Iterable[pa.Table], kind: Any) -> Iterator[Any]:
    for table in tables:
        columns = [table.column(name).to_pylist() for name in kind.__struct_fields__]
        yield from (kind(*values) for values in zip(*columns, strict=True))
