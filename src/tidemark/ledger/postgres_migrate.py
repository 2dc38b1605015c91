"""Brings the schema of a store on PostgreSQL up to date."""

from __future__ import annotations

from typing import Any

import asyncpg

from tidemark.crash import crash_point
from tidemark.errors import LedgerUnavailable, SchemaMismatch
from tidemark.ledger.migrations import LEDGER, Migration, Stage, pending
from tidemark.ledger.postgres_statements import translated

SCHEMA = "tidemark"
CONNECT_TIMEOUT_S = 10.0
# Advisory lock that only one migrating process holds; the number spells "tide".
MIGRATION_LOCK = 0x74696465
MIGRATION_LOCK_TIMEOUT_S = 60.0


async def migrate(
    url: str, *, stage: Stage = LEDGER, schema: str = SCHEMA, dry_run: bool = False
) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do."""
    with translated():
        connection = await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={
                "search_path": schema,
                "lock_timeout": f"{round(MIGRATION_LOCK_TIMEOUT_S * 1000)}ms",
            },
        )
        try:
            await _check_encoding(connection)
            await _lock(connection, stage)
            todo = pending("postgres", await _applied(connection, schema), stage)
            if dry_run:
                return todo
            for migration in todo:
                async with connection.transaction():
                    await _run(connection, migration, schema)
                    crash_point("migrate.before_commit")
            return todo
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)


async def _check_encoding(connection: Any) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise SchemaMismatch(
            f"the database has the encoding {encoding}, which cannot hold every event",
            hint="Make one with UTF8 and set ledger.url to it: CREATE DATABASE tidemark "
            "ENCODING 'UTF8' TEMPLATE template0 LOCALE 'C';",
            field="ledger.url",
        )


async def _lock(connection: Any, stage: Stage) -> None:
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
    except asyncpg.LockNotAvailableError as error:
        raise LedgerUnavailable(
            f"another process has been migrating the {stage.name}"
            f" for {MIGRATION_LOCK_TIMEOUT_S:g} s",
            hint="Wait for it, or end its session in PostgreSQL if it hangs; then start again.",
        ) from error


async def _applied(connection: Any, schema: str) -> set[int]:
    exists = await connection.fetchval(
        "SELECT to_regclass($1) IS NOT NULL", f"{schema}.schema_migrations"
    )
    if not exists:
        return set()
    return {
        row["version"] for row in await connection.fetch("SELECT version FROM schema_migrations")
    }


async def _run(connection: Any, migration: Migration, schema: str) -> None:
    await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version integer PRIMARY KEY, name text NOT NULL)"
    )
    await connection.execute(migration.sql)
    await connection.execute(
        "INSERT INTO schema_migrations VALUES ($1, $2)", migration.version, migration.name
    )
