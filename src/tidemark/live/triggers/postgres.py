"""The triggers on PostgreSQL, in a schema of their own.

Whoever writes locks the row of `writer` first and keeps it to the commit. Whoever leads holds an
advisory lock on a connection of its own; if that connection is lost, so is the leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from tidemark.cancelling import cancellation_kept
from tidemark.ledger.postgres_statements import numbered
from tidemark.live.errors import TriggersRefused, TriggersUnavailable
from tidemark.live.triggers.migrating import migrate_postgres
from tidemark.live.triggers.port import Leadership
from tidemark.live.triggers.programs import Program, Row, Statement
from tidemark.live.triggers.store import StoredTriggers, wait_for_turn

SCHEMA = "tidemark_triggers"
CONNECTIONS = 4
CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 60.0
# A process that hangs while it holds the writer's lock must not stop all others for good.
HUNG_AFTER_S = 20
# Without statistics, as in a table that has just begun to grow, the planner would rather scan it
# than follow an index to a few rows.
SETTINGS = {
    "timezone": "UTC",
    "jit": "off",
    "client_min_messages": "warning",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "synchronous_commit": "on",
    "lock_timeout": f"{HUNG_AFTER_S}s",
    "idle_in_transaction_session_timeout": f"{HUNG_AFTER_S}s",
}
# The number spells "lead"; the other half of the lock's name is the schema.
LEADER_LOCK = 0x6C656164
LEADER_CHECK_S = 1.0
# A leader whose server does not answer must know it before another can lead.
LEADER_TIMEOUT_S = 5.0

T = TypeVar("T")


class PostgresTriggers(StoredTriggers):
    """A `TriggerStore`. Make one with `open`."""

    def __init__(self, pool: asyncpg.Pool, url: str, schema: str) -> None:
        self._pool = pool
        self._url = url
        self._schema = schema

    @classmethod
    async def open(cls, url: str, *, schema: str = SCHEMA) -> PostgresTriggers:
        """Connect and bring the schema up to date."""
        with _translated():
            await migrate_postgres(url, schema=schema)
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=CONNECTIONS,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                server_settings=SETTINGS | {"search_path": schema},
            )
        return cls(pool, url, schema)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), timeout=CONNECT_TIMEOUT_S)
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[Leadership]:
        lost = asyncio.Event()
        with _translated():
            connection = await asyncpg.connect(
                self._url, timeout=CONNECT_TIMEOUT_S, command_timeout=LEADER_TIMEOUT_S
            )
        try:
            connection.add_termination_listener(lambda _: lost.set())
            with _translated():
                while not await connection.fetchval(
                    "SELECT pg_try_advisory_lock($1, hashtext($2))", LEADER_LOCK, self._schema
                ):
                    await wait_for_turn()
            await self._take_over()
            watch = asyncio.create_task(_watch(connection, lost))
            try:
                yield Leadership(lost)
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch
        finally:
            await _closed(connection)

    async def _read(self, program: Program[T]) -> T:
        with _translated():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                return await _run_program(connection, program)

    async def _write(self, program: Program[T]) -> T:
        with _translated():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT FROM writer FOR UPDATE")
                return await _run_program(connection, program)


async def _run_program(connection: Any, program: Program[T]) -> T:
    try:
        statement = next(program)
        while True:
            statement = program.send(await _answer(connection, statement))
    except StopIteration as end:
        result: T = end.value
        return result


async def _answer(connection: Any, statement: Statement) -> list[Row]:
    sql = numbered(statement.sql)
    if statement.many is None:
        rows: list[Row] = await connection.fetch(sql, *statement.values)
        return rows
    if statement.many:
        await connection.executemany(sql, statement.many)
    return []


async def _watch(connection: Any, lost: asyncio.Event) -> None:
    while not lost.is_set():
        await asyncio.sleep(LEADER_CHECK_S)
        try:
            await connection.execute("SELECT 1")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            lost.set()


async def _closed(connection: Any) -> None:
    """The server gives up the lock with the session."""
    try:
        await connection.close(timeout=LEADER_TIMEOUT_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        connection.terminate()


@contextmanager
def _translated() -> Iterator[None]:
    """Turns what the driver raises into the two things a caller can act on."""
    try:
        with cancellation_kept():
            yield
    except (
        asyncpg.DataError,
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.ProgramLimitExceededError,
        UnicodeError,
        OverflowError,
    ) as error:
        raise TriggersRefused(
            f"PostgreSQL refuses this content: {error}", hint="Nothing was written."
        ) from error
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
    ) as error:
        raise TriggersUnavailable(
            f"PostgreSQL could not read or write the triggers: {type(error).__name__}: {error}",
            hint="Retry: what was written all the same is noticed.",
        ) from error
