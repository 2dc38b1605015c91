"""Views in memory: what a batch of parts does to them, and one shape to compare them in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tests.reference.fingerprint import Change, MeterResult
from tidemark.decimals import plain_decimal
from tidemark.pipeline.fold.parts import Gathered, Part
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.timestamps import format_timestamp


class MemoryViews:
    """Applies parts as a store would, without its checks."""

    def __init__(self, schemas: Iterable[ViewSchema]) -> None:
        self.schemas = {schema.name: schema for schema in schemas}
        self.rows: dict[str, dict[str, ViewRow]] = {name: {} for name in self.schemas}
        self.changes: dict[str, list[tuple[Any, ...]]] = {name: [] for name in self.schemas}
        self.adjustments: list[Any] = []
        self.errors: list[Any] = []

    def read(self, view: str, keys: Sequence[str]) -> list[ViewRow]:
        return [self.rows[view][key] for key in keys if key in self.rows[view]]

    def apply(self, parts: Iterable[Part]) -> None:
        self.write(gathered(parts))

    def write(self, gathered: Gathered) -> None:
        for name, schema in self.schemas.items():
            writes = gathered.row_writes(schema)
            if writes is not None:
                for key in writes.deleted:
                    del self.rows[name][key]
                for key, at, *values in zip(
                    writes.row_keys, writes.received_at, *writes.columns, strict=True
                ):
                    self.rows[name][key] = ViewRow(key, at, tuple(values))
            changes = gathered.changes(schema)
            if changes is not None:
                self.changes[name] += zip(
                    changes.received_at,
                    changes.row_keys,
                    changes.operations,
                    changes.old_rows,
                    changes.rows,
                    changes.changed,
                    strict=True,
                )
        self.adjustments += gathered.adjustments()
        self.errors += gathered.errors()

    def result(self, view: str) -> MeterResult:
        """A meter's view in the shape of the reference."""
        schema = self.schemas[view]
        result = MeterResult()
        rows = {}
        for row in self.rows[view].values():
            names = [column.name for column in schema.columns]
            values = dict(zip(names, row.values, strict=True))
            shown = {c.name: _shown(c.type, values[c.name]) for c in schema.visible}
            shown["agg_count"] = int(shown["agg_count"])
            rows[tuple(shown[name] for name in schema.key)] = shown
        result.rows_after.append(rows)
        for adjustment in self.adjustments:
            if adjustment.view == view:
                result.adjustments.append(reference_adjustment(adjustment))
        for received_at, key, op, old, new, _ in self.changes[view]:
            result.changes.append(
                Change(
                    received_at, tuple(msgspec.json.decode(key)), op.upper(), _row(old), _row(new)
                )
            )
        return result


def gathered(parts: Iterable[Part]) -> Gathered:
    found = Gathered()
    for part in parts:
        found.add(part)
    return found


def reference_adjustment(adjustment: Any) -> dict[str, Any]:
    """An adjustment as the reference shows one."""
    shown = {
        "tenant_id": adjustment.tenant_id,
        "metric": adjustment.metric,
        "customer_ref": adjustment.customer_ref,
        **msgspec.json.decode(adjustment.group_values),
        "period_start": format_timestamp(adjustment.period_start),
        "amount": plain_decimal(adjustment.amount),
        "reason": adjustment.reason,
        "idempotency_key": adjustment.idempotency_key,
        "ingress_sequence": str(adjustment.ingress_sequence),
        "original_key": adjustment.original_key,
        "original_sequence": None,
        "received_at": format_timestamp(adjustment.received_at),
    }
    if adjustment.original_sequence is not None:
        shown["original_sequence"] = str(adjustment.original_sequence)
    return shown


def _row(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    row: dict[str, Any] = msgspec.json.decode(text)
    return {**row, "agg_count": int(row["agg_count"])}


def _shown(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "decimal":
        return plain_decimal(value)
    return format_timestamp(value) if kind == "timestamp" else value
