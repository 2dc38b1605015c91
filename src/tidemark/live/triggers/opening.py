"""Finds the store of triggers that belongs to a configuration and opens it."""

from __future__ import annotations

from pathlib import Path

from tidemark.config import Config
from tidemark.ledger.migrations import Migration
from tidemark.ledger.opening import place_beside
from tidemark.live.triggers.migrating import migrate_postgres, migrate_sqlite
from tidemark.live.triggers.port import TriggerStore
from tidemark.live.triggers.postgres import SCHEMA, PostgresTriggers
from tidemark.live.triggers.sqlite import SqliteTriggers

FILE_NAME = "triggers.db"


def triggers_place(config: Config) -> Path | str:
    """A file, or the URL of a PostgreSQL database: the configured one, else beside the ledger."""
    return place_beside(config, config.trigger_store.url, FILE_NAME)


async def open_triggers(config: Config) -> TriggerStore:
    """Open the triggers, migrated."""
    place = triggers_place(config)
    if isinstance(place, str):
        return await PostgresTriggers.open(place)
    return await SqliteTriggers.open(place)


async def oldest_position(config: Config) -> int | None:
    """After when the log of changes is still needed; None if no trigger needs any of it."""
    place = triggers_place(config)
    if isinstance(place, Path) and not place.exists():
        return None
    store = await open_triggers(config)
    try:
        return await store.oldest_position()
    finally:
        await store.close()


async def migrate_triggers(config: Config, *, dry_run: bool) -> list[Migration]:
    """Run pending migrations, or only say which there are."""
    place = triggers_place(config)
    if isinstance(place, str):
        return await migrate_postgres(place, schema=SCHEMA, dry_run=dry_run)
    return migrate_sqlite(place, dry_run=dry_run)
