"""Finds the views store that belongs to a configuration and opens it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.views import postgres, sqlite
from tidemark.views.port import ViewsStore

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config import Config
    from tidemark.ledger.migrations import Migration

FILE_NAME = "views.db"


def views_place(config: Config) -> Path | str:
    """A file, or the URL of a PostgreSQL database: the configured one, else beside the ledger."""
    from tidemark.ledger.opening import place_beside

    return place_beside(config, config.view_store.url, FILE_NAME)


async def open_views(config: Config) -> ViewsStore:
    """Open the views, migrated."""
    place = views_place(config)
    if isinstance(place, str):
        return await postgres.PostgresViews.open(place)
    _require_directory(place.parent)
    return await sqlite.SqliteViews.open(place)


async def views_at(place: Path | str, schema: str = postgres.SCHEMA) -> ViewsStore:
    """Open views that were opened before, as each process that Spark runs does.

    `schema` is that of PostgreSQL.
    """
    if isinstance(place, str):
        return await postgres.PostgresViews.connect(place, schema=schema)
    return sqlite.SqliteViews(place)


async def migrate_views(config: Config, *, dry_run: bool) -> list[Migration]:
    """Run pending migrations, or only say which there are."""
    place = views_place(config)
    if isinstance(place, str):
        return await postgres.migrate(place, dry_run=dry_run)
    if not dry_run:
        _require_directory(place.parent)
    return sqlite.migrate(place, dry_run=dry_run)


def _require_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ViewsUnavailable(
            f"the state directory {directory} cannot be made: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
