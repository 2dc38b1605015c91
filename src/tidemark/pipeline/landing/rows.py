"""An event as it is landed: with proper types, never text for a number or a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.source.schema import Columns, arrow_type

NOT_MIRRORED: Final = -1
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_TIMES: Final = ("received_at", "occurred_at")
# Where the mirror has put an event is no part of what the event says.
_MIRRORED: Final = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64()}
SAID: Final = (
    *("ingress_sequence", "received_at", "occurred_at", "tenant_id", "stream", "idempotency_key"),
    *("metric", "customer_ref", "resource_id", "quantity", "data", "causality_key", "source"),
    *("control", "target_key"),
)
LANDED_SCHEMA: Final = pa.schema(
    [
        *(
            pa.field(
                name,
                _MOMENT if name in _TIMES else arrow_type(name),
                nullable=name not in ("ingress_sequence", "received_at", "tenant_id", "stream"),
            )
            for name in SAID
        ),
        *(pa.field(name, kind, nullable=False) for name, kind in _MIRRORED.items()),
    ]
)


def landed(columns: Columns) -> pa.RecordBatch:
    """Events of the ledger, with the columns of `LANDED_SCHEMA`."""
    count = len(columns["ingress_sequence"])
    arrays = [columns[name].cast(LANDED_SCHEMA.field(name).type) for name in SAID]
    arrays += [pa.repeat(pa.scalar(NOT_MIRRORED, kind), count) for kind in _MIRRORED.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=LANDED_SCHEMA)


class ContentHash:
    """A hash of events in their order. How they were cut into batches plays no part."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.count += batch.num_rows
        encoder = msgspec.json.Encoder()
        for row in rows_of(batch):
            self._hash.update(encoder.encode(row))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def rows_of(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[Any, ...]]:
    """What the events say: numbers and texts, a time in microseconds."""
    values = (_plain(batch.column(name)).to_pylist() for name in SAID)
    return zip(*values, strict=True)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_decimal(column.type):
        return pc.cast(column, pa.string())
    return column
