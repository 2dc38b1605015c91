"""Connections to the views on PostgreSQL: how they are set, what they run, what errors mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from tidemark.cancelling import cancellation_kept
from tidemark.pipeline.output.errors import BatchRefused, ViewsUnavailable
from tidemark.views import querying
from tidemark.views.scanning import Query, Row

WRITER_CONNECTIONS = 2
READER_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 10.0
# A long replay writes batches of a million changes.
COMMAND_TIMEOUT_S = 300.0
# A process that hangs while it holds the writer's lock must not stop all others for good.
HUNG_AFTER_S = 20
SESSION_SETTINGS = {
    "timezone": "UTC",
    "jit": "off",
    "client_min_messages": "warning",
    "lock_timeout": f"{HUNG_AFTER_S}s",
    "idle_in_transaction_session_timeout": f"{HUNG_AFTER_S}s",
}
# Without statistics, as in a table that has just begun to grow, the planner would rather gather and
# sort everything than follow an index to the end of a page, or scan the table for a few keys.
READER_SETTINGS = SESSION_SETTINGS | {"enable_bitmapscan": "off", "work_mem": "64MB"}
WRITER_SETTINGS = SESSION_SETTINGS | {"enable_seqscan": "off", "synchronous_commit": "on"}
# How much longer than PostgreSQL may take for a query an answer is waited for.
ANSWER_WITHIN_S = 5.0


async def pool_of(
    url: str,
    size: int,
    settings: dict[str, str],
    schema: str,
    *,
    idle: int = 1,
    within_s: float = COMMAND_TIMEOUT_S,
) -> asyncpg.Pool:
    """Connections to the views in this schema, so many of them kept open."""
    return await asyncpg.create_pool(
        url,
        min_size=idle,
        max_size=size,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=within_s,
        server_settings=settings | {"search_path": schema},
    )


async def queries_pool(url: str, schema: str) -> asyncpg.Pool:
    """Most processes have the views open and never query them, so none of these is kept."""
    within_s = querying.QUERY_WITHIN_S
    settings = READER_SETTINGS | {"statement_timeout": f"{within_s * 1_000:.0f}ms"}
    return await pool_of(
        url,
        querying.QUERIES_AT_ONCE,
        settings,
        schema,
        idle=0,
        within_s=within_s + ANSWER_WITHIN_S,
    )


async def answers(pool: asyncpg.Pool, queries: Sequence[Query]) -> list[list[Row]]:
    """The answers to some queries, all as of one moment."""

    async def asked() -> list[list[Row]]:
        async with pool.acquire() as connection, one_moment(connection):
            return [await connection.fetch(numbered(sql), *values) for sql, values in queries]

    try:
        return await asked()
    except asyncpg.InvalidCachedStatementError:
        # The views were built anew, and the pool has now forgotten what they were like before.
        return await asked()


@asynccontextmanager
async def one_moment(connection: Any) -> AsyncIterator[None]:
    """A transaction in which everything is as of one moment, tables too.

    Names are looked up as of now and rows as of the first query: of a table that has taken a name
    in between nothing would be seen. So a swap waits for whoever has this lock, which is had before
    the first query.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute("LOCK TABLE views IN ACCESS SHARE MODE")
        yield


async def execute_all(connection: Any, queries: Sequence[Query]) -> None:
    for sql, values in queries:
        await connection.execute(numbered(sql), *values)


def numbered(sql: str) -> str:
    """With the placeholders of PostgreSQL in place of `?`."""
    parts = sql.split("?")
    return parts[0] + "".join(f"${i}{part}" for i, part in enumerate(parts[1:], 1))


@contextmanager
def translated() -> Iterator[None]:
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
        TypeError,
    ) as error:
        raise BatchRefused(
            f"PostgreSQL refuses this content: {error}",
            hint="This is a fault of the pipeline; nothing was written.",
        ) from error
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
    ) as error:
        raise ViewsUnavailable(
            f"PostgreSQL could not read or write the views: {type(error).__name__}: {error}",
            hint="Retry: a batch that was written all the same is skipped.",
        ) from error
