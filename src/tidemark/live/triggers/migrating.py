"""Brings the schema of a store of triggers up to date, as the ledger's is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.errors import LedgerUnavailable
from tidemark.ledger import postgres_migrate, sqlite_migrate
from tidemark.ledger.migrations import Migration, Stage
from tidemark.live.errors import TriggersUnavailable

TRIGGERS = Stage("tidemark.live.triggers", "triggers")


def migrate_sqlite(path: Path, *, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do."""
    with _unavailable():
        return sqlite_migrate.migrate(path, stage=TRIGGERS, dry_run=dry_run)


async def migrate_postgres(url: str, *, schema: str, dry_run: bool = False) -> list[Migration]:
    """The same on PostgreSQL, in a schema of that name."""
    with _unavailable():
        return await postgres_migrate.migrate(url, stage=TRIGGERS, schema=schema, dry_run=dry_run)


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except LedgerUnavailable as error:
        raise TriggersUnavailable(
            f"the triggers cannot be brought up to date: {error.message}",
            hint="Look at their database, then start again.",
        ) from error
