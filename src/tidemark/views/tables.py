"""The table of a view in SQL: side by side where the dialects differ, once where they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from tidemark.pipeline.output.batch import Changes, RowWrites
from tidemark.pipeline.output.schema import ROW_KEY, ROW_RECEIVED_AT, Column, ViewSchema, quoted

Dialect: TypeAlias = Literal["sqlite", "postgres"]

_TYPES: Final[dict[Dialect, dict[str, str]]] = {
    "postgres": {
        "string": 'text COLLATE "C"',
        "int": "integer",
        "bigint": "bigint",
        "decimal": "numeric",
        "boolean": "boolean",
        "timestamp": "bigint",
        "json": 'text COLLATE "C"',
        "enum": 'text COLLATE "C"',
    },
    "sqlite": {
        "string": "TEXT",
        "int": "INTEGER",
        "bigint": "INTEGER",
        "decimal": "TEXT",
        "boolean": "INTEGER",
        "timestamp": "INTEGER",
        "json": "TEXT",
        "enum": "TEXT",
    },
}
# Rows are updated in place over and over; free space in each page keeps PostgreSQL from writing
# the index again each time.
_OPTIONS: Final[dict[Dialect, str]] = {
    "postgres": " WITH (fillfactor = 80)",
    "sqlite": " STRICT",
}

VIEW_COLUMNS: Final = (
    "name",
    "definition_hash",
    "columns",
    "key",
    "logged",
    "swapped_at",
    "log_floor",
)
CHANGE_COLUMNS: Final = (
    "view",
    "received_at",
    "row_key",
    "op",
    "old_row",
    "row",
    "changed",
)


def create_table(schema: ViewSchema, dialect: Dialect) -> str:
    """The typed table; `row_key` makes null equal to null, which a key of columns would not."""
    types = _TYPES[dialect]
    columns = [
        f"{ROW_KEY} {types['string']} PRIMARY KEY NOT NULL",
        f"{ROW_RECEIVED_AT} {types['bigint']} NOT NULL",
        *(f"{quoted(c.name)} {types[c.type]}{_check(c)}" for c in schema.columns),
    ]
    return f"CREATE TABLE {schema.table} ({', '.join(columns)}){_OPTIONS[dialect]}"


def row_columns(schema: ViewSchema) -> list[str]:
    """The names of all columns of the table, as they stand in SQL."""
    return [ROW_KEY, ROW_RECEIVED_AT, *(quoted(column.name) for column in schema.columns)]


def scan_sql(schema: ViewSchema) -> str:
    """Whole rows by key after one; with `?` for that key, and for how many."""
    return (
        f"SELECT {', '.join(row_columns(schema))} FROM {schema.table} WHERE {ROW_KEY} > ?"
        f" ORDER BY {ROW_KEY} LIMIT ?"
    )


def upsert(schema: ViewSchema, source: str) -> str:
    """Writes the rows that `source` gives, over those that have the same key."""
    names = row_columns(schema)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    return (
        f"INSERT INTO {schema.table} ({', '.join(names)}) {source}"
        f" ON CONFLICT ({ROW_KEY}) DO UPDATE SET {updates}"
    )


def row_tuples(
    writes: RowWrites, columns: Sequence[Sequence[object]]
) -> Iterator[tuple[object, ...]]:
    """The rows to write, `columns` being what the store keeps for them."""
    return zip(writes.row_keys, writes.received_at, *columns, strict=True)


def change_tuples(changes: Changes) -> Iterator[tuple[Any, ...]]:
    """The lines of the log."""
    return zip(
        [changes.view] * len(changes.row_keys),
        changes.received_at,
        changes.row_keys,
        changes.operations,
        changes.old_rows,
        changes.rows,
        changes.changed,
        strict=True,
    )


def _check(column: Column) -> str:
    if not column.values:
        return ""
    values = ", ".join("'" + value.replace("'", "''") + "'" for value in column.values)
    return f" CHECK ({quoted(column.name)} IN ({values}))"
