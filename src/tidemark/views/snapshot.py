"""All that a store holds as of one moment, row after row in the order of keys.

However much it is, little of it is in memory at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from tidemark.pipeline.output.batch import Adjustment, ErrorRow, Frontier
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import ROW_KEY, Column, ViewSchema
from tidemark.views.reading import (
    ADJUSTMENT_COLUMNS,
    ERROR_COLUMNS,
    FRONTIER,
    SCHEMAS,
    read_frontier,
    read_schema,
)
from tidemark.views.scanning import Query, Row
from tidemark.views.tables import CHANGE_COLUMNS, row_columns

ROWS_AT_ONCE: Final = 2_000

Pages: TypeAlias = Callable[[Query], AsyncIterator[list[Row]]]
"""The answer to a query as of the moment, some rows at a time."""


class KeptView(msgspec.Struct, frozen=True):
    """A view; its log has every change after `log_floor`.

    Up to `swapped_at` they are those of the version that it had before.
    """

    schema: ViewSchema
    log_floor: int
    swapped_at: int = 0


class LoggedChange(msgspec.Struct, frozen=True, gc=False):
    """One line of the log as it is kept."""

    received_at: int
    row_key: str
    op: str
    old_row: str | None
    row: str | None
    changed: str | None


class Dialect(msgspec.Struct, frozen=True):
    """How a store answers a query as of its moment, and how it reads what it has kept."""

    pages: Pages
    rows: Callable[[Sequence[Column], Sequence[Row]], list[ViewRow]]
    adjustment: Callable[[Row], Adjustment]


class Snapshot:
    """Made by a store's `snapshot`. One thing can be read at a time."""

    def __init__(
        self, dialect: Dialect, frontier: Frontier | None, views: dict[str, KeptView]
    ) -> None:
        self.frontier = frontier
        self.views = views
        self._dialect = dialect

    @classmethod
    async def of(cls, dialect: Dialect) -> Snapshot:
        [position] = [row async for rows in dialect.pages(FRONTIER) for row in rows]
        views = {}
        async for rows in dialect.pages((f"{SCHEMAS} ORDER BY name", ())):
            for row in rows:
                schema = read_schema(row)
                views[schema.name] = KeptView(schema, row[-1], row[-2])
        return cls(dialect, read_frontier(position), views)

    async def rows(self, view: str) -> AsyncIterator[ViewRow]:
        """With the hidden columns, in the order of keys."""
        schema = self.views[view].schema
        columns = ", ".join(row_columns(schema))
        query = f"SELECT {columns} FROM {schema.table} ORDER BY {ROW_KEY}"
        async for rows in self._dialect.pages((query, ())):
            for row in self._dialect.rows(schema.columns, rows):
                yield row

    async def changes(self, view: str, after: int) -> AsyncIterator[LoggedChange]:
        """Those later than `after`, by commit and key."""
        query = (
            f"SELECT {', '.join(CHANGE_COLUMNS[1:])} FROM view_changes"
            " WHERE view = ? AND received_at > ?"
            " AND received_at <= (SELECT received_at FROM frontier) ORDER BY received_at, row_key"
        )
        async for rows in self._dialect.pages((query, (view, after))):
            for row in rows:
                yield LoggedChange(*row)

    async def adjustments(self) -> AsyncIterator[Adjustment]:
        """By event, view and part."""
        async for rows in self._dialect.pages(_whole("adjustments", ADJUSTMENT_COLUMNS, 3)):
            for row in rows:
                yield self._dialect.adjustment(row)

    async def errors(self) -> AsyncIterator[ErrorRow]:
        """By event and stage."""
        async for rows in self._dialect.pages(_whole("pipeline_errors", ERROR_COLUMNS, 2)):
            for row in rows:
                yield ErrorRow(*row)


def _whole(table: str, columns: tuple[str, ...], key_length: int) -> Query:
    order = ", ".join(columns[:key_length])
    return f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}", ()
