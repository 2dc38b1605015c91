"""Some keys of a table folded anew from all of their events, because some of those were corrected.

After each commit a key shows the last, by time and then by sequence, of the events that are in
effect under it. A void takes one away, an amend puts other content in its place; both may bring
back what was overtaken long ago, so only the ledger knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import TableDefinition, deleted_schema
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.parts import (
    CHANGES,
    CHANGES_SCHEMA,
    DELETED,
    REFOLDED,
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

_Name: TypeAlias = tuple[str, str]
_FIELDS = (
    *("ingress_sequence", "received_at", "idempotency_key", "target_key", "tenant_id"),
    *("kind", "slot", "ts", "deleted"),
)


class _Event(NamedTuple):
    ingress_sequence: int
    received_at: int
    idempotency_key: str
    target_key: str | None
    tenant_id: str
    kind: str
    slot: int
    ts: int | None
    deleted: bool | None
    row: dict[str, Value] | None


class _Version(NamedTuple):
    """What an event is, under a key: its place in order, and its row unless it deletes it."""

    order: Order
    row: tuple[Value, ...] | None


class _Original:
    __slots__ = ("amends", "event", "key", "voids")

    def __init__(self, event: _Event) -> None:
        self.event = event
        self.key: str | None = None
        self.voids: list[_Event] = []
        self.amends: list[_Event] = []

    def deciding(self) -> _Event | None:
        """What says what it is: nothing, once it is void."""
        if self.voids:
            return None
        return self.amends[-1] if self.amends else self.event


def fold_table_corrected(
    table: TableDefinition,
    schema: ViewSchema,
    place: int,
    given: pa.Table,
    touched: frozenset[int],
    start: int,
    read: ReadRows,
    *,
    logged: bool,
) -> list[Part]:
    """What changes after `start` under the keys in the slots `touched`.

    `given` has all events of those keys from the beginning of the ledger, and all corrections of
    their stream with their originals.
    """
    ordered = given.sort_by("ingress_sequence")
    columns = [ordered.column(name).to_pylist() for name in _FIELDS]
    rows = ordered.column(facts.table_column(place)).to_pylist()
    events = [_Event(*values) for values in zip(*columns, rows, strict=True)]
    fold = _Fold(schema, touched)
    before: dict[str, _Version] | None = None
    changes: list[Change] = []
    changed_at: dict[str, int] = {}
    seen: set[str] = set()
    for received_at, commit in groupby(events, key=lambda event: event.received_at):
        if before is None and received_at > start:
            before = dict(fold.shown)
        steps = fold.commit(list(commit))
        if before is None:
            continue
        for key, old, new in steps:
            seen.add(key)
            change = fold.change(received_at, key, old, new)
            if change is not None:
                changed_at[key] = received_at
                changes.append(change)
    result = _Result(table, schema, read)
    after = {key: fold.shown.get(key) for key in seen}
    keys = keys_table(sorted(fold.keys))
    return [
        Part(table.name, REFOLDED, keys),
        Part(
            result.deleted.name,
            REFOLDED,
            keys_table([row_key(result.deleted, [key]) for key in sorted(fold.keys)]),
        ),
        *result.parts(before or {}, after, changed_at, changes if logged else []),
    ]


class _Fold:
    def __init__(self, schema: ViewSchema, touched: frozenset[int]) -> None:
        self._schema = schema
        self._touched = touched
        self._names = [column.name for column in schema.visible]
        self._originals: dict[_Name, _Original] = {}
        self._versions: dict[str, dict[int, _Version]] = {}
        self.shown: dict[str, _Version] = {}

    def commit(
        self, commit: Sequence[_Event]
    ) -> list[tuple[str, _Version | None, _Version | None]]:
        """What each key it touched showed before, and shows now."""
        keys: set[str] = set()
        corrected: dict[_Name, _Original] = {}
        for event in commit:
            name = (event.tenant_id, event.target_key or event.idempotency_key)
            if event.target_key is None:
                original = self._originals[name] = _Original(event)
                if event.kind == facts.FACT and event.slot in self._touched:
                    # Known even if it is corrected at once and never shows under this key.
                    self._versions.setdefault(self._key(event), {})
            elif name in self._originals:
                original = self._originals[name]
                (original.voids if event.kind == facts.VOID else original.amends).append(event)
            else:
                continue
            corrected[name] = original
        for original in corrected.values():
            keys |= self._place(original)
        steps = []
        for key in sorted(keys):
            old = self.shown.get(key)
            new = max(self._versions[key].values(), default=None, key=lambda v: v.order)
            if new is not None:
                self.shown[key] = new
            else:
                self.shown.pop(key, None)
            if new != old:
                steps.append((key, old, new))
        return steps

    @property
    def keys(self) -> list[str]:
        """Every key it knows all of."""
        return sorted(self._versions)

    def _place(self, original: _Original) -> set[str]:
        """Puts an original under the key it has now; says which keys that touches."""
        sequence = original.event.ingress_sequence
        keys = set()
        if original.key is not None:
            keys.add(original.key)
            del self._versions[original.key][sequence]
            original.key = None
        event = original.deciding()
        if event is None or event.kind == facts.ERROR or event.slot not in self._touched:
            return keys
        ts = event.ts if event.ts is not None else original.event.ts
        assert ts is not None
        key = self._key(event)
        assert event.row is not None
        row = None if event.deleted else tuple(event.row[name] for name in self._names)
        self._versions.setdefault(key, {})[sequence] = _Version(Order(ts, sequence), row)
        original.key = key
        return keys | {key}

    def _key(self, event: _Event) -> str:
        assert event.row is not None
        return row_key(self._schema, [event.row[name] for name in self._schema.key])

    def change(
        self, received_at: int, key: str, old: _Version | None, new: _Version | None
    ) -> Change | None:
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
        return encode_row(self._schema, dict(zip(self._names, row, strict=True)))


class _Result:
    """Says what of it the store must write."""

    def __init__(self, table: TableDefinition, schema: ViewSchema, read: ReadRows) -> None:
        self._table = table
        self._schema = schema
        self.deleted = deleted_schema(table)
        self._read = read

    def parts(
        self,
        before: dict[str, _Version],
        after: dict[str, _Version | None],
        changed_at: dict[str, int],
        changes: list[Change],
    ) -> list[Part]:
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
            Part(name, ROWS, table_of(rows_schema(self._schema), rows)),
            Part(name, DELETED, keys_table(gone)),
            Part(name, CHANGES, table_of(CHANGES_SCHEMA, changes)),
            Part(deleted, ROWS, table_of(rows_schema(self.deleted), tombs)),
            Part(deleted, DELETED, keys_table(back)),
        ]
