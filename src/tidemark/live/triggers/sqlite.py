"""The triggers in one SQLite file: the embedded default.

The file is not that of the views: the pipeline holds the write lock of those for as long as it
writes a batch, and deliveries go on meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from tidemark.ledger.sqlite_connection import connect, make_private_directory, transaction
from tidemark.live.errors import TriggersRefused, TriggersUnavailable
from tidemark.live.triggers.migrating import migrate_sqlite
from tidemark.live.triggers.port import Leadership
from tidemark.live.triggers.programs import Program, Row, Statement
from tidemark.live.triggers.store import StoredTriggers, wait_for_turn

READER_THREADS = 2
# Beside the database; the process that leads has it locked. What it holds says nothing.
LEADER_SUFFIX = ".leader"

T = TypeVar("T")


class SqliteTriggers(StoredTriggers):
    """A `TriggerStore`. Make one with `open`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="triggers-writer")
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="triggers-reader")
        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()

    @classmethod
    async def open(cls, path: Path) -> SqliteTriggers:
        """Open or make the file and bring the schema up to date."""
        await asyncio.to_thread(migrate_sqlite, path)
        return cls(path)

    async def close(self) -> None:
        for executor in (self._writer, self._readers):
            await asyncio.to_thread(executor.shutdown)
        while self._connections:
            self._connections.pop().close()

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[Leadership]:
        with _translated():
            handle = await asyncio.to_thread(_open_lock, self._path)
        try:
            while not _locked(handle):
                await wait_for_turn()
            await self._take_over()
            # The kernel keeps this lock for as long as the process lives, so it is never lost.
            yield Leadership(asyncio.Event())
        finally:
            os.close(handle)

    async def _read(self, program: Program[T]) -> T:
        return await self._run(self._readers, "BEGIN", program)

    async def _write(self, program: Program[T]) -> T:
        return await self._run(self._writer, "BEGIN IMMEDIATE", program)

    async def _run(self, executor: ThreadPoolExecutor, begin: str, program: Program[T]) -> T:
        def work(connection: sqlite3.Connection) -> T:
            with transaction(connection, begin):
                return _run_program(connection, program)

        return await asyncio.get_running_loop().run_in_executor(executor, self._in_thread, work)

    def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _translated():
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = connect(self._path)
                self._local.connection = connection
                self._connections.append(connection)
            return work(connection)


def _run_program(connection: sqlite3.Connection, program: Program[T]) -> T:
    try:
        statement = next(program)
        while True:
            statement = program.send(_answer(connection, statement))
    except StopIteration as end:
        result: T = end.value
        return result


def _answer(connection: sqlite3.Connection, statement: Statement) -> list[Row]:
    if statement.many is None:
        return connection.execute(statement.sql, statement.values).fetchall()
    connection.executemany(statement.sql, statement.many)
    return []


def _open_lock(path: Path) -> int:
    make_private_directory(path.parent)
    return os.open(path.with_name(path.name + LEADER_SUFFIX), os.O_CREAT | os.O_RDWR, 0o600)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        yield
    except (
        sqlite3.IntegrityError,
        sqlite3.DataError,
        sqlite3.ProgrammingError,
        sqlite3.InterfaceError,
        UnicodeError,
        OverflowError,
    ) as error:
        raise TriggersRefused(
            f"SQLite refuses this content: {error}", hint="Nothing was written."
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise TriggersUnavailable(
            f"SQLite could not read or write the triggers: {error}",
            hint="Look at the state directory's disk, then retry.",
        ) from error
