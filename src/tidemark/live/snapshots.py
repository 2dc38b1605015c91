"""The rows that a subscription begins with: a query as of one moment, sent as INSERTs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tidemark.live.engine.changes import ChangedRow
from tidemark.live.engine.transitions import Item, Projection, Selected
from tidemark.live.errors import SlowClient, SnapshotTooLarge
from tidemark.live.filters import Filter, row_query
from tidemark.pipeline.output.encoding import encode_rows
from tidemark.pipeline.output.schema import ROW_RECEIVED_AT, ViewSchema
from tidemark.views.port import RowsFound, ViewsStore

ROWS_AT_ONCE: Final = 500
# So many snapshots of more rows are in memory at once, each until its client has taken it.
LARGE_SNAPSHOTS_AT_ONCE: Final = 4
# A client that takes longer for its snapshot would keep others from theirs.
SNAPSHOT_WITHIN_S: Final = 60.0


class Beginner(Protocol):
    """One who is to get a snapshot."""

    projection: Projection

    def begin(self, rows: Sequence[Item]) -> None:
        """Send rows of a snapshot."""

    async def room(self) -> None:
        """Waits until its client has taken what was sent."""


class Snapshots:
    """All snapshots of a process. Large ones wait for each other, small ones for nobody."""

    def __init__(self, schemas: Mapping[str, ViewSchema], *, max_rows: int) -> None:
        self._schemas = schemas
        self._max_rows = max_rows
        self._large = asyncio.Semaphore(LARGE_SNAPSHOTS_AT_ONCE)

    async def send(self, store: ViewsStore, view: str, wanted: Filter, beginner: Beginner) -> int:
        """Sends the rows there are, oldest change first; the time as of which they are.

        Raises `SnapshotTooLarge`, or `SlowClient`.
        """
        most = min(ROWS_AT_ONCE, self._max_rows)
        found = await self._found(store, view, wanted, most)
        if len(found.rows) <= most:
            await self._send(found, view, beginner)
        else:
            async with self._large:
                found = await self._found(store, view, wanted, self._max_rows)
                await self._send_in_time(found, view, beginner)
        return 0 if found.frontier is None else found.frontier.received_at

    async def _found(self, store: ViewsStore, view: str, wanted: Filter, most: int) -> RowsFound:
        """One row more than that if there are more."""
        schema, order = self._schemas[view], (ROW_RECEIVED_AT,)
        query = row_query(schema, wanted, store.dialect, order=order, limit=most + 1)
        return await store.select(view, query)

    async def _send_in_time(self, found: RowsFound, view: str, beginner: Beginner) -> None:
        try:
            async with asyncio.timeout(SNAPSHOT_WITHIN_S):
                await self._send(found, view, beginner)
        except TimeoutError:
            raise SlowClient(
                f"the client has not taken its snapshot within {SNAPSHOT_WITHIN_S:g} s",
                hint="Read faster, or narrow `where`.",
            ) from None

    async def _send(self, found: RowsFound, view: str, beginner: Beginner) -> None:
        if len(found.rows) > self._max_rows:
            raise SnapshotTooLarge(
                f"more than {self._max_rows} rows of {view} pass this filter",
                hint="Narrow `where`, or raise live.max_snapshot_rows.",
                field="where",
            )
        schema = self._schemas[view]
        selected = Selected(beginner.projection, schema.key)
        for place in range(0, len(found.rows), ROWS_AT_ONCE):
            changes = _as_changes(schema, found, place, place + ROWS_AT_ONCE)
            beginner.begin([selected.entered(change) for change in changes])
            await beginner.room()


def _as_changes(schema: ViewSchema, found: RowsFound, begin: int, end: int) -> list[ChangedRow]:
    rows = found.rows[begin:end]
    columns = {
        name: [row.values[place] for row in rows] for place, name in enumerate(found.columns)
    }
    return [
        ChangedRow(row.received_at, row.row_key, None, text, ())
        for row, text in zip(rows, encode_rows(schema, columns), strict=True)
    ]
