"""The admin API: look at events, find one, see what was refused, confirm the clock."""

from __future__ import annotations

from tidemark.errors import NotFound
from tidemark.ledger.event_json import event_view, reject_view
from tidemark.ledger.port import LedgerStore, RejectFilter
from tidemark.ops.parameters import (
    EVENT_PARAMETERS,
    decode_cursor,
    encode_cursor,
    event_filter,
    limit_of,
)
from tidemark.web.access import visible_tenants
from tidemark.web.messages import Request, Response, json_response

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


class Admin:
    """Handlers over a ledger store."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store

    async def list_events(self, request: Request) -> Response:
        query = request.query((*EVENT_PARAMETERS, "limit", "cursor"))
        wanted = event_filter(query, request.caller)
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        page = await self._store.read_events(wanted, decode_cursor(query) or 0, limit)
        return json_response(
            {
                "events": [event_view(row) for row in page.events],
                "nextCursor": None if page.complete else encode_cursor(page.scanned_to, query),
            }
        )

    async def get_event(self, request: Request) -> Response:
        request.query(())
        tenant_id, idempotency_key = request.path_values
        request.caller.require_tenant(tenant_id)
        row = await self._store.find_event(tenant_id, idempotency_key)
        if row is None:
            raise NotFound(
                "this tenant has no event with this key",
                hint="GET /admin/rejects says whether one was refused.",
            )
        return json_response(event_view(row))

    async def list_rejects(self, request: Request) -> Response:
        query = request.query(("tenantId", "code", "idempotencyKey", "limit", "cursor"))
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        wanted = RejectFilter(
            tenant_ids=visible_tenants(request.caller, query.get("tenantId")),
            code=query.get("code"),
            idempotency_key=query.get("idempotencyKey"),
            before_id=decode_cursor(query),
        )
        rows = await self._store.read_rejects(wanted, limit)
        more = len(rows) == limit
        return json_response(
            {
                "rejects": [reject_view(row) for row in rows],
                "nextCursor": encode_cursor(rows[-1].reject_id, query) if more else None,
            }
        )

    async def confirm_clock(self, request: Request) -> Response:
        request.query(())
        await self._store.confirm_clock()
        return json_response({"status": "confirmed"})
