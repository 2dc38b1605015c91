"""Puts a history of any size into order in bounded memory.

Runs of lines are sorted in memory, written down one behind the other, and merged while they are
read again. They stand in a SQLite file without a name: it is gone when the process is, however
that ends.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from pathlib import Path
from typing import Final

import msgspec

from tidemark.errors import ImportRefused
from tidemark.ledger.history import Place
from tidemark.ledger.sqlite_connection import make_private_directory

RUN_LINES: Final = 50_000
RUN_BYTES: Final = 64 * 1024 * 1024
# Lines that are written and read as one row, since a row costs more than a line. Of each run one
# block is in memory while they are merged.
BLOCK_LINES: Final = 64
BLOCK_BYTES: Final = 64 * 1024
_CACHE_KIB: Final = 128 * 1024
# Nothing here outlives the process, so nothing has to survive a crash.
_PRAGMAS: Final = (
    "journal_mode = OFF",
    "synchronous = OFF",
    "locking_mode = EXCLUSIVE",
    "temp_store = MEMORY",
    f"cache_size = -{_CACHE_KIB}",
)

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[tuple[int, int, str, bytes, str, int]]).decode


@contextmanager
def open_workspace(directory: Path) -> Iterator[sqlite3.Connection]:
    """An empty database in this directory that only this process can see."""
    try:
        connection = _connect(directory)
    except (OSError, sqlite3.Error) as error:
        raise _no_room(directory, error) from error
    try:
        yield connection
    except sqlite3.Error as error:
        raise _no_room(directory, error) from error
    finally:
        connection.close()


def _connect(directory: Path) -> sqlite3.Connection:
    make_private_directory(directory)
    handle, path = tempfile.mkstemp(dir=directory, prefix="import-", suffix=".db")
    os.close(handle)
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE begun (n INTEGER)")
    finally:
        os.unlink(path)
    return connection


def _no_room(directory: Path, error: Exception) -> ImportRefused:
    return ImportRefused(
        f"the history cannot be put in order in {directory}: {error}",
        hint="It takes about three times the room of the history there. Run the same import again "
        "when there is room.",
    )


class HistoryOrder:
    """Takes places in any order and gives them back in theirs."""

    def __init__(
        self,
        workspace: sqlite3.Connection,
        *,
        run_lines: int = RUN_LINES,
        run_bytes: int = RUN_BYTES,
    ) -> None:
        self._workspace = workspace
        self._run_lines = run_lines
        self._run_bytes = run_bytes
        self._run: list[Place] = []
        self._bytes = 0
        self._runs = 0
        workspace.execute(
            "CREATE TABLE blocks (block INTEGER PRIMARY KEY, run INTEGER, places BLOB) STRICT"
        )
        workspace.execute("CREATE INDEX blocks_of_run ON blocks (run, block)")

    def add(self, place: Place) -> None:
        self._run.append(place)
        self._bytes += len(place.body)
        if len(self._run) >= self._run_lines or self._bytes >= self._run_bytes:
            self._write_run()

    def in_order(self) -> Iterator[Place]:
        """Every place that was added; the same order whatever order they were added in."""
        if self._run:
            self._write_run()
        return merge(*(self._read_run(run) for run in range(self._runs)))

    def _write_run(self) -> None:
        self._run.sort()
        line_bytes = self._bytes // len(self._run) + 1
        size = max(1, min(BLOCK_LINES, BLOCK_BYTES // line_bytes))
        self._workspace.execute("BEGIN")
        self._workspace.executemany(
            "INSERT INTO blocks (run, places) VALUES (?, ?)",
            (
                (self._runs, _pack(self._run[start : start + size]))
                for start in range(0, len(self._run), size)
            ),
        )
        self._workspace.execute("COMMIT")
        self._runs += 1
        self._run = []
        self._bytes = 0

    def _read_run(self, run: int) -> Iterator[Place]:
        for (places,) in self._workspace.execute(
            "SELECT places FROM blocks WHERE run = ? ORDER BY block", (run,)
        ):
            yield from map(Place._make, _unpack(places))
