"""Triggers in memory, for whoever asks about them."""

from __future__ import annotations

from typing import Any

from tidemark.errors import NotFound
from tidemark.live.access.sessions import Session
from tidemark.live.graphql.triggers_port import (
    Attempt,
    Delivery,
    DeliveryPage,
    DeliveryStatus,
    NewTrigger,
    Trigger,
)

BIG = Trigger(
    "big",
    "orders",
    "https://a.example",
    {"price": {"_gt": "9"}},
    None,
    1_700_000_000_000_001,
    None,
    True,
)
GONE = Trigger("gone", "former", "https://a.example", {}, None, 1, None, False, "its view")
SENT = Delivery(
    event_id="ab" * 16,
    trigger_name="big",
    event_type="MATCH",
    row_key='["acme","1"]',
    source_timestamp=17,
    status="dead",
    attempts=3,
    created_at=0,
    response_status=500,
    last_error="the answer was 500",
    payload={"event_id": "ab" * 16},
    last_attempts=[Attempt(0, "pending", None, "no answer"), Attempt(1, "dead", 500, "no")],
)


class Triggers:
    """Keeps one trigger in memory, and what it was asked to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def create(self, session: Session, view: str, trigger: NewTrigger) -> Trigger:
        self.asked.append(("create", session.name, view, trigger))
        return Trigger(
            trigger.name, view, trigger.webhook, trigger.match, trigger.unmatch, 17, None, True
        )

    async def delete(self, session: Session, view: str | None, name: str) -> Trigger:
        return self._known("delete", view, name)

    async def enable(self, session: Session, view: str, name: str) -> Trigger:
        return self._known("enable", view, name)

    async def disable(self, session: Session, view: str, name: str) -> Trigger:
        return self._known("disable", view, name)

    async def restart(self, session: Session, view: str, name: str) -> Trigger:
        return self._known("restart", view, name)

    async def listed(self, session: Session, view: str | None) -> list[Trigger]:
        return [BIG, GONE] if view is None else [BIG]

    async def find(self, session: Session, view: str | None, name: str) -> Trigger | None:
        if name == GONE.name and view is None:
            return GONE
        return BIG if name == BIG.name else None

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
    ) -> DeliveryPage:
        self.asked.append(("deliveries", view, name, status, limit, after, with_attempts))
        return DeliveryPage([SENT], "older")

    async def redeliver(self, session: Session, view: str, name: str, event_id: str | None) -> int:
        self.asked.append(("redeliver", view, name, event_id))
        return 2

    def _known(self, verb: str, view: str | None, name: str) -> Trigger:
        self.asked.append((verb, view, name))
        if name != BIG.name:
            raise NotFound(f"there is no trigger {name}", hint="Look at `orders_triggers`.")
        return BIG
