"""An event as it is landed: with proper types, never text for a number or a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.ledger.port import PlacedEvents
from tidemark.mirror.places import PlaceColumns, unpacked
from tidemark.pipeline.source.schema import Columns, arrow_type

_MOMENT: Final = pa.timestamp("us", tz="UTC")
_TIMES: Final = ("received_at", "occurred_at")
# Where the mirror has put an event, -1 where none has, is no part of what the event says.
MIRRORED: Final = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64()}
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
        *(pa.field(name, kind, nullable=False) for name, kind in MIRRORED.items()),
    ]
)


def landed(columns: Columns, places: Sequence[PlacedEvents] = ()) -> pa.RecordBatch:
    """Events of the ledger that follow one another, with the columns of `LANDED_SCHEMA`."""
    arrays = [columns[name].cast(LANDED_SCHEMA.field(name).type) for name in SAID]
    arrays += _places(columns["ingress_sequence"], places)
    return pa.RecordBatch.from_arrays(arrays, schema=LANDED_SCHEMA)


def _places(sequences: pa.Array, places: Sequence[PlacedEvents]) -> list[pa.Array]:
    count = len(sequences)
    columns = PlaceColumns.unknown(count)
    first = sequences[0].as_py() if count else 0
    for placed in places:
        found = unpacked(placed.places)
        begin, end = max(first, placed.first_sequence), min(first + count, placed.last_sequence + 1)
        for column, known in zip(columns, found, strict=True):
            part = known[begin - placed.first_sequence : end - placed.first_sequence]
            column[begin - first : end - first] = part
    return [
        pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])
        for kind, column in zip(MIRRORED.values(), columns, strict=True)
    ]


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
