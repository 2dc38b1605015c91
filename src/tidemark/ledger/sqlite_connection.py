"""A connection to the ledger's SQLite file: how it is set, what it runs, what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.errors import LedgerUnavailable, StorageRefused

BUSY_TIMEOUT_S = 20.0
BUSY_POLL_S = 0.01
CACHE_KIB = 128 * 1024
# A checkpoint copies each page once however often it was written since the last one, and random
# keys touch many pages: few large checkpoints cost far less than many small ones.
WAL_CHECKPOINT_PAGES = 16_384


def connect(path: Path) -> sqlite3.Connection:
    """A connection that is durable at each commit and takes no transaction by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Processes that make the file together: SQLite does not wait here, so we do."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.Error as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                connection.close()
                raise
            time.sleep(BUSY_POLL_S)


def statements(sql: str) -> Iterator[str]:
    """Split a script, because `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, UnicodeError) as error:
        raise StorageRefused(
            f"SQLite refuses this content: {error}",
            hint="Send the events of this request one by one to find the one it refuses.",
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise LedgerUnavailable(
            f"SQLite failed: {error}",
            hint="Nothing of this request was acknowledged. Look at the state directory's disk,"
            " then retry with the same keys; what was stored all the same comes back as a"
            " duplicate.",
        ) from error
