"""A store of views fed by hand, as a pipeline would: rows, changes, frontier, commit by commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.pipeline.output.batch import (
    DELETE,
    INSERT,
    UPDATE,
    Changes,
    Frontier,
    RowWrites,
    ViewBatch,
)
from tidemark.pipeline.output.encoding import encode_names, encode_rows, row_keys
from tidemark.pipeline.output.port import ViewsSink
from tidemark.pipeline.output.schema import Value, ViewSchema

Row = Mapping[str, Value]

FIRST_RECEIVED_AT = 1_762_776_000_000_000


class FedView:
    """One view. It remembers its rows, so that a change knows what was before it."""

    def __init__(self, schema: ViewSchema) -> None:
        self.schema = schema
        self.rows: dict[str, Row] = {}

    def key_of(self, row: Row) -> str:
        return row_keys(self.schema, {name: [row[name]] for name in self.schema.key})[0]

    def text_of(self, row: Row) -> str:
        columns = {column.name: [row[column.name]] for column in self.schema.visible}
        return encode_rows(self.schema, columns)[0]


class FedViews:
    """The views of one store; nobody else may feed it."""

    def __init__(self, store: ViewsSink, schemas: Sequence[ViewSchema]) -> None:
        self._store = store
        self._views = {schema.name: FedView(schema) for schema in schemas}
        self._frontier: Frontier | None = None

    async def declare(self) -> None:
        await self._store.declare([view.schema for view in self._views.values()])

    @property
    def received_at(self) -> int:
        """When the last commit was received."""
        return 0 if self._frontier is None else self._frontier.received_at

    async def commit(
        self,
        view: str,
        rows: Sequence[Row] = (),
        *,
        deleted: Sequence[Row] = (),
        received_at: int | None = None,
    ) -> int:
        """Rows as they are from now on; says when that was received."""
        return await self.commit_all([(view, rows, deleted)], received_at=received_at)

    async def commit_all(
        self,
        parts: Sequence[tuple[str, Sequence[Row], Sequence[Row]]],
        *,
        received_at: int | None = None,
    ) -> int:
        """The same for several views at once."""
        end = self._next(received_at)
        writes, changes = [], []
        for name, rows, deleted in parts:
            view = self._views[name]
            writes.append(_writes(view, rows, deleted, end.received_at))
            changes.append(_changes(view, rows, deleted, end.received_at))
        await self._store.commit(ViewBatch(self._frontier, end, rows=writes, changes=changes))
        self._frontier = end
        return end.received_at

    def _next(self, received_at: int | None) -> Frontier:
        before = self._frontier
        if before is None:
            return Frontier(1, received_at or FIRST_RECEIVED_AT, bytes(32), "fed")
        return Frontier(
            before.ingress_sequence + 1, received_at or before.received_at + 1_000, bytes(32), "fed"
        )


def _writes(
    view: FedView, rows: Sequence[Row], deleted: Sequence[Row], received_at: int
) -> RowWrites:
    return RowWrites(
        view.schema.name,
        [view.key_of(row) for row in rows],
        [received_at] * len(rows),
        [[row.get(column.name) for row in rows] for column in view.schema.columns],
        [view.key_of(row) for row in deleted],
    )


def _changes(
    view: FedView, rows: Sequence[Row], deleted: Sequence[Row], received_at: int
) -> Changes:
    keys: list[str] = []
    operations: list[str] = []
    old_texts: list[str | None] = []
    texts: list[str | None] = []
    changed: list[str | None] = []
    visible = [column.name for column in view.schema.visible]
    for row in rows:
        key = view.key_of(row)
        old = view.rows.get(key)
        view.rows[key] = row
        names = [name for name in visible if old is None or old[name] != row[name]]
        if not names:
            continue
        keys.append(key)
        operations.append(INSERT if old is None else UPDATE)
        old_texts.append(None if old is None else view.text_of(old))
        texts.append(view.text_of(row))
        changed.append(None if old is None else encode_names(names))
    for row in deleted:
        key = view.key_of(row)
        keys.append(key)
        operations.append(DELETE)
        old_texts.append(view.text_of(view.rows.pop(key)))
        texts.append(None)
        changed.append(None)
    return Changes(
        view.schema.name, [received_at] * len(keys), keys, operations, old_texts, texts, changed
    )
