"""A connection to the ledger's SQLite file: how it is set, what it runs, what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tidemark.errors import LedgerUnavailable, StorageRefused

BUSY_TIMEOUT_S = 20.0
BUSY_POLL_S = 0.01
CACHE_KIB = 128 * 1024
# A checkpoint copies each page once however often it was written since the last one, and random
# keys touch many pages: few large checkpoints cost far less than many small ones. Under load the
# log beside the file grows to 256 MiB before it is used anew.
WAL_CHECKPOINT_PAGES = 65_536
CONTENT_ERRORS = (sqlite3.DataError, UnicodeError)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that is durable at each commit and takes no transaction by itself."""
    make_private_directory(path.parent)
    _make_private_file(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
    return connection


def make_private_directory(directory: Path) -> None:
    """For this user only, if it is made here: every event and the salt are going to be in it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _make_private_file(path: Path) -> None:
    """The files that SQLite puts beside it have the same mode."""
    # Only a file that is not there yet: to open and close one that SQLite has open in this process
    # would give up SQLite's locks on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def connect_to_look(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even the files beside the database."""
    options = "mode=ro"
    if not path.with_name(path.name + "-wal").exists():
        # Nobody writes, and SQLite must not make a log in order to read.
        options += "&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{options}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Unless told otherwise takes the write lock at once: what is read is what is written upon."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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


@contextmanager
def translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        yield
    except CONTENT_ERRORS as error:
        raise StorageRefused(
            f"SQLite refuses this content: {error}",
            hint="Send the event with other content.",
        ) from error
    except sqlite3.IntegrityError as error:
        # The sequencer writes nothing that a constraint forbids, whatever an event says.
        raise LedgerUnavailable(
            f"the ledger's tables contradict each other: {error}",
            hint="Nothing of this request was acknowledged. Something else has written to this "
            "file; look at it, or bring back a backup.",
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise LedgerUnavailable(
            f"SQLite failed: {error}",
            hint="Nothing of this request was acknowledged. Look at the state directory's disk,"
            " then retry with the same keys; what was stored all the same comes back as a"
            " duplicate.",
        ) from error
