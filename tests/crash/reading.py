"""Reads a whole ledger past Tidemark, in one snapshot, with nothing but the database's driver."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.crash.history import Head, History, StoredCommit, StoredEvent

SQLITE_SCHEME: Final = "sqlite:///"
POSTGRES_SCHEMA: Final = "tidemark"

_EVENTS: Final = (
    "SELECT ingress_sequence, received_at, content_hash, tenant_id, idempotency_key, customer_ref"
    " FROM events ORDER BY ingress_sequence"
)
# By sequence, not by time: that time moves on with it is what is to be found out.
_COMMITS: Final = (
    "SELECT received_at, first_sequence, last_sequence, chain FROM commits"
    " ORDER BY first_sequence, last_sequence, received_at"
)
_HEAD: Final = "SELECT last_sequence, received_at, chain FROM ledger"


async def read_history(ledger_url: str) -> History:
    """The ledger as of one moment; others may go on writing."""
    if ledger_url.startswith(SQLITE_SCHEME):
        path = Path(ledger_url.removeprefix(SQLITE_SCHEME))
        return await asyncio.to_thread(_read_sqlite, path)
    return await _read_postgres(ledger_url)


def _read_sqlite(path: Path) -> History:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN")
        return _history(*(connection.execute(sql).fetchall() for sql in (_EVENTS, _COMMITS, _HEAD)))


async def _read_postgres(url: str) -> History:
    connection = await asyncpg.connect(url, server_settings={"search_path": POSTGRES_SCHEMA})
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return _history(*[await connection.fetch(sql) for sql in (_EVENTS, _COMMITS, _HEAD)])
    finally:
        await connection.close()


def _history(events: Any, commits: Any, head: Any) -> History:
    return History(
        [StoredEvent(*row) for row in events],
        [StoredCommit(*row) for row in commits],
        Head(*head[0]),
    )
