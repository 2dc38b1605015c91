"""What a caller gets back: a `Result` for each event the server judged, an error for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tidemark.errors import ClientError, EventRejected

Status = Literal["accepted", "duplicate", "conflict", "rejected"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one event.

    `accepted` and `duplicate` mean that the event is durable in the ledger, with its place in order
    (a duplicate has the original's). `conflict` means that another event has this identity, and
    `rejected` that the event itself is at fault; neither was stored, and `error` says why.
    """

    status: Status
    idempotency_key: str | None = None
    ingress_sequence: int | None = None
    received_at: datetime | None = None
    error: EventRejected | None = None

    @property
    def is_stored(self) -> bool:
        """Whether the ledger holds the event."""
        return self.status in ("accepted", "duplicate")


class DeliveryFailed(ClientError):
    """Some events did not get an answer; whether the server stored them is not known.

    `events` are those events with their `ts` and idempotency key as they were sent, so sending
    exactly these again can never double. It is cut off where it would exceed the client's queue;
    `event_count` is the true number. After `send`, `results` has one place for each event that was
    given, with None where there is no answer.
    """

    code = "delivery_failed"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        field: str | None = None,
        code: str | None = None,
        events: Sequence[dict[str, Any]] = (),
        event_count: int = 0,
        results: Sequence[Result | None] = (),
    ) -> None:
        super().__init__(message, hint=hint, field=field, code=code)
        self.events = list(events)
        self.event_count = event_count
        self.results = list(results)
