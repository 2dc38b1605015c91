"""Rows of a table, as folds in Python read and write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidemark.pipeline.definitions import TableDefinition, deleted_schema
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.parts import (
    CHANGES,
    CHANGES_SCHEMA,
    DELETED,
    ROWS,
    Change,
    Part,
    keys_table,
    rows_schema,
    table_of,
    updated,
)
from tidemark.pipeline.fold.tallies import Order
from tidemark.pipeline.output.batch import DELETE
from tidemark.pipeline.output.encoding import encode_row, row_key
from tidemark.pipeline.output.schema import Value, ViewSchema


class Version(NamedTuple):
    """What an event is, under a key: its place in order, and its row unless it deletes it."""

    order: Order
    row: tuple[Value, ...] | None


class TableRows:
    """What a fold shows of a table, and what of that the store must write."""

    def __init__(self, table: TableDefinition, schema: ViewSchema, read: ReadRows) -> None:
        self.schema = schema
        self.deleted = deleted_schema(table)
        self._table = table
        self._read = read
        self._names = [column.name for column in schema.visible]

    def key(self, row: Mapping[str, Value]) -> str:
        return row_key(self.schema, [row[name] for name in self.schema.key])

    def version(self, order: Order, row: Mapping[str, Value], *, deletes: bool) -> Version:
        return Version(order, None if deletes else tuple(row[name] for name in self._names))

    def stored(self, keys: Sequence[str]) -> dict[str, Version]:
        """What is there under these keys, and the places of what was deleted."""
        found = {}
        for row in self._read(self._table.name, keys):
            *shown, ts, sequence = row.values
            found[row.row_key] = Version(_order(ts, sequence), tuple(shown))
        if self._table.delete_when is not None:
            tombs = [row_key(self.deleted, [key]) for key in keys]
            for row in self._read(self.deleted.name, tombs):
                of_row, ts, sequence = row.values
                found[str(of_row)] = Version(_order(ts, sequence), None)
        return found

    def change(
        self, received_at: int, key: str, old: Version | None, new: Version | None
    ) -> Change | None:
        """What readers see of a step from one version to another, if anything."""
        was, now = old and old.row, new and new.row
        if was == now:
            return None
        old_text = None if was is None else self._text(was)
        if now is None:
            return Change(received_at, key, DELETE, old_text, None, None)
        changed = (
            ()
            if was is None
            else (n for n, a, b in zip(self._names, was, now, strict=True) if a != b)
        )
        return updated(received_at, key, old_text, self._text(now), changed)

    def _text(self, row: tuple[Value, ...]) -> str:
        return encode_row(self.schema, dict(zip(self._names, row, strict=True)))

    def parts(
        self,
        before: Mapping[str, Version],
        after: Mapping[str, Version | None],
        changed_at: Mapping[str, int],
        changes: Sequence[Change],
    ) -> list[Part]:
        """What to write for the keys of `after`, which had other versions `before`."""
        keys = sorted(after)
        stored = {row.row_key: row for row in self._read(self._table.name, keys)}
        rows: list[tuple[Any, ...]] = []
        tombs: list[tuple[Any, ...]] = []
        gone, back = [], []
        for key in keys:
            version = after[key]
            tomb = row_key(self.deleted, [key])
            if version is not None and version.row is not None:
                at = changed_at.get(key) or stored[key].received_at
                rows.append((key, at, *version.row, *version.order))
            elif key in stored:
                gone.append(key)
            if version is not None and version.row is None:
                tombs.append((tomb, 0, key, *version.order))
            elif key in before and before[key].row is None:
                back.append(tomb)
        name, deleted = self._table.name, self.deleted.name
        return [
            Part(name, ROWS, table_of(rows_schema(self.schema), rows)),
            Part(name, DELETED, keys_table(gone)),
            Part(name, CHANGES, table_of(CHANGES_SCHEMA, changes)),
            Part(deleted, ROWS, table_of(rows_schema(self.deleted), tombs)),
            Part(deleted, DELETED, keys_table(back)),
        ]


def _order(ts: Value, sequence: Value) -> Order:
    assert isinstance(ts, int)
    assert isinstance(sequence, int)
    return Order(ts, sequence)
