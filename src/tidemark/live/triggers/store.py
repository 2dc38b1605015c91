"""The methods of a store of triggers, written once; a dialect says how to run a program."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TypeVar

from tidemark.crash import crash_point
from tidemark.live.triggers import outbox_programs, trigger_programs
from tidemark.live.triggers.definition import NewTrigger, Trigger
from tidemark.live.triggers.port import (
    Advance,
    AttemptRecord,
    DeliveryPage,
    DeliveryRecord,
    LeaderReport,
    OutboxCount,
    Status,
)
from tidemark.live.triggers.programs import Program
from tidemark.live.webhooks.outbox import Delivery, Settlement

PRUNED_AT_ONCE = 2_000
SETTLED_AT_ONCE = 500
LEADER_POLL_S = 0.5

T = TypeVar("T")


class StoredTriggers(ABC):
    """A `TriggerStore` but for `lead` and `close`."""

    @abstractmethod
    async def _read(self, program: Program[T]) -> T:
        """Run a program that changes nothing, as of one moment."""

    @abstractmethod
    async def _write(self, program: Program[T]) -> T:
        """Run a program in a transaction, one at a time in the whole deployment."""

    async def listed(self, *, view: str | None = None, ended: bool = False) -> list[Trigger]:
        return await self._read(trigger_programs.listed(view, ended))

    async def unfinished(self) -> list[Trigger]:
        return await self._read(trigger_programs.unfinished())

    async def get(self, name: str) -> Trigger:
        return await self._read(trigger_programs.get(name))

    async def add(
        self,
        trigger: NewTrigger,
        since: int,
        created_at: int,
        *,
        disabled_reason: str | None = None,
    ) -> Trigger:
        return await self._write(trigger_programs.add(trigger, since, created_at, disabled_reason))

    async def replace(
        self,
        trigger: NewTrigger,
        since: int,
        created_at: int,
        *,
        disabled_reason: str | None = None,
        lineage: int | None = None,
    ) -> Trigger:
        return await self._write(
            trigger_programs.replace(trigger, since, created_at, disabled_reason, lineage)
        )

    async def remove(self, name: str, *, lineage: int | None = None) -> Trigger:
        return await self._write(trigger_programs.remove(name, lineage))

    async def set_enabled(
        self, name: str, enabled: bool, reason: str | None = None, *, lineage: int | None = None
    ) -> Trigger:
        return await self._write(trigger_programs.set_enabled(name, enabled, reason, lineage))

    async def halt(self, trigger_id: int, reason: str) -> Trigger | None:
        return await self._write(trigger_programs.halt(trigger_id, reason))

    async def set_webhook(
        self, name: str, webhook: str, *, disabled_reason: str | None = None
    ) -> Trigger:
        return await self._write(trigger_programs.set_webhook(name, webhook, disabled_reason))

    async def held(self, trigger_id: int, row_keys: Collection[str]) -> set[str]:
        return await self._read(trigger_programs.held(trigger_id, row_keys)) if row_keys else set()

    async def advance(self, advances: Sequence[Advance]) -> set[int]:
        moved = await self._write(trigger_programs.advance(advances))
        crash_point("trigger.advanced")
        return moved

    async def oldest_position(self) -> int | None:
        return await self._read(trigger_programs.oldest_position())

    async def claim(
        self, now_us: int, limit: int, lease_us: int, skip_hosts: Collection[str] = ()
    ) -> list[Delivery]:
        return await self._write(outbox_programs.claim(now_us, limit, lease_us, skip_hosts))

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        for start in range(0, len(settlements), SETTLED_AT_ONCE):
            some = settlements[start : start + SETTLED_AT_ONCE]
            await self._write(outbox_programs.settle(some))

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._write(outbox_programs.release(deliveries))

    async def next_due(self, skip_hosts: Collection[str] = ()) -> int | None:
        return await self._read(outbox_programs.next_due(skip_hosts))

    async def deliveries(
        self,
        trigger: str,
        *,
        status: Status | None = None,
        after: int | None = None,
        limit: int,
        lineage: int | None = None,
    ) -> DeliveryPage:
        return await self._read(outbox_programs.deliveries(trigger, lineage, status, after, limit))

    async def find_event(self, event_id: str) -> DeliveryRecord | None:
        return await self._read(outbox_programs.find_event(event_id))

    async def attempts(self, outbox_ids: Collection[int]) -> dict[int, list[AttemptRecord]]:
        return await self._read(outbox_programs.attempts(outbox_ids))

    async def redeliver(
        self, trigger: str, event_id: str | None, now: int, *, lineage: int | None = None
    ) -> int:
        return await self._write(outbox_programs.redeliver(trigger, lineage, event_id, now))

    async def prune(self, *, delivered_before: int, dead_before: int | None = None) -> int:
        # In slices, so that nobody has to wait long for the writer's lock.
        count = 0
        while True:
            forgotten = await self._write(
                outbox_programs.prune(delivered_before, dead_before, PRUNED_AT_ONCE)
            )
            count += forgotten
            if forgotten < PRUNED_AT_ONCE:
                return count

    async def counts(self) -> list[OutboxCount]:
        return await self._read(outbox_programs.counts())

    async def oldest_unsettled(self) -> dict[str, int]:
        return await self._read(outbox_programs.oldest_unsettled())

    async def tell(self, report: LeaderReport) -> None:
        await self._write(trigger_programs.tell(report))

    async def told(self) -> LeaderReport | None:
        return await self._read(trigger_programs.told())

    async def _take_over(self) -> None:
        """The first thing that a new leader does."""
        await self._write(outbox_programs.release_all())


async def wait_for_turn() -> None:
    """Between two questions whether another process still leads."""
    await asyncio.sleep(LEADER_POLL_S)
