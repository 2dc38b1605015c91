"""`GET /admin/causality/{key}`: the history of one run, across all streams and tenants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.errors import NotFound
from tidemark.ledger.event_json import EventView, event_view
from tidemark.ledger.port import Decision, EventRow, LedgerStore, RunSummary
from tidemark.ledger.sequencer import key_digest
from tidemark.ops.admin import DEFAULT_PAGE, LARGEST_PAGE
from tidemark.ops.parameters import decode_cursor, encode_cursor, event_filter, limit_of
from tidemark.timestamps import format_timestamp
from tidemark.web.messages import Request, Response, json_response

_MICROS_PER_MS: Final = 1000


class RunEventView(EventView):
    """An event, and which other events it corrects or is corrected by."""

    target_sequence: str | None = None
    voided_by: str | None = None
    amended_by: str | None = None


class TenantCount(msgspec.Struct, rename="camel"):
    tenant_id: str
    count: int


class StreamCount(msgspec.Struct, rename="camel"):
    stream: str
    count: int


class RunView(msgspec.Struct, rename="camel"):
    """What a run comes to. A duration is the time from the first to the last."""

    causality_key: str
    count: int
    complete: bool
    tenants: list[TenantCount]
    streams: list[StreamCount]
    first_sequence: str
    last_sequence: str
    first_received_at: str
    last_received_at: str
    received_duration_ms: int
    first_occurred_at: str
    last_occurred_at: str
    occurred_duration_ms: int


class RunPage(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Some events of a run in order; the first page also says what the run comes to."""

    run: RunView | None = None
    events: list[RunEventView]
    next_cursor: str | None


class Causality:
    """The handler over a ledger store."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    async def get_run(self, request: Request) -> Response:
        [key] = request.path_values
        # The key is part of the question, so a cursor belongs to it as to any filter.
        query = {**request.query(("tenantId", "limit", "cursor")), "causalityKey": key}
        wanted = event_filter(query, request.caller)
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        after = decode_cursor(query)
        page = await self._store.read_events(wanted, after or 0, limit)
        if after is None and not page.events:
            raise NotFound(
                f"no event that you see has the causality key {key[:64]!r}",
                hint="Keys are compared letter by letter. GET /admin/events shows the causalityKey"
                " of each event that has one.",
                field="key",
            )
        answer = RunPage(
            events=await self._with_corrections(page.events),
            next_cursor=None if page.complete else encode_cursor(page.scanned_to, query),
        )
        if after is None:
            # Read after the page, so that it counts whatever the page shows.
            summary = await self._store.summarise_run(key, wanted.tenant_ids)
            answer.run = run_view(key, summary)
        return json_response(answer)

    async def _with_corrections(self, events: Sequence[EventRow]) -> list[RunEventView]:
        decisions = await self._store.find_decisions(
            [(event.tenant_id, event.idempotency_key) for event in events]
        )
        targets = await self._store.lookup(
            [
                key_digest(event.tenant_id, event.target_key)
                for event in events
                if event.target_key is not None
            ]
        )
        sequences = {
            (it.tenant_id, it.idempotency_key): it.ingress_sequence for it in targets.values()
        }
        return [
            run_event_view(
                event,
                decisions.get((event.tenant_id, event.idempotency_key)),
                sequences.get((event.tenant_id, event.target_key or "")),
            )
            for event in events
        ]


def run_event_view(
    event: EventRow, decision: Decision | None, target_sequence: int | None
) -> RunEventView:
    view = RunEventView(**msgspec.structs.asdict(event_view(event)))
    if target_sequence is not None:
        view.target_sequence = str(target_sequence)
    if decision is not None and decision.control == "void":
        view.voided_by = str(decision.ingress_sequence)
    elif decision is not None:
        view.amended_by = str(decision.ingress_sequence)
    return view


def run_view(key: str, summary: RunSummary) -> RunView:
    """The whole of a run that has at least one event."""
    parts = summary.parts
    tenants: Counter[str] = Counter()
    streams: Counter[str] = Counter()
    for part in parts:
        tenants[part.tenant_id] += part.count
        streams[part.stream] += part.count
    received = [min(it.first_received_at for it in parts), max(it.last_received_at for it in parts)]
    occurred = [min(it.first_occurred_at for it in parts), max(it.last_occurred_at for it in parts)]
    return RunView(
        causality_key=key,
        count=tenants.total(),
        complete=summary.complete,
        tenants=[TenantCount(*it) for it in sorted(tenants.items())],
        streams=[StreamCount(*it) for it in sorted(streams.items())],
        first_sequence=str(min(it.first_sequence for it in parts)),
        last_sequence=str(max(it.last_sequence for it in parts)),
        first_received_at=format_timestamp(received[0]),
        last_received_at=format_timestamp(received[1]),
        received_duration_ms=(received[1] - received[0]) // _MICROS_PER_MS,
        first_occurred_at=format_timestamp(occurred[0]),
        last_occurred_at=format_timestamp(occurred[1]),
        occurred_duration_ms=(occurred[1] - occurred[0]) // _MICROS_PER_MS,
    )
