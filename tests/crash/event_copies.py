"""What the copies of a ledger say of its events, each in its own way of reading, to be compared.

An event is what the API shows of it, with `content` for what it holds, be it `meta` or `data`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from tests.services.clickhouse import chdb_engine
from tests.services.http_calls import call

Event = dict[str, Any]
Place = tuple[int, int]
"""A partition and an offset."""

# All that every copy says of an event: its name in the API and in Kafka, and its landed column.
SAID: Final = {
    "ingressSequence": "ingress_sequence",
    "receivedAt": "received_at",
    "occurredAt": "occurred_at",
    "tenantId": "tenant_id",
    "stream": "stream",
    "idempotencyKey": "idempotency_key",
    "metric": "metric",
    "customerRef": "customer_ref",
    "resourceId": "resource_id",
    "quantity": "quantity",
    "content": "data",
    "causalityKey": "causality_key",
    "source": "source",
    "control": "control",
    "target": "target_key",
}
PLACE: Final = ("kafka_partition", "kafka_offset")
COLUMNS: Final = (*SAID.values(), *PLACE)
_TIMES: Final = ("receivedAt", "occurredAt")


class Landed(NamedTuple):
    """The events of a place in the order in which they are found, and where each is in Kafka."""

    events: list[Event]
    places: list[Place]


def fingerprint(events: Sequence[Event], names: Iterable[str] = SAID) -> tuple[int, str]:
    """How many they are, and a hash of what they say, in the order in which they are given."""
    digest = hashlib.sha256()
    for event in events:
        digest.update(json.dumps([event.get(name) for name in names]).encode())
    return len(events), digest.hexdigest()


def of_api(base_url: str) -> list[Event]:
    events: list[Event] = []
    cursor = ""
    while True:
        page = call(base_url, "GET", f"/admin/events?limit=100{cursor}").json
        events += map(with_content, page["events"])
        if page["nextCursor"] is None:
            return events
        cursor = f"&cursor={page['nextCursor']}"


def with_content(event: Event) -> Event:
    return {**event, "content": event.get("meta", event.get("data"))}


def of_parquet(directory: Path) -> Landed:
    """The files by their names, and the rows as they stand in them."""
    tables = [pq.read_table(path) for path in sorted(directory.glob("*.parquet"))]
    for table in tables:
        # Whoever lands more of an event is to compare more of it.
        assert sorted(table.column_names) == sorted(COLUMNS)
    return _landed(
        tuple(row[name] for name in COLUMNS) for table in tables for row in table.to_pylist()
    )


def of_clickhouse(directory: Path) -> Landed:
    """In the order of the table."""
    with chdb_engine(directory) as engine:
        order = ", ".join(("ingress_sequence", *PLACE))
        query = f"SELECT {', '.join(COLUMNS)} FROM tidemark.events ORDER BY {order}"
        return _landed(engine.rows(query))


def _landed(rows: Iterable[tuple[Any, ...]]) -> Landed:
    found = Landed([], [])
    for row in rows:
        *said, partition, offset = row
        found.events.append(_event(dict(zip(SAID, said, strict=True))))
        found.places.append((partition, offset))
    return found


def _event(event: Event) -> Event:
    """What is landed has times and numbers where the API has texts."""
    event["ingressSequence"] = str(event["ingressSequence"])
    for name in _TIMES:
        event[name] = event[name].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if event["quantity"] is not None:
        event["quantity"] = format(event["quantity"].normalize(), "f")
    if event["content"] is not None:
        event["content"] = json.loads(event["content"])
    return event
