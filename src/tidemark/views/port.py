"""What a views store can do. SQLite and PostgreSQL do it; one suite of tests holds both to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from tidemark.pipeline.output.batch import Adjustment, ErrorRow, Frontier
from tidemark.pipeline.output.port import ViewRow, ViewsSink
from tidemark.pipeline.output.schema import Value, ViewSchema
from tidemark.views.scanning import Query
from tidemark.views.tables import Dialect

if TYPE_CHECKING:
    # They read with what is declared here.
    from tidemark.views.snapshot import Snapshot
    from tidemark.views.swapping import OldView, Swap, SwapPart

AdjustmentCursor: TypeAlias = tuple[int, str, int]
"""Where a page of adjustments ended: ingress sequence, view, part."""

ErrorCursor: TypeAlias = tuple[int, str]
"""Where a page of errors ended: ingress sequence, stage."""


class RowFilter(msgspec.Struct, frozen=True):
    """Which rows to read, by visible columns; all conditions must hold.

    `equal` to None means null; in the others null never holds. Values that name the first columns
    of the key are found by it, any others by looking at row after row.
    """

    equal: Mapping[str, Value] = {}
    one_of: Mapping[str, Sequence[Value]] = {}
    at_least: Mapping[str, Value] = {}
    below: Mapping[str, Value] = {}


class RowQuery(msgspec.Struct, frozen=True):
    """Which rows to read, in SQL over the view's own table; see `live.filters.row_query`.

    `order` is made of terms of SQL; rows that are alike in them are in the order of their keys.
    """

    condition: Query = ("true", ())
    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0


class RowsFound(msgspec.Struct, frozen=True):
    """The rows that a query wants, all as of `frontier`; `columns` names their values."""

    columns: tuple[str, ...]
    rows: list[ViewRow]
    frontier: Frontier | None


class RowPage(msgspec.Struct, frozen=True):
    """Rows in the order of their keys, all as of `frontier`. `next_cursor` is where to go on.

    `columns` names the values of each row. A page may be short, even empty, before the end: the
    work for one is bounded. Each page is as of a frontier of its own.
    """

    columns: tuple[str, ...]
    rows: list[ViewRow]
    next_cursor: str | None
    frontier: Frontier | None


class ChangeRow(msgspec.Struct, frozen=True, gc=False):
    """One net change; rows are JSON text (`encoding.decode_row`), `changed` names columns."""

    received_at: int
    row_key: str
    op: str
    old_row: str | None
    row: str | None
    changed: tuple[str, ...]


class ChangePage(msgspec.Struct, frozen=True):
    """Whole commits in order up to `scanned_to`; `complete` if that is as far as asked."""

    changes: list[ChangeRow]
    scanned_to: int
    complete: bool


class ChangeSearch(msgspec.Struct, frozen=True):
    """A change that was looked for; without one, `complete` says that there is none."""

    change: ChangeRow | None
    complete: bool


class AdjustmentFilter(msgspec.Struct, frozen=True):
    """Which adjustments to read; None means any. The range is half open: `from <= x < to`."""

    tenant_ids: tuple[str, ...] | None = None
    view: str | None = None
    metric: str | None = None
    customer_ref: str | None = None
    period_from: int | None = None
    period_to: int | None = None
    ingress_sequence: int | None = None
    original_sequence: int | None = None


class AdjustmentPage(msgspec.Struct, frozen=True):
    """Adjustments in the order of their events, as of `frontier`; see `RowPage`."""

    adjustments: list[Adjustment]
    next_cursor: AdjustmentCursor | None
    frontier: Frontier | None


class ErrorFilter(msgspec.Struct, frozen=True):
    """Which errors to read; None means any."""

    tenant_ids: tuple[str, ...] | None = None
    stream: str | None = None
    code: str | None = None
    ingress_sequence: int | None = None


class ErrorPage(msgspec.Struct, frozen=True):
    """Errors in the order of their events, as of `frontier`; see `RowPage`."""

    errors: list[ErrorRow]
    next_cursor: ErrorCursor | None
    frontier: Frontier | None


class SetAside(msgspec.Struct, frozen=True):
    """How many adjustments there are by view, and how many errors by code."""

    adjustments: dict[str, int]
    errors: dict[str, int]


class ViewsStore(ViewsSink, Protocol):
    """Rows, changes, frontier. Every method may raise `ViewsUnavailable`; retrying is then safe."""

    @property
    def dialect(self) -> Dialect:
        """The SQL that `select` and `aggregate` take."""

    async def declared(self) -> list[ViewSchema]:
        """Every view there is, by name. Ask again when the views may have been built anew."""

    async def read_rows(
        self, view: str, row_filter: RowFilter, *, after: str | None = None, limit: int
    ) -> RowPage: ...

    async def select(self, view: str, query: RowQuery) -> RowsFound:
        """The visible columns of the rows that a query wants, as of one moment.

        Raises `QueryTooSlow`. A task that is cancelled ends its query.
        """

    async def aggregate(
        self, view: str, condition: Query, terms: Sequence[tuple[str, str]]
    ) -> tuple[list[Value | float], Frontier | None]:
        """An answer for each term over the rows of a condition, as of one moment.

        A term is a function and a visible column: `count` and `count_distinct` of what is not null,
        `sum` and `avg` of numbers, `min` and `max` of all but JSON, and `("count", "*")` of rows.
        Sums are exact, an average has 38 digits. Of no values all but the counts are None.
        Raises `UnknownView` for a term that there is not, and `QueryTooSlow`.
        """

    async def rows_as_of(self, view: str, received_at: int) -> dict[str, tuple[Value, ...]]:
        """All rows by key as they were after everything up to this time, visible columns only.

        Raises `BeyondFrontier`, or `ChangesForgotten` if the log does not reach back that far.
        """

    async def read_changes(
        self, view: str, after_received_at: int, up_to: int | None = None, *, limit: int
    ) -> ChangePage:
        """The changes after one time and up to another, never beyond the frontier.

        A page holds whole commits: the first of them always, so it may be longer than `limit`.
        Raises `ChangesForgotten` if the log does not reach back that far.
        """

    async def find_change(self, view: str, row_key: str, received_at: int) -> ChangeSearch:
        """The first change of a row at this time or later, as far as one look may reach.

        Raises `ChangesForgotten` if the log does not reach back that far.
        """

    async def prune_changes(self, older_than: int) -> int:
        """Forget the changes before this time; says how many. Rows as of earlier are lost too."""

    async def compact(self) -> tuple[int, int]:
        """Gives back the room of what was forgotten; says how many bytes there were, and are."""

    async def read_adjustments(
        self,
        adjustment_filter: AdjustmentFilter,
        *,
        after: AdjustmentCursor | None = None,
        limit: int,
    ) -> AdjustmentPage: ...

    async def read_errors(
        self, error_filter: ErrorFilter, *, after: ErrorCursor | None = None, limit: int
    ) -> ErrorPage: ...

    async def count_set_aside(self, after: int, upto: int) -> SetAside:
        """Those due to the events with sequences in `(after, upto]`."""

    async def swap(self, swap: Swap, parts: AsyncIterator[SwapPart]) -> bool:
        """Apply a swap in one transaction; False if the views have it already.

        Raises as `commit` does; nothing is written then.
        """

    async def old_views(self) -> list[OldView]:
        """What views were before swaps, and is not dropped yet, oldest first."""

    async def drop_old(self, views: Sequence[OldView]) -> None: ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Everything as of one moment. It holds a connection, so it is not for requests."""

    async def fingerprint(self, *, hidden: bool = True) -> str:
        """A hash over rows, changes and adjustments: the same for the same content in any store."""
