"""Generated ledgers put into a real ledger as the ingress would put them there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tests.contract.events import ManualClock
from tests.contract.stores import Ledger
from tests.reference.history import Commit, Event
from tidemark.canonical import canonical_json
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.timestamps import format_timestamp


async def fill_ledger(ledger: Ledger, clock: ManualClock, commits: Sequence[Commit]) -> None:
    """Each commit at its own time. One without events becomes a tick."""
    for received_at, events in commits:
        clock.pass_time(received_at - clock.wall_us())
        if events:
            entries = [as_draft(event) for event in events]
            await ledger.append_group([Submission("request", entries)], no_corrections)
        else:
            assert await ledger.tick(0) is not None


def as_draft(event: Event) -> Draft:
    """The draft that ingress makes of such an event."""
    control = event["control"]
    content = event.get("event")
    source: Any = content if control == "amend" else event
    occurred_at = source["ts"] if control in (None, "amend") else None
    quantity = source["quantity"]
    data: str | None
    if control is None:
        data = None if event["meta"] is None else _json(event["meta"])
    elif control == "amend":
        amended = {"quantity": quantity, "ts": format_timestamp(source["ts"])}
        if source.get("resource_id") is not None:
            amended["resourceId"] = source["resource_id"]
        if source.get("meta") is not None:
            amended["meta"] = source["meta"]
        data = _json({"event": amended})
    elif control == "adjust":
        start = format_timestamp(event["period_start"] or 0)
        data = _json({"periodStart": start, "reason": event["reason"]})
    else:
        data = "{}"
    return Draft(
        tenant_id=event["tenant_id"],
        stream=event["stream"],
        idempotency_key=event["key"],
        content_hash=hashlib.sha256(json.dumps(event, default=str).encode()).digest(),
        occurred_at=occurred_at,
        metric=event["metric"],
        customer_ref=event["customer_ref"],
        resource_id=source.get("resource_id") if control in (None, "amend") else None,
        quantity=None if quantity is None else format(Decimal(quantity), "f"),
        data=data,
        control=control,
        target_key=event.get("target"),
    )


def _json(value: Any) -> str:
    return canonical_json(value).decode()
