"""What placements look like as rows: the same columns in the same order for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tidemark.errors import LedgerDamaged
from tidemark.ledger.port import EventRow, RejectRow
from tidemark.ledger.sequencer import Head, Placement, Stored

EVENT_COLUMNS = EventRow.__struct_fields__
# What most events do not have.
RARE_COLUMNS = ("causality_key", "source", "source_id", "control", "target_key", "global_sequence")
COMMON_COLUMNS = tuple(name for name in EVENT_COLUMNS if name not in RARE_COLUMNS)
# Those that may have more than some hundred bytes.
LONG_COLUMNS = ("data", "resource_id", "source", "source_id")
EVENT_INSERT_COLUMNS = (*EVENT_COLUMNS[:3], "key_digest", *EVENT_COLUMNS[3:])
REJECT_COLUMNS = RejectRow.__struct_fields__
# The store itself gives a refusal its number.
REJECT_INSERT_COLUMNS = REJECT_COLUMNS[1:]
STORED_COLUMNS = ", ".join(("key_digest", *Stored.__struct_fields__))
CommitValues: TypeAlias = tuple[int, int, int, bytes]


def event_rows(
    placements: Sequence[Placement], global_first: int | None, quantity: Callable[[str], object]
) -> Iterator[tuple[object, ...]]:
    """The new events; `quantity` turns plain decimal text into what the store keeps."""
    global_sequence = global_first
    for placement in placements:
        received_at = placement.head.received_at
        for sequence, (draft, digest) in enumerate(
            zip(placement.drafts, placement.digests, strict=True), placement.first_sequence
        ):
            yield (
                sequence,
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
                global_sequence,
            )
            if global_sequence is not None:
                global_sequence += 1


def rare_texts(texts: Sequence[bytes], common: Mapping[str, bytes]) -> dict[str, bytes]:
    """The texts of rare columns. Before them are those of the sequences, which must be as those
    that were read with the common columns: else texts would be taken for those of other events."""
    sequences, *rare = texts
    if sequences != common["ingress_sequence"]:
        raise LedgerDamaged(
            "the ledger's database gave the same events in two orders",
            hint="Look for a setting or an extension that changes how it reads.",
        )
    return dict(zip(RARE_COLUMNS, rare, strict=True))


def commit_row(head: Head, first_sequence: int) -> CommitValues:
    """The commit that brings the ledger to `head`."""
    return (head.received_at, first_sequence, head.last_sequence, head.chain)


def commit_rows(placements: Sequence[Placement]) -> list[CommitValues]:
    """One commit for each placement in which there is something new."""
    return [
        commit_row(placement.head, placement.first_sequence)
        for placement in placements
        if placement.drafts
    ]


def reject_rows(placements: Sequence[Placement]) -> list[tuple[object, ...]]:
    """The lines for the log of refused events."""
    return [
        (
            placement.refused_at,
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
        for placement in placements
        for refusal in placement.refusals
    ]
