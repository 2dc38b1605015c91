"""Some keys of a table folded anew from all of their events, because some of those were corrected.

After each commit a key shows the last, by time and then by sequence, of the events that are in
effect under it. A void takes one away, an amend puts other content in its place; both may bring
back what was overtaken long ago, so only the ledger knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import TableDefinition
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.parts import (
    REFOLDED,
    Change,
    Part,
    keys_table,
)
from tidemark.pipeline.fold.table_rows import TableRows, Version
from tidemark.pipeline.fold.tallies import Order
from tidemark.pipeline.output.encoding import row_key
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
    shown_rows = TableRows(table, schema, read)
    fold = _Fold(shown_rows, touched)
    before: dict[str, Version] | None = None
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
            change = shown_rows.change(received_at, key, old, new)
            if change is not None:
                changed_at[key] = received_at
                changes.append(change)
    after = {key: fold.shown.get(key) for key in seen}
    tombs = [row_key(shown_rows.deleted, [key]) for key in fold.keys]
    return [
        Part(table.name, REFOLDED, keys_table(fold.keys)),
        Part(shown_rows.deleted.name, REFOLDED, keys_table(tombs)),
        *shown_rows.parts(before or {}, after, changed_at, changes if logged else []),
    ]


class _Fold:
    def __init__(self, rows: TableRows, touched: frozenset[int]) -> None:
        self._rows = rows
        self._touched = touched
        self._originals: dict[_Name, _Original] = {}
        self._versions: dict[str, dict[int, Version]] = {}
        self.shown: dict[str, Version] = {}

    def commit(self, commit: Sequence[_Event]) -> list[tuple[str, Version | None, Version | None]]:
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
        version = self._rows.version(Order(ts, sequence), event.row, deletes=bool(event.deleted))
        self._versions.setdefault(key, {})[sequence] = version
        original.key = key
        return keys | {key}

    def _key(self, event: _Event) -> str:
        assert event.row is not None
        return self._rows.key(event.row)
