"""Generated ledgers as the source of the pipeline shows them, and configurations to decode them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.contract.events import ManualClock
from tests.contract.stores import Ledger
from tests.reference.tables import StreamCommit, StreamEvent, Table
from tidemark.config import Config, load_config
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.pipeline.source.schema import COMMIT, EVENT, SPARK_SCHEMA
from tidemark.timestamps import format_timestamp

_NO_CHAIN = bytes(32)


def stream_draft(event: StreamEvent) -> Draft:
    """The draft that ingress makes of such an event."""
    data, ts = event["data"], event["ts"]
    content = event["event"]
    if content is not None:
        ts = content["ts"]
        occurred = "" if ts is None else f',"occurredAt":"{format_timestamp(ts)}"'
        data = f'{{"event":{{"data":{content["data"]}{occurred}}}}}'
    return Draft(
        tenant_id=event["tenant_id"],
        stream=event["stream"],
        idempotency_key=event["key"],
        content_hash=hashlib.sha256(json.dumps(event).encode()).digest(),
        occurred_at=ts,
        data=data,
        control=event["control"],
        target_key=event["target"],
    )


async def fill_stream(ledger: Ledger, clock: ManualClock, commits: Sequence[StreamCommit]) -> None:
    """Each commit at its own time. One without events becomes a tick."""
    for received_at, events in commits:
        clock.pass_time(received_at - clock.wall_us())
        if events:
            entries = [stream_draft(event) for event in events]
            await ledger.append_group([Submission("request", entries)], no_corrections)
        else:
            assert await ledger.tick(0) is not None


def source_rows(
    spark: SparkSession, commits: Sequence[Any], draft_of: Callable[[Any], Draft]
) -> DataFrame:
    """What the source reads from a ledger of these commits."""
    records = list(_records(commits, draft_of))
    rows = [tuple(record.get(name) for name in SPARK_SCHEMA.fieldNames()) for record in records]
    return spark.createDataFrame(rows, SPARK_SCHEMA)


def _records(
    commits: Sequence[Any], draft_of: Callable[[Any], Draft]
) -> Iterator[Mapping[str, Any]]:
    previous: int | None = None
    for received_at, events in commits:
        times = {"received_at": received_at, "previous_received_at": previous}
        for event in events:
            draft = draft_of(event)
            yield {
                **times,
                "record": EVENT,
                "ingress_sequence": event["seq"],
                "occurred_at": received_at if draft.occurred_at is None else draft.occurred_at,
                "tenant_id": draft.tenant_id,
                "stream": draft.stream,
                "idempotency_key": draft.idempotency_key,
                "metric": draft.metric,
                "customer_ref": draft.customer_ref,
                "resource_id": draft.resource_id,
                "quantity": None if draft.quantity is None else Decimal(draft.quantity),
                "data": draft.data,
                "control": draft.control,
                "target_key": draft.target_key,
            }
        first = events[0]["seq"] if events else None
        last = events[-1]["seq"] if events else None
        yield {
            **times,
            "record": COMMIT,
            "first_sequence": first,
            "last_sequence": last,
            "chain": _NO_CHAIN,
            "previous_chain": _NO_CHAIN,
        }
        previous = received_at


def stream_settings(table: Table) -> dict[str, Any]:
    """The stream of a table as it stands in a configuration."""
    fields: dict[str, Any] = {}
    for field in table.fields:
        fields[field.name] = {"type": field.type, "required": field.required}
        if field.values:
            fields[field.name]["values"] = list(field.values)
    return {"fields": fields}


def view_settings(table: Table) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "stream": table.stream,
        "key": list(table.key),
        "calculated": {column.name: column.text for column in table.calculated},
    }
    if table.delete_when is not None:
        settings["deleteWhen"] = table.delete_when.text
    return settings


def written_config(directory: Path, settings: Mapping[str, Any]) -> Config:
    """The configuration that these settings make, with its state in the directory."""
    path = directory / "tidemark.yaml"
    path.write_text(json.dumps({"state_dir": str(directory / "state"), **settings}))
    return load_config(path, {})
