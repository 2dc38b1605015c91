"""Facts of a table from a plain ledger, made without Spark, and one shape to compare tables in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa

from tests.reference.tables import (
    Row,
    StreamCommit,
    StreamEvent,
    Table,
    TableChange,
    TableResult,
    Undecodable,
    version_of,
)
from tidemark.pipeline.definitions import TableDefinition, table_schema
from tidemark.pipeline.fold.parts import ARROW_TYPES
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column, ViewSchema

# Few, so that keys of different rows share slots, as hashes may.
SLOTS = 5


def definition_of(table: Table) -> TableDefinition:
    """The product's definition of the same table."""
    return TableDefinition(
        name=table.name,
        stream=table.stream,
        key=table.key,
        fields=tuple(Column(f.name, f.type, f.values) for f in table.fields),
        calculated=tuple((c.name, c.text) for c in table.calculated),
        delete_when=None if table.delete_when is None else table.delete_when.text,
        time_column=None if table.time is None else table.time.column,
        time_type=None if table.time is None else table.time.type,
    )


def schema_of(table: Table) -> ViewSchema:
    calculated = tuple(Column(c.name, c.type) for c in table.calculated)
    return table_schema(definition_of(table), calculated)


def facts_schema(table: Table) -> pa.Schema:
    row = pa.struct([(name, ARROW_TYPES[kind]) for name, kind in table.columns])
    return pa.schema(
        [
            ("ingress_sequence", pa.int64()),
            ("received_at", pa.int64()),
            ("idempotency_key", pa.string()),
            ("target_key", pa.string()),
            ("tenant_id", pa.string()),
            ("kind", pa.string()),
            ("slot", pa.int64()),
            ("ts", pa.int64()),
            ("deleted", pa.bool_()),
            ("error_code", pa.string()),
            ("row_0", row),
        ]
    )


def facts_of(commits: Sequence[StreamCommit], table: Table) -> pa.Table:
    """The facts of all commits, errors included."""
    rows = [
        _fact(table, received_at, event)
        for received_at, events in commits
        for event in events
        if event["stream"] == table.stream and event["control"] != "end"
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(facts_schema(table))
    schema = facts_schema(table)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def _fact(table: Table, received_at: int, event: StreamEvent) -> tuple[Any, ...]:
    key = (event["key"], event["target"], event["tenant_id"])
    start = (event["seq"], received_at, *key)
    sent_at = event["ts"] if event["ts"] is not None else received_at
    if event["control"] == "void":
        return (*start, "void", -1, None, None, None, None)
    content = event["event"] or event
    try:
        version = version_of(table, event, content, received_at)
    except Undecodable as error:
        ts = content["ts"] if event["event"] else sent_at
        return (*start, "error", -1, ts if table.time is None else None, None, error.code, None)
    ts = version.ts
    if event["control"] == "amend" and table.time is None:
        # None if it keeps that of the original.
        ts = content["ts"]  # type: ignore[assignment]
    slot = crc32(version.key.encode()) % SLOTS
    row = {name: plain(version.values[name]) for name, _ in table.columns}
    return (*start, event["control"] or "fact", slot, ts, version.deleted, None, row)


def plain(value: Any) -> Any:
    """A value of the reference as the product holds it."""
    if not isinstance(value, Fraction):
        return value
    billionths = value * 10**9
    assert billionths.denominator == 1
    return Decimal(f"{billionths.numerator}E-9")


def result_of(
    table: Table,
    schema: ViewSchema,
    rows: Iterable[ViewRow],
    tombstones: Iterable[ViewRow],
    changes: Iterable[Sequence[Any]],
    errors: Iterable[tuple[int, str]],
) -> TableResult:
    """What is in the views in the shape of the reference."""
    result = TableResult()
    names = [column.name for column in schema.columns]
    for row in rows:
        values = dict(zip(names, row.values, strict=True))
        text = encode_row(schema, values)
        result.rows[row.row_key] = Row(
            text,
            values["row_ts"],  # type: ignore[arg-type]
            values["row_seq"],  # type: ignore[arg-type]
            row.received_at,
        )
    for tombstone in tombstones:
        of_row, ts, seq = tombstone.values
        result.tombstones[of_row] = (ts, seq)  # type: ignore[index, assignment]
    for received_at, key, op, old, new, changed in changes:
        touched = tuple(msgspec.json.decode(changed)) if isinstance(changed, str) else changed
        result.changes.append(TableChange(received_at, key, op, old, new, touched))
    result.changes.sort(key=lambda change: (change.received_at, change.key))
    result.errors = sorted(errors)
    return result
