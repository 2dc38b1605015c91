"""What ingress hands to the ledger and what it gets back.

A `Draft` has an identity but no place in order; only the ledger gives it one. These shapes stand
here, before the ledger in the flow, so that ingress never imports what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Status = Literal["accepted", "duplicate", "conflict", "rejected"]
# A `swap` is recorded by Tidemark itself; nobody can send one.
Control = Literal["void", "amend", "adjust", "end", "swap"]


class Draft(msgspec.Struct, gc=False):
    """One validated event.

    `quantity` is exact decimal text and `data` is canonical JSON text, so nothing downstream has to
    normalise again. `occurred_at` is in microseconds; None means the commit's `received_at`.
    """

    tenant_id: str
    stream: str
    idempotency_key: str
    content_hash: bytes
    occurred_at: int | None
    metric: str | None = None
    customer_ref: str | None = None
    resource_id: str | None = None
    quantity: str | None = None
    data: str | None = None
    causality_key: str | None = None
    source: str | None = None
    source_id: str | None = None
    control: Control | None = None
    target_key: str | None = None


class Correction(msgspec.Struct, gc=False):
    """A `void` or `amend` that cannot be judged before its original is known.

    The ledger finds the original (in the store, or earlier in the same group) and calls `resolve`,
    which gives the finished draft or the reason why there is none.
    """

    tenant_id: str
    control: Control
    target_key: str
    idempotency_key: str | None
    event: bytes | None
    reason: str | None
    causality_key: str | None
    source: str | None


class Original(msgspec.Struct, gc=False):
    """What a correction must know of the event that it names."""

    stream: str
    metric: str | None
    customer_ref: str | None
    control: Control | None


class Rejection(msgspec.Struct, gc=False):
    """Why one event was refused, with what is needed to explain it later."""

    code: str
    message: str
    hint: str
    field: str | None = None
    tenant_id: str | None = None
    stream: str | None = None
    idempotency_key: str | None = None
    body: str = ""


Entry = Draft | Correction | Rejection


class CorrectionResolver(Protocol):
    """Judges a correction once its original is known (None: there is no such event)."""

    def __call__(self, correction: Correction, original: Original | None) -> Draft | Rejection: ...


class Submission(msgspec.Struct, gc=False):
    """The entries of one request, in request order. They are committed together or not at all."""

    request_id: str
    entries: Sequence[Entry]


class Outcome(msgspec.Struct, gc=False):
    """What became of one entry. A duplicate and a conflict carry the earlier event's place."""

    status: Status
    idempotency_key: str | None = None
    ingress_sequence: int | None = None
    received_at: int | None = None
    rejection: Rejection | None = None


class EventSink(Protocol):
    """Where ingress puts validated events: durable when `append` returns."""

    def check_room(self) -> None:
        """Raise `QueueFull` if nothing more can be taken now."""

    async def append(self, submission: Submission) -> list[Outcome]: ...


def no_corrections(correction: Correction, original: Original | None) -> Draft | Rejection:
    """For groups in which there is nothing to resolve."""
    raise AssertionError(f"{correction} was resolved")
