"""Events and refusals of the ledger as others see them, in the API and in Kafka."""

from __future__ import annotations

import msgspec

from tidemark.ledger.port import EventRow, RejectRow
from tidemark.timestamps import format_timestamp


class EventView(msgspec.Struct, rename="camel", omit_defaults=True):
    """One event. 64-bit numbers are strings; what an event does not have is left out."""

    ingress_sequence: str
    received_at: str
    occurred_at: str
    tenant_id: str
    stream: str
    idempotency_key: str
    content_hash: str
    metric: str | None = None
    customer_ref: str | None = None
    resource_id: str | None = None
    quantity: str | None = None
    meta: msgspec.Raw | None = None
    data: msgspec.Raw | None = None
    control: str | None = None
    target: str | None = None
    causality_key: str | None = None
    source: str | None = None
    source_id: str | None = None
    global_sequence: str | None = None


class RejectView(msgspec.Struct, rename="camel", omit_defaults=True):
    """One refused event and why it was refused."""

    reject_id: str
    rejected_at: str
    request_id: str
    position: int
    status: str
    error: dict[str, str]
    body: str
    tenant_id: str | None = None
    stream: str | None = None
    idempotency_key: str | None = None
    original_sequence: str | None = None


def event_view(row: EventRow) -> EventView:
    content = None if row.data is None else msgspec.Raw(row.data.encode())
    usage = row.metric is not None and row.control is None
    return EventView(
        ingress_sequence=str(row.ingress_sequence),
        received_at=format_timestamp(row.received_at),
        occurred_at=format_timestamp(row.occurred_at),
        tenant_id=row.tenant_id,
        stream=row.stream,
        idempotency_key=row.idempotency_key,
        content_hash=row.content_hash.hex(),
        metric=row.metric,
        customer_ref=row.customer_ref,
        resource_id=row.resource_id,
        quantity=row.quantity,
        meta=content if usage else None,
        data=None if usage else content,
        control=row.control,
        target=row.target_key,
        causality_key=row.causality_key,
        source=row.source,
        source_id=row.source_id,
        global_sequence=None if row.global_sequence is None else str(row.global_sequence),
    )


def reject_view(row: RejectRow) -> RejectView:
    error = {"code": row.code, "message": row.message, "hint": row.hint}
    if row.field is not None:
        error["field"] = row.field
    original = row.original_sequence
    return RejectView(
        reject_id=str(row.reject_id),
        rejected_at=format_timestamp(row.rejected_at),
        request_id=row.request_id,
        position=row.position,
        status=row.status,
        error=error,
        body=row.body,
        tenant_id=row.tenant_id,
        stream=row.stream,
        idempotency_key=row.idempotency_key,
        original_sequence=None if original is None else str(original),
    )
