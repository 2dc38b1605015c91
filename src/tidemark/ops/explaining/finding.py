"""Which event, or refusal, somebody asks about."""

from __future__ import annotations

from typing import Final

from tidemark.errors import NotFound, RequestError
from tidemark.ledger.port import EventFilter, EventRow, LedgerStore, RejectFilter, RejectRow
from tidemark.ledger.sequencer import key_digest
from tidemark.ops.parameters import MAX_SEQUENCE, sequence_of
from tidemark.web.access import Caller, visible_tenants

EXPLAIN_PARAMETERS: Final = ("tenantId", "key", "sequence", "rejectId")
_MOST_NAMED: Final = 10


async def find(ledger: LedgerStore, query: dict[str, str], caller: Caller) -> EventRow | RejectRow:
    """What a query names, among what the caller may see; it must fit all that is given.

    A key is that of an event or, if there is none, that of the last refusal with it. Raises
    `not_found`, and `ambiguous_key` for a key that several tenants have.
    """
    tenants = visible_tenants(caller, query.get("tenantId"))
    sequence, reject_id = sequence_of(query, "sequence"), sequence_of(query, "rejectId")
    key = query.get("key")
    if reject_id is not None:
        reject = None if sequence is not None else await _reject(ledger, tenants, reject_id)
        if reject is None or key not in (None, reject.idempotency_key):
            raise NotFound(
                f"there is no refusal {reject_id}",
                hint="GET /admin/rejects lists those that are kept; older ones are forgotten.",
                field="rejectId",
            )
        return reject
    if sequence is not None:
        event = await _at(ledger, tenants, sequence)
        if event is None or key not in (None, event.idempotency_key):
            last = (await ledger.head()).last_sequence
            raise NotFound(
                f"there is no event with the sequence {sequence}",
                hint=f"The last event of the ledger has {last}; with a key that is for some"
                " tenants, only their events are seen.",
                field="sequence",
            )
        return event
    if key is None:
        raise NotFound(
            "no event is named", hint="Give its key, with tenantId, or its sequence, or a rejectId."
        )
    return await _by_key(ledger, tenants, key)


async def _by_key(
    ledger: LedgerStore, tenants: tuple[str, ...] | None, key: str
) -> EventRow | RejectRow:
    where = "no tenant that you see has"
    hint = "GET /admin/events and GET /admin/rejects list what there is."
    if tenants is None:
        search = await ledger.find_recent(key, _MOST_NAMED)
        events = search.events
        if search.searched_from > 1:
            hint = (
                f"Without tenantId only events from {search.searched_from} on were searched. Give"
                " the tenant, too, or the sequence."
            )
    else:
        digests = {key_digest(tenant, key): tenant for tenant in tenants}
        stored = await ledger.lookup(list(digests))
        found = [await ledger.find_event(digests[digest], key) for digest in stored]
        events = [event for event in found if event is not None]
        if len(tenants) == 1:
            where = f"the tenant {tenants[0][:64]!r} has no event and no refusal with"
    if len(events) > 1:
        named = ", ".join(sorted(event.tenant_id for event in events))
        raise RequestError(
            "several tenants have an event with this key",
            status=409,
            code="ambiguous_key",
            field="tenantId",
            hint=f"Give one of them as tenantId: {named}.",
        )
    if events:
        return events[0]
    rejects = await ledger.read_rejects(RejectFilter(tenant_ids=tenants, idempotency_key=key), 1)
    if rejects:
        return rejects[0]
    raise NotFound(f"{where} the key {key[:64]!r}", hint=hint, field="key")


async def _at(
    ledger: LedgerStore, tenants: tuple[str, ...] | None, sequence: int
) -> EventRow | None:
    wanted = EventFilter(tenant_ids=tenants, sequence_from=sequence, sequence_to=sequence + 1)
    events = (await ledger.read_events(wanted, 0, 1)).events
    return events[0] if events else None


async def _reject(
    ledger: LedgerStore, tenants: tuple[str, ...] | None, reject_id: int
) -> RejectRow | None:
    wanted = RejectFilter(tenant_ids=tenants, before_id=min(reject_id + 1, MAX_SEQUENCE))
    for reject in await ledger.read_rejects(wanted, 1):
        if reject.reject_id == reject_id:
            return reject
    return None
