"""The past of a view: its log of changes, rows as they were, and how much of it is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache

import msgspec

from tidemark.pipeline.output.batch import UPDATE, Frontier
from tidemark.pipeline.output.encoding import decode_row
from tidemark.pipeline.output.errors import BeyondFrontier, ChangesForgotten, UnknownView
from tidemark.pipeline.output.schema import ROW_KEY, ROW_RECEIVED_AT, Value, quoted
from tidemark.views.fingerprint import Fingerprint
from tidemark.views.port import ChangePage, ChangeRow, ChangeSearch
from tidemark.views.reading import (
    ADJUSTMENT_COLUMNS,
    FRONTIER,
    SCHEMAS,
    ViewsReader,
    read_frontier,
)
from tidemark.views.scanning import SCAN_WINDOW, Conditions, Query, Row
from tidemark.views.snapshot import Dialect, Pages, Snapshot
from tidemark.views.swapping import OLD_VIEWS, OldView, old_view
from tidemark.views.tables import CHANGE_COLUMNS

PRUNED_AT_ONCE = 20_000


class ViewsHistory(ViewsReader):
    """A reader that also knows what was. A dialect says how to stream and how to forget."""

    @abstractmethod
    async def _stream(self, queries: Sequence[Query], take: Callable[[int, Row], None]) -> None:
        """Hand over rows one by one, with the number of their query, all as of one moment."""

    @abstractmethod
    def _pages(self) -> AbstractAsyncContextManager[Pages]:
        """While it lasts, answers queries some rows at a time, all as of one moment."""

    @abstractmethod
    async def _write(self, query: Query) -> int:
        """Run one statement in a transaction of its own; says how many rows it touched."""

    async def rows_as_of(self, view: str, received_at: int) -> dict[str, tuple[Value, ...]]:
        schema = await self._schema(view)
        columns = schema.visible
        names = [ROW_KEY, ROW_RECEIVED_AT, *(quoted(column.name) for column in columns)]
        # Of the later changes of a row the first has what it was before them all.
        undo = (
            "SELECT row_key, old_row FROM (SELECT row_key, old_row, row_number() OVER"
            " (PARTITION BY row_key ORDER BY received_at) AS place FROM view_changes"
            " WHERE view = ? AND received_at > ?"
            " AND received_at <= (SELECT received_at FROM frontier)) AS later WHERE place = 1"
        )
        [position], stored, rows, undone = await self._snapshot(
            FRONTIER,
            (f"{SCHEMAS} WHERE name = ?", (view,)),
            (f"SELECT {', '.join(names)} FROM {schema.table}", ()),
            (undo, (view, received_at)),
        )
        _check_reach(view, received_at, stored, read_frontier(position))
        result = {row.row_key: row.values for row in self._rows(columns, rows)}
        for key, old_row in undone:
            if old_row is None:
                result.pop(key, None)
            else:
                result[key] = decode_row(schema, old_row)
        return dict(sorted(result.items()))

    async def read_changes(
        self, view: str, after_received_at: int, up_to: int | None = None, *, limit: int
    ) -> ChangePage:
        schema = await self._schema(view)
        conditions = Conditions()
        conditions.add("view = ? AND received_at > ?", view, after_received_at)
        conditions.add("received_at <= (SELECT received_at FROM frontier)")
        conditions.add_if("received_at <= ?", up_to)
        # The commit that fills the page is its last; without one the page has all there is.
        end = (
            f"SELECT received_at FROM view_changes WHERE {conditions.sql}"
            " ORDER BY received_at LIMIT 1 OFFSET ?"
        )
        page = (
            f"SELECT {', '.join(CHANGE_COLUMNS[1:])} FROM view_changes WHERE {conditions.sql}"
            f" AND received_at <= coalesce(({end}), ?)"
            " ORDER BY received_at, row_key"
        )
        values = conditions.values
        [position], stored, rows = await self._snapshot(
            FRONTIER,
            (f"{SCHEMAS} WHERE name = ?", (view,)),
            (page, [*values, *values, limit - 1, 2**63 - 1]),
        )
        frontier = read_frontier(position)
        if frontier is None:
            return ChangePage([], after_received_at, True)
        if after_received_at < frontier.received_at:
            _check_reach(view, after_received_at, stored, frontier)
        reach = frontier.received_at if up_to is None else min(up_to, frontier.received_at)
        scanned_to = rows[-1][0] if len(rows) >= limit else max(after_received_at, reach)
        everything = tuple(column.name for column in schema.visible)
        changes = [_change(everything, row) for row in rows]
        return ChangePage(changes, scanned_to, scanned_to >= reach)

    async def find_change(self, view: str, row_key: str, received_at: int) -> ChangeSearch:
        schema = await self._schema(view)
        conditions = Conditions()
        conditions.add("view = ? AND received_at >= ?", view, received_at)
        conditions.add("received_at <= (SELECT received_at FROM frontier)")
        # The log has no index over keys, so a look at it ends somewhere.
        window = (
            f"SELECT {', '.join(CHANGE_COLUMNS)} FROM view_changes WHERE {conditions.sql}"
            " ORDER BY received_at LIMIT ?"
        )
        found = (
            f"SELECT {', '.join(CHANGE_COLUMNS[1:])} FROM ({window}) AS looked_at"
            " WHERE row_key = ? ORDER BY received_at LIMIT 1"
        )
        beyond = (
            f"SELECT 1 FROM view_changes WHERE {conditions.sql}"
            " ORDER BY received_at LIMIT 1 OFFSET ?"
        )
        values = conditions.values
        [position], stored, rows, more = await self._snapshot(
            FRONTIER,
            (f"{SCHEMAS} WHERE name = ?", (view,)),
            (found, [*values, SCAN_WINDOW, row_key]),
            (beyond, [*values, SCAN_WINDOW]),
        )
        frontier = read_frontier(position)
        if frontier is not None and received_at <= frontier.received_at:
            _check_reach(view, received_at - 1, stored, frontier)
        everything = tuple(column.name for column in schema.visible)
        return ChangeSearch(_change(everything, rows[0]) if rows else None, not more)

    async def prune_changes(self, older_than: int) -> int:
        frontier = await self.frontier()
        if frontier is None:
            return 0
        floor = min(older_than - 1, frontier.received_at)
        # Said first, so that a reader who finds the log incomplete also finds out why.
        await self._write(
            ("UPDATE views SET log_floor = ? WHERE log_floor < ?", (floor, floor)),
        )
        count = 0
        for schema in await self.declared():
            count += await self._prune_view(schema.name, floor)
        return count

    async def old_views(self) -> list[OldView]:
        [rows] = await self._snapshot(OLD_VIEWS)
        return [old_view(row) for row in rows]

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        async with self._pages() as pages:
            yield await Snapshot.of(Dialect(pages, self._rows, self._adjustment))

    async def fingerprint(self, *, hidden: bool = True) -> str:
        schemas = await self.declared()
        columns = [schema.columns if hidden else schema.visible for schema in schemas]
        queries: list[Query] = [
            (
                f"SELECT {ROW_KEY}, {ROW_RECEIVED_AT}"
                + "".join(f", {quoted(column.name)}" for column in shown)
                + f" FROM {schema.table} ORDER BY {ROW_KEY}",
                (),
            )
            for schema, shown in zip(schemas, columns, strict=True)
        ]
        queries.append(
            (
                f"SELECT {', '.join(CHANGE_COLUMNS)} FROM view_changes"
                " WHERE received_at <= (SELECT received_at FROM frontier)"
                " ORDER BY view, received_at, row_key",
                (),
            )
        )
        queries.append(
            (
                f"SELECT {', '.join(ADJUSTMENT_COLUMNS)} FROM adjustments"
                f" ORDER BY {', '.join(ADJUSTMENT_COLUMNS[:3])}",
                (),
            )
        )
        result = Fingerprint()

        def take(number: int, row: Row) -> None:
            if number < len(schemas):
                [line] = self._rows(columns[number], [row])
                result.add_row(schemas[number].name, columns[number], line)
            elif number == len(schemas):
                result.add_change(row)
            else:
                result.add_adjustment(self._adjustment(row))

        await self._stream(queries, take)
        return result.hexdigest()

    async def _prune_view(self, view: str, floor: int) -> int:
        """In slices, so that nobody has to wait long for the writer's lock."""
        count = 0
        while True:
            [rows] = await self._snapshot(
                (
                    "SELECT received_at FROM view_changes WHERE view = ? AND received_at <= ?"
                    " ORDER BY received_at LIMIT 1 OFFSET ?",
                    (view, floor, PRUNED_AT_ONCE - 1),
                )
            )
            up_to = rows[0][0] if rows else floor
            count += await self._write(
                ("DELETE FROM view_changes WHERE view = ? AND received_at <= ?", (view, up_to))
            )
            if not rows:
                return count


def _change(everything: tuple[str, ...], row: Row) -> ChangeRow:
    at, key, op, old, new, changed = row
    return ChangeRow(at, key, op, old, new, _names(changed) if op == UPDATE else everything)


def _check_reach(
    view: str, received_at: int, stored: Sequence[Row], frontier: Frontier | None
) -> None:
    """Refuses a time at which the rows of a view are not known, or not known any more."""
    if not stored:
        raise UnknownView(
            f"there is no view {view} any more",
            hint="The views are being built anew; ask again in a while.",
            field="view",
        )
    *_, logged, _, log_floor = stored[0]
    if frontier is None or received_at > frontier.received_at:
        raise BeyondFrontier(
            f"view {view} is not folded as far as {received_at}",
            hint="Ask again when the frontier has reached it.",
        )
    if received_at < (log_floor if logged else frontier.received_at):
        raise ChangesForgotten(
            f"the changes of view {view} are kept after "
            f"{log_floor if logged else frontier.received_at} only, not from {received_at} on",
            hint="Read the current rows and go on from their frontier."
            if logged
            else "This view keeps no changes; read its current rows.",
        )


@lru_cache(maxsize=1024)
def _names(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])
