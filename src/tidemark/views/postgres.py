"""The views on PostgreSQL, in a schema of their own.

The row of `frontier` is the writer's lock: whoever holds it decides whether its batch is the next,
and keeps it to the commit. Changes are copied in, rows are copied beside their table and merged.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, ClassVar, TypeVar

import asyncpg
import msgspec

from tidemark.crash import crash_point
from tidemark.ledger.migrations import Migration
from tidemark.pipeline.output.batch import (
    Adjustment,
    ErrorRow,
    Frontier,
    RowWrites,
    ViewBatch,
    check_batch,
    is_next,
)
from tidemark.pipeline.output.errors import InvalidView
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import ROW_KEY, ViewSchema, quoted
from tidemark.views.declaring import declare, view_row
from tidemark.views.history import ViewsHistory
from tidemark.views.migrating import migrate_postgres
from tidemark.views.postgres_connection import (
    CONNECT_TIMEOUT_S,
    HUNG_AFTER_S,
    READER_CONNECTIONS,
    READER_SETTINGS,
    WRITER_CONNECTIONS,
    WRITER_SETTINGS,
    answers,
    execute_all,
    numbered,
    one_moment,
    pool_of,
    queries_pool,
    translated,
)
from tidemark.views.querying import ViewsQueries, too_slow
from tidemark.views.reading import (
    ADJUSTMENT_COLUMNS,
    ERROR_COLUMNS,
    FRONTIER,
    SCHEMAS,
    WHOLE_NUMBERS,
    Convert,
    read_frontier,
)
from tidemark.views.scanning import Query, Row
from tidemark.views.snapshot import ROWS_AT_ONCE, Pages
from tidemark.views.sortable import checked_decimal
from tidemark.views.swapping import (
    DELETE_ADJUSTMENT,
    DELETE_ERROR,
    STANDINGS,
    OldView,
    Swap,
    SwapPart,
    beginning,
    dropping,
    ending,
)
from tidemark.views.tables import (
    CHANGE_COLUMNS,
    Dialect,
    change_tuples,
    create_table,
    row_columns,
    row_tuples,
    scan_sql,
    upsert,
)

SCHEMA = "tidemark_views"
# To write a long log anew takes as long as it takes.
COMPACT_WITHIN_S = 24 * 3600.0
# So many rows take the event loop a millisecond to read.
ROWS_ON_THE_LOOP = 1_000
T = TypeVar("T")

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}").fullmatch
# No timeout of PostgreSQL's ends a session whose client falls silent in the middle of a COPY.
_END_HUNG_SESSIONS = (
    "SELECT pg_terminate_backend(holder.pid) FROM pg_locks AS held"
    " JOIN pg_stat_activity AS holder USING (pid) WHERE held.relation = 'frontier'::regclass"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND held.granted AND held.mode = 'RowShareLock' AND holder.wait_event = 'ClientRead'"
    " AND holder.query_start < clock_timestamp() - make_interval(secs => $1)"
)


class PostgresViews(ViewsHistory, ViewsQueries):
    """A `ViewsStore`. Make one with `open`."""

    _to_store: ClassVar[Mapping[str, Convert]] = {"decimal": checked_decimal, **WHOLE_NUMBERS}
    _from_store: ClassVar[Mapping[str, Convert]] = {}

    def __init__(self, writers: asyncpg.Pool, readers: asyncpg.Pool, queries: asyncpg.Pool) -> None:
        super().__init__()
        self._writers = writers
        self._readers = readers
        self._queries = queries

    @classmethod
    async def open(cls, url: str, *, schema: str = SCHEMA) -> PostgresViews:
        """Connect and bring the schema up to date; another `schema` holds other views."""
        with translated():
            await migrate(url, schema=schema)
        return await cls.connect(url, schema=schema)

    @classmethod
    async def connect(cls, url: str, *, schema: str = SCHEMA) -> PostgresViews:
        """Connect to views whose schema is up to date."""
        with translated():
            async with AsyncExitStack() as opened:
                writers = await pool_of(url, WRITER_CONNECTIONS, WRITER_SETTINGS, schema)
                opened.push_async_callback(writers.close)
                readers = await pool_of(url, READER_CONNECTIONS, READER_SETTINGS, schema)
                opened.push_async_callback(readers.close)
                queries = await queries_pool(url, schema)
                opened.pop_all()
        return cls(writers, readers, queries)

    @property
    def dialect(self) -> Dialect:
        return "postgres"

    async def declare(self, views: Sequence[ViewSchema]) -> None:
        with translated():
            async with self._locked() as (connection, frontier):
                declaration = declare(await connection.fetch(SCHEMAS), views)
                log_floor = 0 if frontier is None else frontier.received_at
                for schema in declaration.new:
                    await connection.execute(create_table(schema, "postgres"))
                    await connection.execute(
                        "INSERT INTO views VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                        *view_row(schema, log_floor),
                    )
                for schema in declaration.relogged:
                    await connection.execute(
                        "UPDATE views SET logged = $1, log_floor = $2 WHERE name = $3",
                        schema.logged,
                        log_floor,
                        schema.name,
                    )
        self._schemas |= {view.name: view for view in views}

    async def commit(self, batch: ViewBatch) -> bool:
        schemas = {view: await self._schema(view) for view in batch.views}
        check_batch(batch, schemas)
        with translated():
            async with self._locked() as (connection, frontier):
                if not is_next(frontier, batch):
                    return False
                await self._write_batch(connection, batch, schemas)
                crash_point("views.before_commit")
            crash_point("views.after_commit")
            return True

    async def swap(self, swap: Swap, parts: AsyncIterator[SwapPart]) -> bool:
        schemas = {schema.name: schema for schema in await self.declared()}
        schemas |= {rebuilt.fresh.name: rebuilt.fresh for rebuilt in swap.rebuilt}
        with translated():
            async with self._locked() as (connection, frontier):
                if not swap.is_due(frontier):
                    return False
                # What is to be written is read from elsewhere in between.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                await execute_all(connection, beginning(swap, "postgres"))
                async for part in parts:
                    await self._write_part(connection, part, schemas)
                await connection.execute("LOCK TABLE views IN ACCESS EXCLUSIVE MODE")
                rows = await connection.fetch(STANDINGS)
                await execute_all(connection, ending(swap, {r[0]: (r[1], r[2]) for r in rows}))
                await _move_frontier(connection, swap.end)
                crash_point("views.before_swap")
        crash_point("views.after_swap")
        await self.declared()
        return True

    async def compact(self) -> tuple[int, int]:
        size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = "
        size += "current_schema()::regnamespace AND relkind = 'r'"
        with translated():
            async with self._writers.acquire() as connection:
                before = await connection.fetchval(size)
                # Written anew: what is kept lies at the end, and room before it is not given back.
                await connection.execute(
                    "VACUUM (FULL, ANALYZE) view_changes", timeout=COMPACT_WITHIN_S
                )
                # Rows that are changed over and over leave room behind that they can use again.
                for schema in await self.declared():
                    await connection.execute(
                        f"VACUUM (ANALYZE) {schema.table}", timeout=COMPACT_WITHIN_S
                    )
                return int(before), int(await connection.fetchval(size))

    async def drop_old(self, views: Sequence[OldView]) -> None:
        with translated():
            async with self._locked() as (connection, _):
                await execute_all(connection, dropping(views))

    async def read_state(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        schema = await self._schema(view)
        sql = (
            f"SELECT {', '.join(row_columns(schema))} FROM {schema.table} WHERE {ROW_KEY} = ANY($1)"
        )
        with translated():
            rows = await self._writers.fetch(sql, row_keys)
        return self._rows(schema.columns, rows)

    async def scan_state(self, view: str, *, after: str | None, limit: int) -> list[ViewRow]:
        schema = await self._schema(view)
        sql = scan_sql(schema).replace("?", "$1", 1).replace("?", "$2", 1)
        with translated():
            rows = await self._writers.fetch(sql, "" if after is None else after, limit)
        return self._rows(schema.columns, rows)

    async def close(self) -> None:
        for pool in (self._writers, self._readers, self._queries):
            try:
                await asyncio.wait_for(pool.close(), timeout=CONNECT_TIMEOUT_S)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[tuple[Any, Frontier | None]]:
        """A transaction that holds the writer's lock, and where the views stand."""
        async with self._writers.acquire() as connection:
            try:
                async with connection.transaction():
                    row = await connection.fetchrow(f"{FRONTIER[0]} FOR UPDATE")
                    yield connection, read_frontier(row)
            except asyncpg.LockNotAvailableError:
                await connection.execute(_END_HUNG_SESSIONS, HUNG_AFTER_S / 2)
                raise

    async def _write_batch(
        self, connection: Any, batch: ViewBatch, schemas: Mapping[str, ViewSchema]
    ) -> None:
        for writes in batch.rows:
            await self._write_rows(connection, writes, schemas[writes.view])
        for changes in batch.changes:
            await connection.copy_records_to_table(
                "view_changes", records=change_tuples(changes), columns=CHANGE_COLUMNS
            )
        await self._write_lists(connection, batch.adjustments, batch.errors)
        await _write_state(connection, batch.state)
        await _move_frontier(connection, batch.end)

    async def _write_lists(
        self, connection: Any, adjustments: Sequence[Adjustment], errors: Sequence[ErrorRow]
    ) -> None:
        if adjustments:
            await connection.copy_records_to_table(
                "adjustments",
                records=[msgspec.structs.astuple(self._kept(a)) for a in adjustments],
                columns=ADJUSTMENT_COLUMNS,
            )
        if errors:
            await connection.copy_records_to_table(
                "pipeline_errors",
                records=[msgspec.structs.astuple(error) for error in errors],
                columns=ERROR_COLUMNS,
            )

    async def _write_part(
        self, connection: Any, part: SwapPart, schemas: Mapping[str, ViewSchema]
    ) -> None:
        if part.fresh is not None:
            schema = schemas[part.fresh.view]
            await connection.copy_records_to_table(
                f"view_{schema.name}", records=self._stored_rows(part.fresh, schema)
            )
        if part.rows is not None:
            await self._write_rows(connection, part.rows, schemas[part.rows.view])
        if part.changes is not None:
            await connection.copy_records_to_table(
                "view_changes", records=change_tuples(part.changes), columns=CHANGE_COLUMNS
            )
        await connection.executemany(numbered(DELETE_ADJUSTMENT), part.gone_adjustments)
        await connection.executemany(numbered(DELETE_ERROR), part.gone_errors)
        await self._write_lists(connection, part.adjustments, part.errors)

    async def _write_rows(self, connection: Any, writes: RowWrites, schema: ViewSchema) -> None:
        if writes.deleted:
            await connection.execute(
                f"DELETE FROM {schema.table} WHERE {ROW_KEY} = ANY($1)", writes.deleted
            )
        if not writes.row_keys:
            return
        # Kept for the session: a table that is made anew each time would fill the catalogue.
        staged = _staging(schema)
        await connection.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {quoted(staged)} (LIKE {schema.table})"
            " ON COMMIT DELETE ROWS"
        )
        await connection.copy_records_to_table(staged, records=self._stored_rows(writes, schema))
        await connection.execute(upsert(schema, f"SELECT * FROM {quoted(staged)}"))

    def _stored_rows(self, writes: RowWrites, schema: ViewSchema) -> Iterator[tuple[object, ...]]:
        columns = [
            self._stored(column, values)
            for column, values in zip(schema.columns, writes.columns, strict=True)
        ]
        return row_tuples(writes, columns)

    async def _snapshot(self, *queries: Query) -> list[list[Row]]:
        with translated(), self._looked_at_again():
            return await answers(self._readers, queries)

    async def _ask(self, query: Query, read: Callable[[list[Row]], T]) -> tuple[T, Frontier | None]:
        with translated(), self._looked_at_again():
            try:
                [position], rows = await answers(self._queries, (FRONTIER, query))
            except asyncpg.QueryCanceledError as error:
                raise too_slow() from error
        if len(rows) <= ROWS_ON_THE_LOOP:
            return read(rows), read_frontier(position)
        return await asyncio.to_thread(read, rows), read_frontier(position)

    @contextmanager
    def _looked_at_again(self) -> Iterator[None]:
        """Forgets the columns of views if one is not there any more, as after a swap."""
        try:
            yield
        except asyncpg.UndefinedColumnError:
            self._schemas = {}
            raise

    async def _stream(self, queries: Sequence[Query], take: Callable[[int, Row], None]) -> None:
        with translated():
            async with self._readers.acquire() as connection, one_moment(connection):
                for number, (sql, values) in enumerate(queries):
                    async for row in connection.cursor(
                        numbered(sql), *values, prefetch=ROWS_AT_ONCE
                    ):
                        take(number, row)

    @asynccontextmanager
    async def _pages(self) -> AsyncIterator[Pages]:
        async with AsyncExitStack() as held:
            with translated():
                connection = await held.enter_async_context(self._readers.acquire())
                await held.enter_async_context(one_moment(connection))
                # Whoever reads may have to wait for something else in between.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

            async def pages(query: Query) -> AsyncIterator[list[Row]]:
                sql, values = query
                with translated():
                    cursor = await connection.cursor(numbered(sql), *values)
                    rows = await cursor.fetch(ROWS_AT_ONCE)
                while rows:
                    yield rows
                    with translated():
                        rows = await cursor.fetch(ROWS_AT_ONCE)

            yield pages

    async def _write(self, query: Query) -> int:
        sql, values = query
        with translated():
            status = await self._writers.execute(numbered(sql), *values)
        return int(status.rpartition(" ")[2])

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} = ANY(?)"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return [list(values)]

    def _exact_sum(self, column: str) -> str:
        return f"CAST(sum({column}) AS numeric)"


