"""Finds the store a configuration names and opens it."""

from __future__ import annotations

from pathlib import Path

from tidemark.clock import Clock
from tidemark.config import Config
from tidemark.errors import LedgerUnavailable
from tidemark.ledger import postgres, postgres_migrate, sqlite, sqlite_migrate
from tidemark.ledger.global_sequence import GlobalNumbers, NoGlobalNumbers, PostgresGlobalNumbers
from tidemark.ledger.migrations import Migration
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.sqlite_connection import make_private_directory

SQLITE_SCHEME = "sqlite:///"


def sqlite_path(config: Config) -> Path | None:
    """The ledger's file, or None when it is on PostgreSQL."""
    if config.ledger.url is None:
        return config.state_dir / "ledger.db"
    if config.ledger.url.startswith(SQLITE_SCHEME):
        return Path(config.ledger.url.removeprefix(SQLITE_SCHEME))
    return None


def place_beside(config: Config, url: str | None, file_name: str) -> Path | str:
    """Where a store is that has this URL: a file, or the URL of a PostgreSQL database.

    Without one it is beside the ledger: in its database, or a file in the state directory.
    """
    if url is not None:
        is_file = url.startswith(SQLITE_SCHEME)
        return Path(url.removeprefix(SQLITE_SCHEME)) if is_file else url
    if sqlite_path(config) is not None:
        return config.state_dir / file_name
    assert config.ledger.url is not None
    return config.ledger.url


async def open_ledger(config: Config, clock: Clock) -> LedgerStore:
    """Open the configured ledger, migrated and founded."""
    ledger = await _open(config, clock)
    # So that health knows from the start, and not only after the first event, if there are numbers.
    await ledger.global_numbers.check()
    return ledger


async def _open(config: Config, clock: Clock) -> LedgerStore:
    global_numbers: GlobalNumbers = NoGlobalNumbers()
    if config.sequence.url is not None:
        global_numbers = PostgresGlobalNumbers(
            config.sequence.url, clock, timeout_us=config.sequence.timeout_us
        )
    path = sqlite_path(config)
    if path is not None:
        _require_directory(path.parent)
        return await sqlite.SqliteLedger.open(
            path,
            clock,
            salt=config.ledger.salt,
            clock_leap_us=config.ledger.clock_leap_us,
            reject_log_size=config.ingest.reject_log_size,
            global_numbers=global_numbers,
        )
    assert config.ledger.url is not None
    return await postgres.PostgresLedger.open(
        config.ledger.url,
        clock,
        salt=config.ledger.salt,
        clock_leap_us=config.ledger.clock_leap_us,
        reject_log_size=config.ingest.reject_log_size,
        global_numbers=global_numbers,
    )


async def migrate_ledger(config: Config, *, dry_run: bool) -> list[Migration]:
    """Run pending migrations, or only say which there are."""
    path = sqlite_path(config)
    if path is not None:
        if not dry_run:
            _require_directory(path.parent)
        return sqlite_migrate.migrate(path, dry_run=dry_run)
    assert config.ledger.url is not None
    return await postgres_migrate.migrate(config.ledger.url, dry_run=dry_run)


def _require_directory(directory: Path) -> None:
    try:
        make_private_directory(directory)
    except OSError as error:
        raise LedgerUnavailable(
            f"the state directory {directory} cannot be made: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
