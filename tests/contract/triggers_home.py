"""A place for triggers, and short ways to say what is in it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg

from tests.contract.events import START
from tidemark.live.triggers import postgres
from tidemark.live.triggers.definition import NewTrigger, Trigger
from tidemark.live.triggers.port import Advance, NewEvent
from tidemark.live.triggers.postgres import PostgresTriggers
from tidemark.live.triggers.sqlite import SqliteTriggers
from tidemark.live.webhooks.outbox import Delivery, Settlement

Triggers: TypeAlias = SqliteTriggers | PostgresTriggers

SQLITE_SCHEME: Final = "sqlite:///"
LEASE: Final = 60_000_000
URL: Final = "https://one.example/hook"


class TriggersHome:
    """A place for triggers. It may be opened several times, as several processes would."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "sqlite" if url.startswith(SQLITE_SCHEME) else "postgres"
        self._opened: list[Triggers] = []

    async def open(self) -> Triggers:
        triggers: Triggers
        if self.kind == "sqlite":
            triggers = await SqliteTriggers.open(self.path)
        else:
            triggers = await PostgresTriggers.open(self.url)
        self._opened.append(triggers)
        return triggers

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def reopen(self) -> Triggers:
        """As a restart of the process would: everything is closed, then opened."""
        await self.close()
        return await self.open()

    async def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement past the store, as any tool with the database's address could."""
        if self.kind == "sqlite":
            return await asyncio.to_thread(self._sqlite_sql, statement)
        connection = await asyncpg.connect(
            self.url, server_settings={"search_path": postgres.SCHEMA}
        )
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix(SQLITE_SCHEME))

    def _sqlite_sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()


def new_trigger(name: str = "hot", **fields: Any) -> NewTrigger:
    values: dict[str, Any] = {"view": "positions", "webhook": URL, "match": "{}"}
    return NewTrigger(name, **(values | fields))


def event(name: str, key: str = "[1]", received_at: int = 1) -> NewEvent:
    """An event whose id and payload are its name."""
    return NewEvent(name, "MATCH", key, received_at, name.encode(), START)


async def enqueue(triggers: Triggers, trigger: Trigger, *events: NewEvent) -> None:
    """Moves the trigger on by one, with these events."""
    current = await triggers.get(trigger.name)
    step = Advance(current.id, current.position, current.position + 1, events=events)
    assert await triggers.advance([step]) == {current.id}


async def claimed(triggers: Triggers, now: int = START, **options: Any) -> list[Delivery]:
    limit = options.pop("limit", 100)
    return await triggers.claim(now, limit, LEASE, options.pop("skip_hosts", ()))


def ids(deliveries: Sequence[Any]) -> list[str]:
    return [delivery.event_id for delivery in deliveries]


def settled(delivery: Delivery, status: Any = "delivered", **fields: Any) -> Settlement:
    values: dict[str, Any] = {
        "attempts": delivery.attempts + 1,
        "first_attempt_at": delivery.first_attempt_at or START,
        "attempted_at": START,
        "next_attempt_at": None,
        "last_status": 200 if status == "delivered" else 500,
        "last_error": None if status == "delivered" else "answered 500",
    }
    return Settlement(
        delivery.outbox_id,
        delivery.lease_until,
        delivery.trigger,
        status,
        **(values | fields),
    )


def retried(delivery: Delivery, at: int) -> Settlement:
    return settled(delivery, "pending", next_attempt_at=at)
