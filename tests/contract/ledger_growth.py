"""Ledgers for the tests of the source: generated histories put into a real store, ticks and all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.contract.events import ManualClock, draft
from tests.contract.stores import Ledger
from tests.reference.history import Commit, Event
from tidemark.ingress.drafts import Draft, Submission, no_corrections

# Everything that a store or a format on the way could trip over.
ODD_TEXTS = ("", '"', "a,b", "two\nlines", "\r\n", "\\N", "\\.", "NULL", "größer ✓ 🌊", "'; --")


async def append_commits(ledger: Ledger, clock: ManualClock, commits: Sequence[Commit]) -> None:
    """Each at its own time. One without events becomes a tick."""
    for received_at, events in commits:
        clock.pass_time(received_at - clock.wall_us())
        if events:
            entries = [as_draft(event) for event in events]
            await ledger.append_group([Submission("request", entries)], no_corrections)
        else:
            assert await ledger.tick(0) is not None


async def append_ticks(ledger: Ledger, clock: ManualClock, count: int) -> None:
    for _ in range(count):
        clock.pass_time(1)
        assert await ledger.tick(0) is not None


def as_draft(event: Event) -> Draft:
    odd = ODD_TEXTS[event["seq"] % len(ODD_TEXTS)]
    return draft(
        event["key"],
        json.dumps(event, default=str),
        tenant=event["tenant_id"],
        stream=event["stream"],
        occurred_at=event["ts"],
        metric=event["metric"],
        customer_ref=event["customer_ref"],
        resource_id=event["resource_id"],
        quantity=event["quantity"],
        data=None if event["meta"] is None else json.dumps(event["meta"], ensure_ascii=False),
        causality_key=odd,
        source=None if odd == "" else odd,
        control=event["control"],
        target_key=event.get("target"),
    )
