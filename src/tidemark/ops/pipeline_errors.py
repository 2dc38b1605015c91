"""The events that a stage of the pipeline could not take, and why."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.ops.frontier import sequence_of_frontier
from tidemark.ops.listings import Listing, listing_response, wants_csv
from tidemark.ops.opened_views import OpenedViews, as_refusals
from tidemark.ops.parameters import (
    PlaceNumber,
    PlaceText,
    decode_position,
    limit_of,
    sequence_of,
)
from tidemark.ops.usage import DEFAULT_PAGE, LARGEST_PAGE, PAGE_PARAMETERS
from tidemark.pipeline.output.batch import ErrorRow
from tidemark.timestamps import format_timestamp
from tidemark.views.port import ErrorFilter, ViewsStore
from tidemark.web.access import visible_tenants
from tidemark.web.messages import Request, Response

ERROR_FILTERS: Final = ("tenantId", "stream", "code", "ingressSequence")


class PipelineErrorEntry(msgspec.Struct, rename="camel"):
    """One event, the stage that could not take it, and why."""

    ingress_sequence: str
    stage: str
    code: str
    message: str
    tenant_id: str
    stream: str
    idempotency_key: str
    received_at: str


class ErrorPosition(msgspec.Struct, array_like=True):
    """A page ended behind this error."""

    ingress_sequence: PlaceNumber
    stage: PlaceText


class PipelineErrors:
    """Handlers over the error rows."""

    def __init__(self, views: OpenedViews) -> None:
        self._views = views

    async def list_errors(self, request: Request) -> Response:
        query = request.query((*ERROR_FILTERS, *PAGE_PARAMETERS))
        as_csv = wants_csv(request, query)
        limit = limit_of(query, DEFAULT_PAGE, LARGEST_PAGE)
        position = decode_position(query, ErrorPosition)
        wanted = ErrorFilter(
            tenant_ids=visible_tenants(request.caller, query.get("tenantId")),
            stream=query.get("stream"),
            code=query.get("code"),
            ingress_sequence=sequence_of(query, "ingressSequence"),
        )
        with as_refusals():
            if not self._views.has_any:
                listing = Listing("errors", PipelineErrorEntry, [], 0, None)
            else:
                store = await self._views.store()
                listing = await _read(store, wanted, position, limit)
        return listing_response(listing, query, as_csv=as_csv)


async def _read(
    store: ViewsStore, wanted: ErrorFilter, position: ErrorPosition | None, limit: int
) -> Listing:
    page = await store.read_errors(
        wanted, after=None if position is None else msgspec.structs.astuple(position), limit=limit
    )
    cursor = page.next_cursor
    return Listing(
        "errors",
        PipelineErrorEntry,
        [error_entry(row) for row in page.errors],
        sequence_of_frontier(page.frontier),
        None if cursor is None else ErrorPosition(*cursor),
    )


def error_entry(row: ErrorRow) -> PipelineErrorEntry:
    return PipelineErrorEntry(
        ingress_sequence=str(row.ingress_sequence),
        stage=row.stage,
        code=row.code,
        message=row.message,
        tenant_id=row.tenant_id,
        stream=row.stream,
        idempotency_key=row.idempotency_key,
        received_at=format_timestamp(row.received_at),
    )
