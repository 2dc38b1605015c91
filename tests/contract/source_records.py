"""What the source must say of a ledger, made from the ledger's own reading by a plain loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.contract.stores import Ledger, all_commits, all_events
from tidemark.pipeline.source.datasource import LedgerReader, LedgerStreamReader
from tidemark.pipeline.source.schema import ARROW_SCHEMA, EVENT_COLUMNS

Record = dict[str, Any]

NOTHING: Record = dict.fromkeys(ARROW_SCHEMA.names)
ZERO_CHAIN = bytes(32)


async def expected_records(ledger: Ledger) -> list[Record]:
    """Every event and every commit, in order."""
    commits = await all_commits(ledger)
    times = [None, *(commit.received_at for commit in commits)]
    chains = [ZERO_CHAIN, *(commit.chain for commit in commits)]
    before = dict(zip(times[1:], times, strict=False))
    records = []
    for event in await all_events(ledger):
        record = NOTHING | {name: getattr(event, name) for name in EVENT_COLUMNS}
        if event.quantity is not None:
            record["quantity"] = Decimal(event.quantity)
        record["record"] = "event"
        record["previous_received_at"] = before[event.received_at]
        records.append(record)
    for commit, previous_chain in zip(commits, chains, strict=False):
        records.append(
            NOTHING
            | {
                "record": "commit",
                "received_at": commit.received_at,
                "previous_received_at": before[commit.received_at],
                "first_sequence": commit.first_sequence,
                "last_sequence": commit.last_sequence,
                "chain": commit.chain,
                "previous_chain": previous_chain,
            }
        )
    return in_order(records)


def in_order(records: Iterable[Record]) -> list[Record]:
    return sorted(
        records, key=lambda r: (r["record"], r["ingress_sequence"] or 0, r["received_at"])
    )


def records_of(tables: Iterable[pa.Table | pa.RecordBatch]) -> list[Record]:
    return in_order(record for table in tables for record in table.to_pylist())


def events_only(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record["record"] == "event"]


def commits_only(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record["record"] == "commit"]


def rows_of(records: Iterable[Record]) -> int:
    """What counts towards the bound of a batch: events and ticks."""
    return sum(
        record["record"] == "event" or record["last_sequence"] < record["first_sequence"]
        for record in records
    )


def read_at_rest(address: str, **options: Any) -> list[Record]:
    """As Spark would drive the reader, in this process."""
    reader = LedgerReader({"ledger": address, **{n: str(v) for n, v in options.items()}})
    return records_of(batch for part in reader.partitions() for batch in reader.read(part))


def read_stream(
    address: str, limits: Iterator[int | None], **options: Any
) -> Iterator[tuple[dict[str, int], list[Record]]]:
    """Micro-batches as Spark would ask for them, until there is nothing new: ends and records."""
    reader = LedgerStreamReader({"ledger": address, **{n: str(v) for n, v in options.items()}})
    try:
        position = reader.initialOffset()
        while True:
            end = reader.latestOffset(position, limit_of(next(limits)))
            if end == position:
                return
            yield end, _batch(reader, position, end)
            position = end
    finally:
        reader.stop()


def _batch(
    reader: DataSourceStreamReader, start: dict[str, int], end: dict[str, int]
) -> list[Record]:
    parts: Sequence[Any] = reader.partitions(start, end)
    return records_of(
        batch for part in parts for batch in reader.read(part) if isinstance(batch, pa.RecordBatch)
    )


def limit_of(max_rows: int | None) -> ReadLimit:
    return ReadAllAvailable() if max_rows is None else ReadMaxRows(max_rows)
