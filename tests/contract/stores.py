"""The two stores that the suite runs over, and a way around them: plain SQL from outside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg

from tests.contract.events import HOUR
from tidemark.clock import Clock, SystemClock
from tidemark.ingress.drafts import Entry, Outcome, Submission, no_corrections
from tidemark.ledger import postgres_migrate, sqlite_migrate
from tidemark.ledger.global_sequence import GlobalNumbers
from tidemark.ledger.migrations import Migration
from tidemark.ledger.port import CommitRow, EventFilter, EventRow, HistoryCommit
from tidemark.ledger.postgres import PostgresLedger
from tidemark.ledger.sqlite import SqliteLedger

Ledger: TypeAlias = SqliteLedger | PostgresLedger

KINDS: Final = ("sqlite", "postgres")
SQLITE_SCHEME: Final = "sqlite:///"
# Whatever a test may have stored.
EVERYTHING: Final = 1_000_000


class LedgerHome:
    """A place for one ledger. It may be opened several times, as several processes would."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "sqlite" if url.startswith(SQLITE_SCHEME) else "postgres"
        self._opened: list[Ledger] = []

    async def open(
        self,
        clock: Clock | None = None,
        *,
        salt: str | None = None,
        clock_leap_us: int = HOUR,
        reject_log_size: int = 100_000,
        global_numbers: GlobalNumbers | None = None,
    ) -> Ledger:
        kind = SqliteLedger if self.kind == "sqlite" else PostgresLedger
        ledger = await kind.open(
            self.place,
            clock or SystemClock(),
            salt=salt,
            clock_leap_us=clock_leap_us,
            reject_log_size=reject_log_size,
            global_numbers=global_numbers,
        )
        self._opened.append(ledger)
        return ledger

    async def reopen(self, clock: Clock | None = None, **options: Any) -> Ledger:
        """As a restart of the process would: everything is closed, then opened."""
        await self.close()
        return await self.open(clock, **options)

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def migrate(self, *, dry_run: bool = False) -> list[Migration]:
        if self.kind == "sqlite":
            return await asyncio.to_thread(sqlite_migrate.migrate, self.place, dry_run=dry_run)
        return await postgres_migrate.migrate(self.url, dry_run=dry_run)

    async def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs one statement past the store, as any tool with the database's address could."""
        if self.kind == "sqlite":
            return await asyncio.to_thread(self._sqlite_sql, statement)
        connection = await asyncpg.connect(
            self.url, server_settings={"search_path": postgres_migrate.SCHEMA}
        )
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    @property
    def place(self) -> Any:
        """What the store's own functions take: a path or a URL."""
        return Path(self.url.removeprefix(SQLITE_SCHEME)) if self.kind == "sqlite" else self.url

    def _sqlite_sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.place, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()


async def append(ledger: Ledger, *entries: Entry) -> list[Outcome]:
    """One request in a group of its own."""
    [outcomes] = await append_all(ledger, Submission("request", entries))
    return outcomes


async def append_all(ledger: Ledger, *submissions: Submission) -> list[list[Outcome]]:
    """Several requests in one group."""
    return await ledger.append_group(submissions, no_corrections)


async def append_history(ledger: Ledger, *commits: tuple[int, Entry]) -> list[Outcome]:
    """Commits of a history, each with one event, in one transaction."""
    outcomes = await ledger.append_history(
        [HistoryCommit(time, Submission("import", [entry])) for time, entry in commits],
        no_corrections,
    )
    return [outcome for [outcome] in outcomes]


async def all_events(ledger: Ledger) -> list[EventRow]:
    page = await ledger.read_events(EventFilter(), after=0, limit=EVERYTHING)
    assert page.complete
    return page.events


async def all_commits(ledger: Ledger) -> list[CommitRow]:
    return await ledger.read_commits(after_received_at=0, limit=EVERYTHING)


async def keys_in_order(ledger: Ledger) -> Sequence[str]:
    return [event.idempotency_key for event in await all_events(ledger)]
