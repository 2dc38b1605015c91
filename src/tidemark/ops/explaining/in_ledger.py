"""Asks the ledger for everything that it knows of an event, within bounds."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.ledger.port import (
    CommitRow,
    EventFilter,
    EventRow,
    LedgerStore,
    RejectFilter,
    RejectRow,
)
from tidemark.mirror.places import Place, place_in
from tidemark.ops.explaining.contents import Content, content_of
from tidemark.ops.explaining.corrections import sides_of
from tidemark.ops.explaining.event_times import Reached, reached_after
from tidemark.pipeline.time.plans import StreamTime

MOST_CORRECTIONS: Final = 100
MOST_NEIGHBOURS: Final = 1000
MOST_REFUSALS: Final = 10
# How many sequences before a commit are searched for what moved the watermark.
_WATERMARK_REACH: Final = 5_000


class InLedger(msgspec.Struct, frozen=True):
    """What the ledger knows of an event.

    `corrections` are those of the event or, if it is one itself, of its `original`.
    """

    event: EventRow
    commit: CommitRow
    previous_received_at: int | None
    mirrored: Place | None
    """Where it is in Kafka, if the mirror has said so."""
    original: EventRow | None
    corrections: list[EventRow]
    refusals: list[RejectRow]
    neighbours: list[EventRow]
    neighbours_complete: bool

    @property
    def contents(self) -> list[Content]:
        """What it says, or what it changes and into what."""
        if self.original is not None:
            return sides_of(self.event, self.original, self.corrections)
        content = content_of(self.event)
        return [] if content is None else [content]


async def look_into_ledger(ledger: LedgerStore, event: EventRow) -> InLedger:
    """Everything that the ledger knows of one of its events."""
    [commit] = await ledger.read_commits(event.received_at - 1, 1)
    previous = await ledger.last_commit(event.received_at)
    placed = await ledger.places_of(event.ingress_sequence)
    original = None
    if event.target_key is not None:
        original = await ledger.find_event(event.tenant_id, event.target_key)
    key = event.idempotency_key if event.target_key is None else event.target_key
    is_usage = event.metric is not None
    page = await ledger.read_events(
        EventFilter(
            tenant_ids=(event.tenant_id,),
            stream=event.stream,
            metric=event.metric if is_usage else None,
            customer_ref=event.customer_ref if is_usage else None,
            sequence_from=commit.first_sequence,
            sequence_to=commit.last_sequence + 1,
        ),
        0,
        MOST_NEIGHBOURS,
    )
    return InLedger(
        event=event,
        commit=commit,
        previous_received_at=None if previous is None else previous.received_at,
        mirrored=None if placed is None else place_in(placed, event.ingress_sequence),
        original=original,
        corrections=await ledger.find_corrections(event.tenant_id, key, MOST_CORRECTIONS),
        refusals=await ledger.read_rejects(
            RejectFilter(tenant_ids=(event.tenant_id,), idempotency_key=event.idempotency_key),
            MOST_REFUSALS,
        ),
        neighbours=[it for it in page.events if it.ingress_sequence != event.ingress_sequence],
        neighbours_complete=page.complete,
    )


async def look_at_time(ledger: LedgerStore, found: InLedger, time: StreamTime) -> Reached:
    """How far the time of the event's tenant had come in its stream before its commit."""
    if time.column is None:
        # It is that of the commits, whoever sent what.
        return Reached(found.previous_received_at, is_exact=True)
    end = found.commit.first_sequence
    start = max(1, end - _WATERMARK_REACH)
    page = await ledger.read_events(
        EventFilter(
            tenant_ids=(found.event.tenant_id,),
            stream=found.event.stream,
            sequence_from=start,
            sequence_to=end,
        ),
        0,
        _WATERMARK_REACH,
    )
    return reached_after(page.events, time, are_all=start == 1)
