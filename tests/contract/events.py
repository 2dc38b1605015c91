"""Events and clocks for the tests of the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from tidemark.ingress.drafts import (
    Draft,
    Entry,
    Outcome,
    Rejection,
    Submission,
)

SECOND: Final = 1_000_000
HOUR: Final = 3600 * SECOND
# 2025-01-01T00:00:00Z, when every test begins.
START: Final = 1_735_689_600 * SECOND


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, wall_us: int = START, elapsed_us: int = 0) -> None:
        self._wall_us = wall_us
        self._elapsed_us = elapsed_us

    def wall_us(self) -> int:
        return self._wall_us

    def elapsed_us(self) -> int:
        return self._elapsed_us

    def pass_time(self, us: int) -> None:
        """Time goes by, and both clocks show it."""
        self._wall_us += us
        self._elapsed_us += us

    def step(self, us: int) -> None:
        """Somebody sets the wall clock."""
        self._wall_us += us


def hash_of(content: str) -> bytes:
    return hashlib.sha256(content.encode()).digest()


def draft(key: str, content: str = "", *, tenant: str = "acme", **fields: Any) -> Draft:
    """An event of the stream `usage`; two have the same content if `content` is the same."""
    values: dict[str, Any] = {
        "tenant_id": tenant,
        "stream": "usage",
        "idempotency_key": key,
        "content_hash": hash_of(content),
        "occurred_at": START,
    }
    return Draft(**{**values, **fields})


def drafts(*keys: str, **fields: Any) -> list[Draft]:
    return [draft(key, **fields) for key in keys]


def request(*entries: Entry, request_id: str = "request") -> Submission:
    return Submission(request_id, entries)


def rejection(code: str = "future_timestamp", **fields: Any) -> Rejection:
    return Rejection(code, fields.pop("message", "why"), fields.pop("hint", "do this"), **fields)


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


def sequences(outcomes: Sequence[Outcome]) -> list[int | None]:
    return [outcome.ingress_sequence for outcome in outcomes]
