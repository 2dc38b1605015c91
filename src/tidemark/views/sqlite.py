"""The views in one SQLite file: the embedded default.

All writing is done by one thread, in transactions that take the database's write lock first.
Reading has threads of its own: WAL lets them see the last commit while the next one is written.
Queries that may take long have theirs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from tidemark.crash import crash_point
from tidemark.ledger.migrations import Migration
from tidemark.ledger.sqlite_connection import transaction
from tidemark.pipeline.output.batch import (
    Adjustment,
    ErrorRow,
    Frontier,
    RowWrites,
    ViewBatch,
    check_batch,
    is_next,
)
from tidemark.pipeline.output.errors import BatchRefused, ViewsUnavailable
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import ROW_KEY, ViewSchema
from tidemark.views.declaring import declare, view_row
from tidemark.views.history import ViewsHistory
from tidemark.views.migrating import migrate_sqlite
from tidemark.views.querying import QUERIES_AT_ONCE, ViewsQueries
from tidemark.views.reading import (
    ADJUSTMENT_COLUMNS,
    ERROR_COLUMNS,
    FRONTIER,
    SCHEMAS,
    WHOLE_NUMBERS,
    Convert,
    read_frontier,
    read_schema,
)
from tidemark.views.scanning import Query, Row
from tidemark.views.snapshot import ROWS_AT_ONCE, Pages
from tidemark.views.sortable import from_sortable, to_sortable
from tidemark.views.sqlite_file import Identity, ViewsFile, make_file
from tidemark.views.sqlite_functions import EXACT_SUM
from tidemark.views.sqlite_queries import RunningQueries
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

READER_THREADS = 2
# There may be many of these, and the system keeps the file's pages as well.
QUERY_CACHE_KIB = 16 * 1024
KEYS_PER_QUERY = 500
ROWS_PER_CHECKPOINT = 50_000

T = TypeVar("T")


class SqliteViews(ViewsHistory, ViewsQueries):
    """A `ViewsStore`. Make one with `open`."""

    _to_store: ClassVar[Mapping[str, Convert]] = {"decimal": to_sortable, **WHOLE_NUMBERS}
    _from_store: ClassVar[Mapping[str, Convert]] = {"decimal": from_sortable, "boolean": bool}

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = ViewsFile(path)
        # Of which file the schemas are remembered.
        self._schemas_of: Identity | None = None
        # Those that were found to be as they are kept, and at which version of the file.
        self._compared: tuple[int, dict[str, ViewSchema]] = (0, {})
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="views-writer")
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="views-reader")
        self._query_file = ViewsFile(path, cache_kib=QUERY_CACHE_KIB)
        self._queries = ThreadPoolExecutor(QUERIES_AT_ONCE, thread_name_prefix="views-query")
        self._running = RunningQueries()
        self._checkpointer = ThreadPoolExecutor(1, thread_name_prefix="views-checkpoint")
        self._checkpoint: Future[None] | None = None
        self._rows_in_wal = 0

    @classmethod
    async def open(cls, path: Path) -> SqliteViews:
        """Open or make the file and bring the schema up to date."""
        await asyncio.to_thread(migrate, path)
        return cls(path)

    @property
    def dialect(self) -> Dialect:
        return "sqlite"

    async def declare(self, views: Sequence[ViewSchema]) -> None:
        await self._run(self._writer, lambda connection: _declare(connection, views))
        self._schemas |= {view.name: view for view in views}

    async def commit(self, batch: ViewBatch) -> bool:
        schemas = {view: await self._schema(view) for view in batch.views}
        check_batch(batch, schemas)
        applied = await self._run(
            self._writer, lambda connection: self._commit(connection, batch, schemas)
        )
        if applied:
            self._checkpoint_in_time(batch)
        return applied

    async def swap(self, swap: Swap, parts: AsyncIterator[SwapPart]) -> bool:
        schemas = {schema.name: schema for schema in await self.declared()}
        schemas |= {rebuilt.fresh.name: rebuilt.fresh for rebuilt in swap.rebuilt}
        held = ExitStack()
        try:
            applied = await self._run(
                self._writer, lambda connection: self._begin_swap(connection, swap, held)
            )
            if applied:
                async for part in parts:
                    write = partial(self._write_part, part=part, schemas=schemas)
                    await self._run(self._writer, write)
                await self._run(self._writer, lambda connection: _end_swap(connection, swap))
            await self._run(self._writer, lambda _: held.close())
        except BaseException as error:
            given_up = (type(error), error, error.__traceback__)
            await self._run(self._writer, lambda _: held.__exit__(*given_up))
            raise
        crash_point("views.after_swap")
        await self.declared()
        return applied

    async def compact(self) -> tuple[int, int]:
        def vacuum(connection: sqlite3.Connection) -> tuple[int, int]:
            before = self._file.size()
            connection.execute("VACUUM")
            # Else the log beside the file is as large as the file was.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return before, self._file.size()

        return await self._run(self._writer, vacuum)

    async def drop_old(self, views: Sequence[OldView]) -> None:
        def drop(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                for query in dropping(views):
                    connection.execute(*query)

        await self._run(self._writer, drop)

    async def read_state(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        schema = await self._schema(view)
        select = f"SELECT {', '.join(row_columns(schema))} FROM {schema.table} WHERE "
        answers = await self._snapshot(
            *(
                (select + self._in_list(ROW_KEY, len(keys)), keys)
                for keys in _chunks(row_keys, KEYS_PER_QUERY)
            )
        )
        return [row for rows in answers for row in self._rows(schema.columns, rows)]

    async def scan_state(self, view: str, *, after: str | None, limit: int) -> list[ViewRow]:
        schema = await self._schema(view)
        [rows] = await self._snapshot((scan_sql(schema), ["" if after is None else after, limit]))
        return self._rows(schema.columns, rows)

    async def close(self) -> None:
        self._running.end_all()
        for executor in (self._writer, self._readers, self._queries, self._checkpointer):
            await asyncio.to_thread(executor.shutdown)
        self._file.close()
        self._query_file.close()

    def _commit(
        self,
        connection: sqlite3.Connection,
        batch: ViewBatch,
        schemas: Mapping[str, ViewSchema],
    ) -> bool:
        with transaction(connection):
            if not is_next(_frontier(connection), batch):
                return False
            for writes in batch.rows:
                self._write_rows(connection, writes, schemas[writes.view])
            for changes in batch.changes:
                _insert(connection, "view_changes", CHANGE_COLUMNS, change_tuples(changes))
            self._write_lists(connection, batch.adjustments, batch.errors)
            _write_state(connection, batch.state)
            _move_frontier(connection, batch.end)
            crash_point("views.before_commit")
        crash_point("views.after_commit")
        return True

    def _write_lists(
        self,
        connection: sqlite3.Connection,
        adjustments: Sequence[Adjustment],
        errors: Sequence[ErrorRow],
    ) -> None:
        kept = (msgspec.structs.astuple(self._kept(adjustment)) for adjustment in adjustments)
        _insert(connection, "adjustments", ADJUSTMENT_COLUMNS, kept)
        _insert(connection, "pipeline_errors", ERROR_COLUMNS, map(msgspec.structs.astuple, errors))

    def _begin_swap(self, connection: sqlite3.Connection, swap: Swap, held: ExitStack) -> bool:
        held.enter_context(transaction(connection))
        if not swap.is_due(_frontier(connection)):
            return False
        for query in beginning(swap, "sqlite"):
            connection.execute(*query)
        return True

    def _write_part(
        self, connection: sqlite3.Connection, part: SwapPart, schemas: Mapping[str, ViewSchema]
    ) -> None:
        for writes in (part.fresh, part.rows):
            if writes is not None:
                self._write_rows(connection, writes, schemas[writes.view])
        if part.changes is not None:
            _insert(connection, "view_changes", CHANGE_COLUMNS, change_tuples(part.changes))
        connection.executemany(DELETE_ADJUSTMENT, part.gone_adjustments)
        connection.executemany(DELETE_ERROR, part.gone_errors)
        self._write_lists(connection, part.adjustments, part.errors)

    def _write_rows(
        self, connection: sqlite3.Connection, writes: RowWrites, schema: ViewSchema
    ) -> None:
        connection.executemany(
            f"DELETE FROM {schema.table} WHERE {ROW_KEY} = ?", ((key,) for key in writes.deleted)
        )
        columns = [
            self._stored(column, values)
            for column, values in zip(schema.columns, writes.columns, strict=True)
        ]
        values = f"VALUES ({', '.join('?' * (len(columns) + 2))})"
        connection.executemany(upsert(schema, values), row_tuples(writes, columns))

    def _checkpoint_in_time(self, batch: ViewBatch) -> None:
        self._rows_in_wal += sum(len(writes.row_keys) for writes in batch.rows)
        self._rows_in_wal += sum(len(changes.row_keys) for changes in batch.changes)
        busy = self._checkpoint is not None and not self._checkpoint.done()
        if self._rows_in_wal >= ROWS_PER_CHECKPOINT and not busy:
            self._rows_in_wal = 0
            self._checkpoint = self._checkpointer.submit(self._in_thread, _checkpoint)

    async def _schema(self, view: str) -> ViewSchema:
        identity = self._file.identity()
        if identity != self._schemas_of:
            self._schemas = {}
            self._schemas_of = identity
        return await super()._schema(view)

    async def _ask(self, query: Query, read: Callable[[list[Row]], T]) -> tuple[T, Frontier | None]:
        running = self._running.new()

        def answer() -> tuple[T, Frontier | None]:
            with _translated():
                opened = self._query_file.opened()
                connection = opened.connection
                try:
                    with running.limited(connection), transaction(connection, "BEGIN"):
                        frontier = _frontier(connection)
                        self._require_same(connection, [query])
                        rows = connection.execute(*query).fetchall()
                finally:
                    opened.forget_patterns()
            return read(rows), frontier

        try:
            return await asyncio.get_running_loop().run_in_executor(self._queries, answer)
        except asyncio.CancelledError:
            running.end()
            raise

    async def _snapshot(self, *queries: Query) -> list[list[Row]]:
        def read(connection: sqlite3.Connection) -> list[list[Row]]:
            with transaction(connection, "BEGIN"):
                self._require_same(connection, queries)
                return [connection.execute(sql, values).fetchall() for sql, values in queries]

        return await self._run(self._readers, read)

    def _require_same(self, connection: sqlite3.Connection, queries: Sequence[Query]) -> None:
        """Refuses to read a view that became another since it was looked at.

        SQLite takes the name of a column that is not there any more for a text.
        """
        remembered = self._schemas
        [version] = connection.execute("PRAGMA schema_version").fetchone()
        as_of, compared = self._compared
        if as_of == version and compared is remembered:
            return
        stored = {schema.name: schema for schema in map(read_schema, connection.execute(SCHEMAS))}
        others = [schema for schema in remembered.values() if stored.get(schema.name) != schema]
        if any(schema.table in sql for schema in others for sql, _ in queries):
            self._schemas = {}
            raise ViewsUnavailable(
                "the views became others by a swap while they were read", hint="Ask again."
            )
        if not others:
            self._compared = version, remembered

    async def _stream(self, queries: Sequence[Query], take: Callable[[int, Row], None]) -> None:
        def read(connection: sqlite3.Connection) -> None:
            with transaction(connection, "BEGIN"):
                for number, (sql, values) in enumerate(queries):
                    for row in connection.execute(sql, values):
                        take(number, row)

        await self._run(self._readers, read)

    @asynccontextmanager
    async def _pages(self) -> AsyncIterator[Pages]:
        # A thread and a connection of its own: others go on reading meanwhile.
        with ThreadPoolExecutor(1, thread_name_prefix="views-snapshot") as executor:
            loop = asyncio.get_running_loop()

            def begin() -> sqlite3.Connection:
                with _translated():
                    connection = self._file.connect()
                    connection.execute("BEGIN")
                    return connection

            connection = await loop.run_in_executor(executor, begin)

            def some(cursor: sqlite3.Cursor) -> list[Row]:
                with _translated():
                    return cursor.fetchmany(ROWS_AT_ONCE)

            def ask(query: Query) -> sqlite3.Cursor:
                with _translated():
                    return connection.execute(*query)

            async def pages(query: Query) -> AsyncIterator[list[Row]]:
                cursor = await loop.run_in_executor(executor, ask, query)
                while rows := await loop.run_in_executor(executor, some, cursor):
                    yield rows

            try:
                yield pages
            finally:
                await loop.run_in_executor(executor, connection.close)

    async def _write(self, query: Query) -> int:
        def write(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                return connection.execute(*query).rowcount

        return await self._run(self._writer, write)

    async def _run(
        self, executor: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, self._in_thread, work)

    def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _translated():
            return work(self._file.opened().connection)

    def _in_list(self, column: str, count: int) -> str:
        return f"{column} IN ({', '.join('?' * count)})"

    def _in_values(self, values: Sequence[object]) -> list[object]:
        return list(values)

    def _exact_sum(self, column: str) -> str:
        return f"{EXACT_SUM}({column})"


def migrate(path: Path, *, dry_run: bool = False) -> list[Migration]:
    """Run what is pending, or only say what it is."""
    if not dry_run:
        with _translated():
            make_file(path)
    return migrate_sqlite(path, dry_run=dry_run)


def _declare(connection: sqlite3.Connection, views: Sequence[ViewSchema]) -> None:
    with transaction(connection):
        declaration = declare(connection.execute(SCHEMAS).fetchall(), views)
        frontier = _frontier(connection)
        log_floor = 0 if frontier is None else frontier.received_at
        for schema in declaration.new:
            connection.execute(create_table(schema, "sqlite"))
            connection.execute(
                "INSERT INTO views VALUES (?, ?, ?, ?, ?, ?, ?, ?)", view_row(schema, log_floor)
            )
        for schema in declaration.relogged:
            connection.execute(
                "UPDATE views SET logged = ?, log_floor = ? WHERE name = ?",
                (schema.logged, log_floor, schema.name),
            )


def _end_swap(connection: sqlite3.Connection, swap: Swap) -> None:
    standings = {row[0]: (row[1], row[2]) for row in connection.execute(STANDINGS)}
    for query in ending(swap, standings):
        connection.execute(*query)
    _move_frontier(connection, swap.end)
    crash_point("views.before_swap")


def _move_frontier(connection: sqlite3.Connection, end: Frontier) -> None:
    connection.execute(
        "UPDATE frontier SET ingress_sequence = ?, received_at = ?, chain = ?, ledger_id = ?",
        (end.ingress_sequence, end.received_at, end.chain, end.ledger_id),
    )


def _checkpoint(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _frontier(connection: sqlite3.Connection) -> Frontier | None:
    return read_frontier(connection.execute(*FRONTIER).fetchone())


def _insert(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterator[tuple[object, ...]],
) -> None:
    connection.executemany(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        rows,
    )


def _write_state(connection: sqlite3.Connection, state: Mapping[str, bytes | None]) -> None:
    for name, value in state.items():
        if value is None:
            connection.execute("DELETE FROM pipeline_state WHERE name = ?", (name,))
        else:
            connection.execute("INSERT OR REPLACE INTO pipeline_state VALUES (?, ?)", (name, value))


def _chunks(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


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
        TypeError,
    ) as error:
        raise BatchRefused(
            f"SQLite refuses this content: {error}",
            hint="This is a fault of the pipeline; nothing was written.",
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise ViewsUnavailable(
            f"SQLite could not read or write the views: {error}",
            hint="Look at the state directory's disk, then retry: a batch that was written all the"
            " same is skipped.",
        ) from error
