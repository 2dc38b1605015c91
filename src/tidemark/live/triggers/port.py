"""What a store of triggers can do. SQLite and PostgreSQL do it; one suite of tests runs over both.

Times are microseconds: `since`, `until` and positions are source timestamps, all others wall time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

import msgspec

from tidemark.errors import TidemarkError
from tidemark.live.triggers.definition import NewTrigger, Trigger
from tidemark.live.triggers.transitions import EventType
from tidemark.live.webhooks.outbox import Outbox

Status: TypeAlias = Literal["waiting", "pending", "delivering", "delivered", "dead"]
"""`waiting` is behind an earlier event of its row; for the others see `live.webhooks.outbox`."""

STATUSES: tuple[Status, ...] = ("waiting", "pending", "delivering", "delivered", "dead")


class NewEvent(msgspec.Struct, frozen=True):
    """An event to be enqueued."""

    event_id: str
    event_type: EventType
    row_key: str
    received_at: int
    payload: bytes
    created_at: int


class Advance(msgspec.Struct, frozen=True):
    """A trigger moves on: the keys it holds, its position and its events, together or not at all.

    `start` is where it must be for that.
    """

    trigger_id: int
    start: int
    end: int
    held: Collection[str] = ()
    released: Collection[str] = ()
    events: Sequence[NewEvent] = ()


class DeliveryRecord(msgspec.Struct, frozen=True):
    """One event of the outbox as it stands. `settled_at` is when it was delivered or given up."""

    outbox_id: int
    event_id: str
    trigger: str
    event_type: EventType
    row_key: str
    received_at: int
    payload: bytes
    status: Status
    attempts: int
    next_attempt_at: int | None
    last_status: int | None
    last_error: str | None
    created_at: int
    settled_at: int | None


class AttemptRecord(msgspec.Struct, frozen=True):
    """One attempt to deliver an event; `http_status` is None when there was no answer."""

    attempted_at: int
    status: Status
    http_status: int | None
    error: str | None


class DeliveryPage(msgspec.Struct, frozen=True):
    """The latest events first; `next_cursor` is the `after` of the page with older ones."""

    deliveries: list[DeliveryRecord]
    next_cursor: int | None


class OutboxCount(msgspec.Struct, frozen=True):
    """How many events of a trigger have a status. Delivered ones are not counted."""

    trigger: str
    status: Status
    count: int


class LeaderReport(msgspec.Struct, frozen=True):
    """What the process that leads says: when, and why not every trigger does what it should."""

    told_at: int
    trouble: TidemarkError | None = None


class Leadership(msgspec.Struct, frozen=True):
    """Held by one process at a time. Whoever works in its name stops when it is `lost`."""

    lost: asyncio.Event


class TriggerStore(Outbox, Protocol):
    """Triggers, what they hold, and the outbox. Every method may raise `TriggersUnavailable`.

    Retrying is then safe, except for `add` and `replace`, which may have been done. Where a
    `lineage` is given, a name that has come to be another's is as if it were not there.
    """

    async def listed(self, *, view: str | None = None, ended: bool = False) -> list[Trigger]:
        """By name and age. `ended` adds those that have an `until`, of which a name may have any
        number."""

    async def unfinished(self) -> list[Trigger]:
        """Those that are enabled and have not reached their `until`, the older of a name first."""

    async def get(self, name: str) -> Trigger:
        """The trigger that has this name now; raises `UnknownTrigger`."""

    async def add(
        self,
        trigger: NewTrigger,
        since: int,
        created_at: int,
        *,
        disabled_reason: str | None = None,
    ) -> Trigger:
        """Begins at `since`, or where the last of its name has ended if that is later.

        With a reason it begins disabled. Raises `TriggerExists` or `TooManyTriggers`.
        """

    async def replace(
        self,
        trigger: NewTrigger,
        since: int,
        created_at: int,
        *,
        disabled_reason: str | None = None,
        lineage: int | None = None,
    ) -> Trigger:
        """Another takes over the name: the old one goes on up to where the new one begins.

        A disabled one ends where it stands. What is not delivered yet goes where the new one says.
        Raises `UnknownTrigger`.
        """

    async def remove(self, name: str, *, lineage: int | None = None) -> Trigger:
        """Ends it where it stands; its events that were not delivered go with it.

        Those delivered are kept for their time. Gives the trigger as it was; raises
        `UnknownTrigger`.
        """

    async def set_enabled(
        self, name: str, enabled: bool, reason: str | None = None, *, lineage: int | None = None
    ) -> Trigger:
        """A disabled trigger stands still and delivers nothing. Raises `UnknownTrigger`."""

    async def halt(self, trigger_id: int, reason: str) -> Trigger | None:
        """For one that cannot go on: it is disabled, unless it is already.

        One that another has replaced ends where it stands, so that the other can go on. Gives what
        has become of it.
        """

    async def set_webhook(
        self, name: str, webhook: str, *, disabled_reason: str | None = None
    ) -> Trigger:
        """Whatever is not delivered yet goes there from now on.

        Without a reason to be disabled it is enabled.
        """

    async def held(self, trigger_id: int, row_keys: Collection[str]) -> set[str]:
        """Those of the keys that the trigger holds."""

    async def advance(self, advances: Sequence[Advance]) -> set[int]:
        """Move triggers on, all in one transaction; says which did.

        One that is not at its `start`, is disabled, or would pass its `until` is left as it is.
        """

    async def oldest_position(self) -> int | None:
        """The log of changes after this is still needed; None if no trigger is enabled."""

    async def deliveries(
        self,
        trigger: str,
        *,
        status: Status | None = None,
        after: int | None = None,
        limit: int,
        lineage: int | None = None,
    ) -> DeliveryPage:
        """Those of the trigger that has this name now, and of those that it has replaced."""

    async def find_event(self, event_id: str) -> DeliveryRecord | None: ...

    async def attempts(self, outbox_ids: Collection[int]) -> dict[int, list[AttemptRecord]]:
        """The latest attempts to deliver each of some events, the first of them first."""

    async def redeliver(
        self, trigger: str, event_id: str | None, now: int, *, lineage: int | None = None
    ) -> int:
        """Send again what was given up: one event (also if it was delivered), or all of them.

        Of the trigger that has this name now, and of those that it has replaced. Id and payload are
        the same. It takes its turn among the events of its row that are not delivered yet, before
        those that wait. Says how many.
        """

    async def prune(self, *, delivered_before: int, dead_before: int | None = None) -> int:
        """Forget events that were settled before a time; says how many."""

    async def counts(self) -> list[OutboxCount]: ...

    async def oldest_unsettled(self) -> dict[str, int]:
        """Of each enabled trigger that has events which are neither delivered nor given up, the
        source timestamp of the oldest."""

    async def tell(self, report: LeaderReport) -> None:
        """For the process that leads; what was told before is forgotten."""

    async def told(self) -> LeaderReport | None:
        """What was told last; None if nothing ever was."""

    def lead(self) -> AbstractAsyncContextManager[Leadership]:
        """Waits until no other process leads. What a former leader was delivering is due again."""

    async def close(self) -> None: ...
