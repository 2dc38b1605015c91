"""What GraphQL asks of triggers. Whoever keeps them implements this.

Every method is given the caller's session: a trigger keeps the claims of who made it, and whose
triggers a caller may see and change is decided there. A trigger that is not there, or not this
caller's to see, is the same `NotFound`.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from tidemark.live.access.sessions import Session

DeliveryStatus: TypeAlias = Literal["waiting", "pending", "delivering", "delivered", "dead"]


class NewTrigger(msgspec.Struct, frozen=True):
    """`match` and `unmatch` are wheres as `live.filters.parse_filter` takes them."""

    name: str
    webhook: str
    match: object
    unmatch: object | None = None


class Trigger(msgspec.Struct, frozen=True):
    """One trigger. `since` and `until` are source timestamps, in microseconds.

    `disabled_reason` says why it is not enabled, where that was not the wish of a person.
    """

    name: str
    view: str
    webhook: str
    match: object
    unmatch: object | None
    since: int
    until: int | None
    enabled: bool
    disabled_reason: str | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to deliver an event, and what the event was after it."""

    attempted_at: int
    status: DeliveryStatus
    response_status: int | None
    error: str | None


class Delivery(msgspec.Struct, frozen=True):
    """One event on its way to a webhook, or there, or given up. Times are in microseconds."""

    event_id: str
    trigger_name: str
    event_type: Literal["MATCH", "UNMATCH"]
    row_key: str
    source_timestamp: int
    status: DeliveryStatus
    attempts: int
    created_at: int
    next_attempt_at: int | None = None
    delivered_at: int | None = None
    response_status: int | None = None
    last_error: str | None = None
    payload: object = None
    last_attempts: list[Attempt] = []


class DeliveryPage(msgspec.Struct, frozen=True):
    """The latest deliveries first. `next_cursor` is what to pass as `after` for older ones."""

    deliveries: list[Delivery]
    next_cursor: str | None


class TriggersPort(Protocol):
    """Triggers of one deployment. Without a view any is meant, also one that is gone."""

    async def create(self, session: Session, view: str, trigger: NewTrigger) -> Trigger: ...

    async def delete(self, session: Session, view: str | None, name: str) -> Trigger:
        """The trigger as it was."""

    async def enable(self, session: Session, view: str, name: str) -> Trigger: ...

    async def disable(self, session: Session, view: str, name: str) -> Trigger: ...

    async def restart(self, session: Session, view: str, name: str) -> Trigger:
        """Begun anew, with what changes from now on."""

    async def listed(self, session: Session, view: str | None) -> list[Trigger]:
        """All of them, by name."""

    async def find(self, session: Session, view: str | None, name: str) -> Trigger | None: ...

    async def deliveries(
        self,
        session: Session,
        view: str,
        name: str,
        *,
        status: DeliveryStatus | None,
        limit: int,
        after: str | None,
        with_attempts: bool,
    ) -> DeliveryPage: ...

    async def redeliver(self, session: Session, view: str, name: str, event_id: str | None) -> int:
        """Dead letters are sent again, all of them or one; says how many."""
