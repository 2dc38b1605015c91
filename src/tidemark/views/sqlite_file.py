"""The file of the views as threads use it: each has a connection of its own.

Whoever wants the views built anew removes the file while servers go on. A connection would keep
reading what was removed, so every use looks first whether the file is still the same one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tidemark.ledger.sqlite_connection import CACHE_KIB, connect, make_private_directory
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.views.sqlite_functions import register

# All changes pass through the WAL, and copying them on from there takes half as long as the commit.
# So a thread does it beside the pipeline, and a commit only if that thread cannot keep up.
WAL_CHECKPOINT_PAGES: Final = 65_536
_BESIDE: Final = ("-wal", "-shm")

Identity: TypeAlias = tuple[int, int]


class Opened(msgspec.Struct, frozen=True, eq=False):
    """A thread's connection, which file it is to, and what forgets a statement's patterns."""

    connection: sqlite3.Connection
    identity: Identity
    forget_patterns: Callable[[], None]


class ViewsFile:
    """Gives each thread its connection. `close` it when no thread uses one any more."""

    def __init__(self, path: Path, *, cache_kib: int = CACHE_KIB) -> None:
        self.path = path
        self._cache_kib = cache_kib
        self._local = threading.local()
        self._opened: set[Opened] = set()

    def identity(self) -> Identity | None:
        """Which file it is now; None if there is none."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def size(self) -> int:
        """How many bytes the views take, with what SQLite keeps beside them."""
        places = (self.path, *(Path(f"{self.path}{suffix}") for suffix in _BESIDE))
        return sum(place.stat().st_size for place in places if place.exists())

    def opened(self) -> Opened:
        """What this thread reads and writes with. Raises `ViewsUnavailable` if the file is gone."""
        identity = self.identity()
        opened: Opened | None = getattr(self._local, "opened", None)
        # The number of a file that is held open is not given to another one.
        if opened is not None and opened.identity == identity:
            return opened
        if opened is not None:
            self._local.opened = None
            self._opened.discard(opened)
            opened.connection.close()
        if identity is None:
            raise self._gone()
        connection = connect(self.path)
        connection.execute(f"PRAGMA cache_size = -{self._cache_kib}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
        opened = Opened(connection, identity, register(connection))
        self._local.opened = opened
        self._opened.add(opened)
        return opened

    def connect(self) -> sqlite3.Connection:
        """A connection for the caller alone, who closes it."""
        if self.identity() is None:
            raise self._gone()
        return connect(self.path)

    def close(self) -> None:
        while self._opened:
            self._opened.pop().connection.close()

    def _gone(self) -> ViewsUnavailable:
        return ViewsUnavailable(
            f"the file of the views, {self.path}, is gone",
            hint="It is made anew when the pipeline starts.",
        )


def make_file(path: Path) -> None:
    """Make an empty file, for this user only, where there is none.

    Whoever removed the one before may have left what SQLite keeps beside it, and a server may have
    that open: it must not become a part of the new one.
    """
    make_private_directory(path.parent)
    if path.exists():
        return
    # Not the directory itself, which may be locked for other reasons by whoever calls this.
    lock = os.open(path.with_name(f"{path.name}-making"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        # Another process that makes it at the same time must not lose what it has written.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for suffix in _BESIDE:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    finally:
        os.close(lock)
