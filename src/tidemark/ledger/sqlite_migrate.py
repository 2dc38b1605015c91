"""Brings the schema of a SQLite store up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tidemark.crash import crash_point
from tidemark.ledger.migrations import LEDGER, Migration, Stage, pending
from tidemark.ledger.sqlite_connection import connect, connect_to_look, transaction, translated


def migrate(path: Path, *, stage: Stage = LEDGER, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do.

    A dry run only looks: it makes no file and changes none.
    """
    with translated():
        if dry_run:
            return _look(path, stage)
        with closing(connect(path)) as connection, transaction(connection):
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_migrations"
                " (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"
            )
            todo = pending("sqlite", _applied(connection), stage)
            for migration in todo:
                for statement in _statements(migration.sql):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO schema_migrations VALUES (?, ?)",
                    (migration.version, migration.name),
                )
            crash_point("migrate.before_commit")
        return todo


def _look(path: Path, stage: Stage) -> list[Migration]:
    if not path.exists():
        return pending("sqlite", set(), stage)
    with closing(connect_to_look(path)) as connection:
        [(is_ours,)] = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'"
        )
        return pending("sqlite", _applied(connection) if is_ours else set(), stage)


def _applied(connection: sqlite3.Connection) -> set[int]:
    return {row[0] for row in connection.execute("SELECT version FROM schema_migrations")}


def _statements(sql: str) -> Iterator[str]:
    """Split a script, because `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
