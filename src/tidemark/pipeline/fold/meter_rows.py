"""Rows of a meter, as folds in Python read and write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from tidemark.pipeline.definitions import (
    COUNTERS,
    MeterDefinition,
    members_schema,
    meter_schema,
)
from tidemark.pipeline.fold.parts import (
    ADJUSTMENTS,
    ADJUSTMENTS_SCHEMA,
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
from tidemark.pipeline.fold.rules import Fact, Slot, group_values
from tidemark.pipeline.fold.tallies import Counter, to_decimal
from tidemark.pipeline.output.encoding import encode_row, row_keys
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Value

ReadRows = Callable[[str, Sequence[str]], list[ViewRow]]
"""Reads the rows there are under some keys of a view, hidden columns too."""


class Membership(NamedTuple):
    """Where a value of a `unique` meter is: a late void leaves it counted, but not in effect."""

    is_counted: bool
    is_in_effect: bool


Member: TypeAlias = tuple[Slot, int]

_NAMES = tuple(name for name, _ in COUNTERS)


class MeterRows:
    """The rows that a fold touches: as they were, as they are, and what changed in between."""

    def __init__(self, meter: MeterDefinition, read: ReadRows, *, logged: bool) -> None:
        self.meter = meter
        self.schema = meter_schema(meter)
        self._members = members_schema(meter)
        self._logged = logged
        self._read = read
        self._keys: dict[Slot, str] = {}
        self._before: dict[Slot, ViewRow | None] = {}
        self._shown: dict[Slot, tuple[Value, ...] | None] = {}
        self._texts: dict[Slot, str | None] = {}
        self._received_at: dict[Slot, int] = {}
        self._changes: list[Change] = []
        self._adjustments: list[tuple[Any, ...]] = []

    def load(self, slots: Iterable[Slot]) -> None:
        """Finds the keys of these slots and reads the rows there are."""
        wanted = list(slots)
        keys = row_keys(self.schema, self._key_columns(wanted))
        rows = {row.row_key: row for row in self._read(self.meter.name, keys)}
        for slot, key in zip(wanted, keys, strict=True):
            self._keys[slot] = key
            self._before[slot] = rows.get(key)

    def columns_before(self, slot: Slot) -> Mapping[str, Any] | None:
        """The columns of a row as it was, by name."""
        row = self._before[slot]
        if row is None:
            return None
        names = (column.name for column in self.schema.columns)
        return dict(zip(names, row.values, strict=True))

    def known_members(self, pairs: Sequence[Member]) -> dict[Member, Membership]:
        """Which values a `unique` meter has seen before."""
        keys, _, _ = self._member_columns(pairs)
        rows = self._read(self._members.name, keys)
        found = {row.row_key: Membership(*map(bool, row.values[2:])) for row in rows}
        return {pair: found[key] for pair, key in zip(pairs, keys, strict=True) if key in found}

    def start_from(self, slot: Slot, counter: Counter) -> None:
        """Says what a row showed before the first change that is recorded."""
        self._shown[slot] = counter.shown(self.meter.aggregate)

    def record(self, slot: Slot, counter: Counter, received_at: int) -> None:
        """Takes down what a row shows after a commit that touched it."""
        old, new = self._shown.get(slot), counter.shown(self.meter.aggregate)
        if old == new:
            return
        self._received_at[slot] = received_at
        self._shown[slot] = new
        if not self._logged:
            return
        if slot not in self._texts:
            self._texts[slot] = None if old is None else self._text(slot, old)
        old_text, text = self._texts[slot], self._text(slot, new)
        self._texts[slot] = text
        changed = (
            () if old is None else (n for n, a, b in zip(_NAMES, old, new, strict=True) if a != b)
        )
        self._changes.append(updated(received_at, self._keys[slot], old_text, text, changed))

    def adjust(
        self,
        slot: Slot,
        amount: int,
        reason: str,
        event: Fact,
        original: Fact | None = None,
        part: int = 0,
    ) -> None:
        """Writes an adjustment that names its event."""
        self._adjustments.append(
            (
                event.ingress_sequence,
                self.meter.name,
                part,
                event.received_at,
                slot.tenant_id,
                self.meter.metric,
                slot.customer_ref,
                group_values(self.meter, slot.groups),
                slot.period_start,
                to_decimal(amount),
                reason,
                event.idempotency_key,
                None if original is None else original.idempotency_key,
                None if original is None else original.ingress_sequence,
            )
        )

    def parts(self, counters: Mapping[Slot, Counter]) -> list[Part]:
        """What is to be written for these rows."""
        aggregate = self.meter.aggregate
        rows = []
        for slot, counter in counters.items():
            before = self._before[slot]
            received_at = self._received_at.get(slot, before.received_at if before else 0)
            values = (*self._key_values(slot), *counter.shown(aggregate), *counter.kept(aggregate))
            rows.append((self._keys[slot], received_at, *values))
        return [
            Part(self.meter.name, ROWS, table_of(rows_schema(self.schema), rows)),
            Part(self.meter.name, CHANGES, table_of(CHANGES_SCHEMA, self._changes)),
            Part(self.meter.name, ADJUSTMENTS, table_of(ADJUSTMENTS_SCHEMA, self._adjustments)),
        ]

    def member_parts(
        self, kept: Mapping[Member, Membership], gone: Sequence[Member] = ()
    ) -> list[Part]:
        """The members to write, and those that are none any more."""
        name = self._members.name
        keys, of_row, values = self._member_columns(list(kept))
        schema = rows_schema(self._members)
        columns = [
            *(keys, [0] * len(keys), of_row, values),
            [membership.is_counted for membership in kept.values()],
            [membership.is_in_effect for membership in kept.values()],
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        table = pa.table(arrays, schema=schema)
        gone_keys, _, _ = self._member_columns(gone)
        return [Part(name, ROWS, table), Part(name, DELETED, keys_table(gone_keys))]

    def _member_columns(
        self, pairs: Sequence[Member]
    ) -> tuple[list[str], list[str], list[Decimal | None]]:
        of_row = [self._keys[slot] for slot, _ in pairs]
        values = [to_decimal(value) for _, value in pairs]
        keys = row_keys(self._members, {"of_row": of_row, "value": values})
        return keys, of_row, values

    def _text(self, slot: Slot, shown: tuple[Value, ...]) -> str:
        names = (column.name for column in self.schema.visible)
        values = (*self._key_values(slot), *shown)
        return encode_row(self.schema, dict(zip(names, values, strict=True)))

    def _key_values(self, slot: Slot) -> tuple[Value, ...]:
        return (
            slot.tenant_id,
            self.meter.metric,
            slot.customer_ref,
            *slot.groups,
            slot.period_start,
        )

    def _key_columns(self, slots: Sequence[Slot]) -> dict[str, Sequence[Value]]:
        columns = list(zip(*map(self._key_values, slots), strict=True)) if slots else ()
        return dict(zip(self.schema.key, columns or [()] * len(self.schema.key), strict=True))


def members_of(counters: Mapping[Slot, Counter]) -> Iterator[tuple[Member, Membership]]:
    """Every value that is known of some counters of a `unique` meter."""
    for slot, counter in counters.items():
        counted, everything = counter.counted.members or {}, counter.everything.members or {}
        for value in counted.keys() | everything.keys():
            yield (slot, value), Membership(value in counted, value in everything)
