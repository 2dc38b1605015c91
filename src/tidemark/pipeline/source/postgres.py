"""The ledger on PostgreSQL, read by the source.

Ranges of events come as one COPY in CSV that Arrow parses: no row of them is ever a Python object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import pyarrow as pa
import pyarrow.csv

from tidemark.ledger.postgres import COMMAND_TIMEOUT_S, SESSION_SETTINGS
from tidemark.ledger.postgres_migrate import CONNECT_TIMEOUT_S
from tidemark.ledger.postgres_statements import numbered, translated
from tidemark.pipeline.source.database import (
    BLOCK_BITS,
    PREVIOUS_COLUMN,
    LedgerDatabase,
    Owner,
    StreamOfTenant,
    blocks_of,
    event_columns,
)
from tidemark.pipeline.source.schema import (
    EVENT_COLUMNS,
    Columns,
    arrow_type,
    columns_of,
    plain_to_decimal,
)

T = TypeVar("T")

# Every query here is served by an index, and a planner without statistics does not know that.
_SETTINGS: Final = SESSION_SETTINGS | {
    "default_transaction_read_only": "on",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    # Joins are made in the order in which they are written.
    "join_collapse_limit": "1",
    "max_parallel_workers_per_gather": "0",
    # How fast rows are taken is Spark's to say, and others do not wait for a reader.
    "idle_in_transaction_session_timeout": "0",
}
_EVENTS = (
    f"SELECT {event_columns()} FROM events WHERE ingress_sequence > %d AND ingress_sequence <= %d"
)
_OF_STREAMS = " AND (stream, tenant_id) IN (SELECT * FROM unnest($1::text[], $2::text[]) AS wanted)"
# Each owner is looked up in the index of each block. The sum keeps the planner from the index of
# sequences, with which it would go through all the events of the range.
_EVENTS_OF = (
    f"SELECT {event_columns('events.quantity::text')}, {PREVIOUS_COLUMN}"
    " FROM unnest($1::bigint[]) AS block"
    " CROSS JOIN unnest($2::text[], $3::text[], $4::text[]) AS owner (tenant, metric, customer)"
    f" JOIN events ON events.ingress_sequence >> {BLOCK_BITS} = block"
    " AND events.tenant_id = owner.tenant AND events.metric = owner.metric"
    " AND events.customer_ref = owner.customer AND events.metric IS NOT NULL"
    " WHERE events.ingress_sequence + 0 > $5 AND events.ingress_sequence + 0 <= $6"
)
_PARSE: Final = pyarrow.csv.ParseOptions(newlines_in_values=True)
# COPY leaves a null empty and writes an empty text as two quotes.
_CONVERT: Final = pyarrow.csv.ConvertOptions(
    column_types={name: arrow_type(name) for name in EVENT_COLUMNS},
    null_values=[""],
    strings_can_be_null=True,
    quoted_strings_can_be_null=False,
)


class PostgresLedgerDatabase(LedgerDatabase):
    """One connection, driven by an event loop of its own. A lost one is made anew, once a call."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def events(self, after: int, upto: int, streams: Sequence[StreamOfTenant] | None) -> Columns:
        sql, values = _EVENTS % (after, upto), []
        if streams is not None:
            sql += _OF_STREAMS
            values = [list(column) for column in zip(*streams, strict=True)] or [[], []]
        sql += " ORDER BY ingress_sequence"
        parts: list[bytes] = []

        async def collect(data: bytes) -> None:
            parts.append(data)

        async def copy() -> None:
            parts.clear()
            connection = await self._connected()
            await connection.copy_from_query(sql, *values, output=collect, format="csv")

        self._run(copy, again=True)
        return _parsed(b"".join(parts))

    def events_of(
        self, after: int, upto: int, owners: Sequence[Owner], rows: int
    ) -> Iterator[tuple[Columns, Any]]:
        names = (*EVENT_COLUMNS, "previous_received_at")
        values = self._owner_values(after, upto, owners)

        async def begin() -> tuple[Any, Any]:
            connection = await self._connected()
            transaction = connection.transaction(readonly=True)
            await transaction.start()
            return transaction, await connection.cursor(_EVENTS_OF, *values)

        transaction, cursor = self._run(begin, again=True)

        async def fetch() -> list[Any]:
            return list(await cursor.fetch(rows))

        while found := self._run(fetch):
            columns = columns_of(found, names)
            columns["quantity"] = plain_to_decimal(columns["quantity"])
            yield columns, columns.pop(names[-1])
        self._run(transaction.rollback)

    def explain(self, after: int, upto: int, owners: Sequence[Owner]) -> str:
        """How PostgreSQL looks for the events of owners."""
        values = self._owner_values(after, upto, owners)

        async def plan() -> list[Any]:
            connection = await self._connected()
            return list(await connection.fetch(f"EXPLAIN {_EVENTS_OF}", *values))

        return "\n".join(row[0] for row in self._run(plan))

    def _owner_values(self, after: int, upto: int, owners: Sequence[Owner]) -> list[Any]:
        columns = [list(column) for column in zip(*owners, strict=True)] or [[], [], []]
        return [blocks_of(after, upto), *columns, after, upto]

    def _fetch(self, sql: str, *values: object) -> list[Any]:
        async def fetch() -> list[Any]:
            connection = await self._connected()
            return list(await connection.fetch(numbered(sql), *values))

        return self._run(fetch, again=True)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(
                self._url,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=COMMAND_TIMEOUT_S,
                server_settings=_SETTINGS,
            )
        return self._connection

    def _run(self, work: Callable[[], Awaitable[T]], *, again: bool = False) -> T:
        with translated():
            try:
                return self._runner.run(_awaited(work))
            except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError):
                if not again:
                    raise
                self._drop()
                return self._runner.run(_awaited(work))

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def close(self) -> None:
        self._drop()
        self._runner.close()


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _parsed(text: bytes) -> Columns:
    if not text:
        return columns_of([], list(EVENT_COLUMNS)) | {
            "quantity": pa.array([], arrow_type("quantity"))
        }
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        # One block, because a row may not be longer than one.
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(EVENT_COLUMNS), use_threads=False, block_size=len(text) + 1
        ),
        parse_options=_PARSE,
        convert_options=_CONVERT,
    )
    return {name: table.column(name).combine_chunks() for name in EVENT_COLUMNS}
