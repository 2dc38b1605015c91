"""What a view looks like: its columns, its key and the hash of its definition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.pipeline.output.errors import InvalidView

ColumnType: TypeAlias = Literal[
    "string", "int", "bigint", "decimal", "boolean", "timestamp", "json", "enum"
]

Value: TypeAlias = str | int | bool | Decimal | None
"""What a column holds in Python: timestamps are microseconds, `json` is canonical JSON text."""

# Beside the columns of a view every row has these: its key as text, and its source timestamp.
ROW_KEY: Final = "row_key"
ROW_RECEIVED_AT: Final = "row_received_at"

# PostgreSQL cuts a name after 63 bytes without a word, and a table's name begins with `view_`.
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,57}").fullmatch
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}").fullmatch
# Its table would be the log of changes.
_RESERVED_VIEW: Final = "changes"


class Column(msgspec.Struct, frozen=True):
    """`values` are those of an enum, in their order. A hidden column is never shown to readers."""

    name: str
    type: ColumnType
    values: tuple[str, ...] = ()
    hidden: bool = False


class ViewSchema(msgspec.Struct, frozen=True):
    """One view. Its shape belongs to its definition, so `definition_hash` must cover it.

    With `logged=False` only rows are kept: such a view has no changes to read and no past.
    Raises `InvalidView` for what no store could keep.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    definition_hash: str
    logged: bool = True

    def __post_init__(self) -> None:
        for field, message in _faults(self):
            raise InvalidView(
                f"view {self.name}: {message}",
                hint="Names are letters, digits and `_`; databases limit their length.",
                field=field,
            )

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns that readers see, as declared."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    @property
    def table(self) -> str:
        """The table's name, ready to stand in SQL."""
        return quoted(f"view_{self.name}")


def quoted(name: str) -> str:
    """A name that was checked above, spelled so that SQL keeps its case and takes any word."""
    return f'"{name}"'


def _faults(schema: ViewSchema) -> Iterator[tuple[str, str]]:
    if not _VIEW_NAME(schema.name) or schema.name.lower() == _RESERVED_VIEW:
        yield "name", "this cannot be the name of a view"
    seen: set[str] = set()
    for column in schema.columns:
        name = column.name
        if not _COLUMN_NAME(name) or name.lower() in (ROW_KEY, ROW_RECEIVED_AT):
            yield name, f"{name} cannot be the name of a column"
        # SQLite does not tell upper from lower case in names.
        if name.lower() in seen:
            yield name, f"{name} is the name of two columns"
        seen.add(name.lower())
        if (column.type == "enum") != bool(column.values):
            yield name, f"{name} must be an enum with values, or have neither"
        if any("\0" in value for value in column.values):
            yield name, f"{name} has a value with a NUL character"
    visible = [column.name for column in schema.visible]
    for name in schema.key:
        if name not in visible:
            yield name, f"{name} is in the key, but no visible column"
    if not schema.key or len(set(schema.key)) < len(schema.key):
        yield "key", "the key must name at least one column, and each but once"
