"""What a placement looks like as rows: the same columns in the same order for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.ledger.sequencer import Placement

EVENT_INSERT_COLUMNS = (
    "ingress_sequence",
    "received_at",
    "occurred_at",
    "key_digest",
    "content_hash",
    "tenant_id",
    "stream",
    "idempotency_key",
    "metric",
    "customer_ref",
    "resource_id",
    "quantity",
    "data",
    "causality_key",
    "source",
    "source_id",
    "control",
    "target_key",
    "global_sequence",
)
REJECT_INSERT_COLUMNS = (
    "rejected_at",
    "request_id",
    "position",
    "status",
    "code",
    "message",
    "hint",
    "field",
    "tenant_id",
    "stream",
    "idempotency_key",
    "original_sequence",
    "body",
)


def event_rows(
    placement: Placement, global_first: int | None, quantity: Callable[[str], object]
) -> Iterator[tuple[object, ...]]:
    """The new events; `quantity` turns plain decimal text into what the store keeps."""
    received_at = placement.head.received_at
    first = placement.first_sequence
    for offset, (draft, digest) in enumerate(zip(placement.drafts, placement.digests, strict=True)):
        yield (
            first + offset,
            received_at,
            received_at if draft.occurred_at is None else draft.occurred_at,
            digest,
            draft.content_hash,
            draft.tenant_id,
            draft.stream,
            draft.idempotency_key,
            draft.metric,
            draft.customer_ref,
            draft.resource_id,
            None if draft.quantity is None else quantity(draft.quantity),
            draft.data,
            draft.causality_key,
            draft.source,
            draft.source_id,
            draft.control,
            draft.target_key,
            None if global_first is None else global_first + offset,
        )


def reject_rows(placement: Placement, now_us: int) -> list[tuple[object, ...]]:
    """The lines for the log of refused events."""
    return [
        (
            now_us,
            refusal.request_id,
            refusal.position,
            refusal.status,
            refusal.rejection.code,
            refusal.rejection.message,
            refusal.rejection.hint,
            refusal.rejection.field,
            refusal.rejection.tenant_id,
            refusal.rejection.stream,
            refusal.rejection.idempotency_key,
            refusal.original_sequence,
            refusal.rejection.body,
        )
        for refusal in placement.refusals
    ]