async def migrate(url: str, *, schema: str = SCHEMA, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, once, under a lock; other processes wait and then find nothing to do."""
    if not _SCHEMA_NAME(schema):
        raise InvalidView(
            f"{schema} cannot be the name of a schema",
            hint="Use lower-case letters, digits and `_`.",
            field="schema",
        )
    return await migrate_postgres(url, schema=schema, dry_run=dry_run)


async def _write_state(connection: Any, state: Mapping[str, bytes | None]) -> None:
    gone = [name for name, value in state.items() if value is None]
    kept = [(name, value) for name, value in state.items() if value is not None]
    if gone:
        await connection.execute("DELETE FROM pipeline_state WHERE name = ANY($1)", gone)
    if kept:
        await connection.executemany(
            "INSERT INTO pipeline_state VALUES ($1, $2)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            kept,
        )


def _staging(schema: ViewSchema) -> str:
    """A name for the rows of this view with these columns; a swap may give it others."""
    shape = msgspec.json.encode((schema.name, schema.columns))
    return f"new_{hashlib.sha256(shape).hexdigest()[:24]}"


async def _move_frontier(connection: Any, end: Frontier) -> None:
    await connection.execute(
        "UPDATE frontier SET ingress_sequence = $1, received_at = $2, chain = $3, ledger_id = $4",
        *msgspec.structs.astuple(end),
    )
