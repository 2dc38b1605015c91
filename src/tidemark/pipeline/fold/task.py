"""The rollup as what a Spark task does with its partition of facts.

A task is handed all facts of its slots, reads the rows they touch from the views store, folds, and
hands back a few rows: for each view and kind a table, as bytes. The driver puts those together and
commits them. Which fold runs is decided here, and nothing but time depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import MeterDefinition, TableDefinition
from tidemark.pipeline.fold.meters_corrected import fold_corrected
from tidemark.pipeline.fold.meters_plain import fold_plain
from tidemark.pipeline.fold.meters_vectorised import fold_vectorised
from tidemark.pipeline.fold.parts import (
    COMMITS,
    CORRECTED,
    ENDS,
    ERRORS,
    ERRORS_SCHEMA,
    TUPLES,
    WINDOW_FACTS,
    Part,
    to_ipc,
)
from tidemark.pipeline.fold.tables import fold_table
from tidemark.pipeline.fold.tables_corrected import fold_table_corrected
from tidemark.pipeline.fold.tables_plain import fold_table_plain
from tidemark.pipeline.output.port import ViewRow, ViewsSink
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.pipeline.source.failures import brought_home
from tidemark.pipeline.time.reorder import TUPLES_SCHEMA
from tidemark.pipeline.time.watermarks import ENDS_SCHEMA
from tidemark.pipeline.windows.definition import WindowDefinition
from tidemark.pipeline.windows.facts import FACTS_FIELDS, GROUPS

OpenViews = Callable[[], Awaitable[ViewsSink]]
"""Opens the views store in the process of a task; it must pickle."""

OUTPUT: Final = "view string, kind string, payload binary"
_OUTPUT_SCHEMA: Final = pa.schema(
    [("view", pa.string()), ("kind", pa.string()), ("payload", pa.binary())]
)
_COMMIT_COLUMNS: Final = (
    *("received_at", "previous_received_at", "first_sequence", "last_sequence"),
    *("chain", "previous_chain"),
)
# With fewer facts than this, planning a query takes longer than the fold itself.
PLAIN_LIMIT: Final = 2_000


class FoldedView(msgspec.Struct, frozen=True):
    """A view as the tasks need it; `place` is a table's number among the tables, or a window's
    after all of them."""

    definition: MeterDefinition | TableDefinition | WindowDefinition
    schema: ViewSchema
    logged: bool
    place: int = 0

    @property
    def stage(self) -> str:
        """How errors name it."""
        kinds = {MeterDefinition: "meter", TableDefinition: "table", WindowDefinition: "window"}
        return f"{kinds[type(self.definition)]} {self.definition.name}"


class FoldTask:
    """Folds plain facts. What was corrected is only reported, for `RefoldTask` to do."""

    def __init__(
        self, views: Sequence[FoldedView], open_views: OpenViews, plain_limit: int = PLAIN_LIMIT
    ) -> None:
        self._views = tuple(views)
        self._open_views = open_views
        self._plain_limit = plain_limit

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with brought_home():
            table = _gathered(batches)
            if table is not None:
                yield _packed(self._parts(table, _reader(self._open_views)))

    def _parts(self, table: pa.Table, read: _Reader) -> Iterator[Part]:
        commits = _of_kind(table, facts.COMMIT)
        if commits.num_rows:
            yield Part("", COMMITS, commits.select(_COMMIT_COLUMNS))
        yield from _for_time(table)
        for number, own in _by_view(table):
            view = self._views[number]
            yield _errors(view.definition.name, view.stage, _of_kind(own, facts.ERROR))
            corrections = own.filter(pc.is_valid(own.column("target_key")))
            if corrections.num_rows:
                yield Part(view.definition.name, CORRECTED, corrections)
            own = own.filter(pc.not_equal(own.column("kind"), facts.ERROR))
            if not isinstance(view.definition, MeterDefinition):
                own = own.filter(pc.equal(own.column("kind"), facts.FACT))
            else:
                # Owners do not share slots with others but by a collision of hashes, after which
                # one is folded anew without need.
                corrected = pc.unique(corrections.column("slot"))
                is_corrected = pc.is_in(own.column("slot"), value_set=corrected)
                refolded = own.filter(is_corrected)
                if refolded.num_rows > corrections.num_rows:
                    yield Part(view.definition.name, CORRECTED, _one_each(refolded))
                own = own.filter(pc.invert(is_corrected))
            if isinstance(view.definition, WindowDefinition):
                yield Part(view.definition.name, WINDOW_FACTS, _window_facts(own, view.place))
            elif own.num_rows:
                yield from self._fold(view, own, read)

    def _fold(self, view: FoldedView, own: pa.Table, read: _Reader) -> list[Part]:
        definition = view.definition
        if isinstance(definition, TableDefinition):
            is_small = own.num_rows < self._plain_limit
            fold_rows = fold_table_plain if is_small else fold_table
            return fold_rows(
                definition, view.schema, view.place, own, read.rows, logged=view.logged
            )
        assert isinstance(definition, MeterDefinition)
        fold = fold_plain if own.num_rows < self._plain_limit else fold_vectorised
        return fold(definition, own, read.rows, logged=view.logged)


class RefoldTask:
    """Folds anew, from all of their facts, what was corrected after `start`."""

    def __init__(
        self,
        views: Sequence[FoldedView],
        open_views: OpenViews,
        start: int,
        touched: frozenset[int],
    ) -> None:
        self._views = tuple(views)
        self._open_views = open_views
        self._start = start
        self._touched = touched

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with brought_home():
            table = _gathered(batches)
            if table is not None:
                yield _packed(self._parts(table, _reader(self._open_views)))

    def _parts(self, table: pa.Table, read: _Reader) -> Iterator[Part]:
        for number, own in _by_view(table):
            view = self._views[number]
            definition = view.definition
            if isinstance(definition, TableDefinition):
                yield from fold_table_corrected(
                    definition,
                    view.schema,
                    view.place,
                    own,
                    self._touched,
                    self._start,
                    read.rows,
                    logged=view.logged,
                )
            elif isinstance(definition, MeterDefinition):
                yield from fold_corrected(
                    definition, own, self._start, read.rows, logged=view.logged
                )


class _Reader:
    """Reads the views store from code that does not wait."""

    def __init__(self, open_views: OpenViews) -> None:
        self._loop = asyncio.new_event_loop()
        self._views: ViewsSink = self._loop.run_until_complete(_awaited(open_views))

    def rows(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        if not row_keys:
            return []
        return self._loop.run_until_complete(self._views.read_state(view, row_keys))


# Spark keeps its worker processes, and so a connection serves many tasks.
_readers: dict[Any, _Reader] = {}


def _reader(open_views: OpenViews) -> _Reader:
    name = repr(open_views)
    if name not in _readers:
        _readers[name] = _Reader(open_views)
    return _readers[name]


async def _awaited(open_views: OpenViews) -> ViewsSink:
    return await open_views()


def _gathered(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found) if found else None


def _by_view(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    for number in sorted(pc.unique(table.column("view")).to_pylist()):
        if number != facts.NO_VIEW:
            yield number, table.filter(pc.equal(table.column("view"), number))


def _for_time(table: pa.Table) -> Iterator[Part]:
    """What the time stage gets, in the shapes it wants."""
    for kind, part, schema in (
        (facts.TUPLE, TUPLES, TUPLES_SCHEMA),
        (facts.END, ENDS, ENDS_SCHEMA),
    ):
        found = _of_kind(table, kind)
        if found.num_rows:
            source = {"stream": "time_stream", "data": "payload"}
            columns = {name: found.column(source.get(name, name)) for name in schema.names}
            yield Part("", part, pa.table(columns).cast(schema))
    timeless = table.filter(pc.equal(table.column("view"), facts.NO_VIEW))
    yield _errors("", "time", _of_kind(timeless, facts.ERROR))


def _window_facts(table: pa.Table, place: int) -> pa.Table:
    columns = {name: table.column(name).cast(kind) for name, kind in FACTS_FIELDS.items()}
    columns |= {"slot": table.column("slot"), GROUPS: table.column(facts.table_column(place))}
    return pa.table(columns)


def _of_kind(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table.column("kind"), kind))


def _one_each(table: pa.Table) -> pa.Table:
    """One fact of each owner."""
    seen: set[tuple[Any, Any]] = set()
    places = []
    names = (table.column("tenant_id").to_pylist(), table.column("customer_ref").to_pylist())
    for place, owner in enumerate(zip(*names, strict=True)):
        if owner not in seen:
            seen.add(owner)
            places.append(place)
    return table.take(places)


def _errors(view: str, stage: str, errors: pa.Table) -> Part:
    columns = {
        "ingress_sequence": errors.column("ingress_sequence"),
        "stage": pa.repeat(stage, errors.num_rows),
        "received_at": errors.column("received_at"),
        "code": errors.column("error_code"),
        "message": errors.column("error_message"),
        "tenant_id": errors.column("tenant_id"),
        "stream": errors.column("stream"),
        "idempotency_key": errors.column("idempotency_key"),
    }
    return Part(view, ERRORS, pa.table(columns).cast(ERRORS_SCHEMA))


def _packed(parts: Iterator[Part]) -> pa.RecordBatch:
    kept = [part for part in parts if part.table.num_rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([part.view for part in kept], pa.string()),
            pa.array([part.kind for part in kept], pa.string()),
            pa.array([to_ipc(part.table) for part in kept], pa.binary()),
        ],
        schema=_OUTPUT_SCHEMA,
    )
