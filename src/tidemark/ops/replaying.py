"""Views that were built beside the live ones: how they differ, and what it takes to swap them.

Both are read in the order of keys, side by side, as of one moment each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidemark.ops.entries import side_by_side
from tidemark.pipeline.definition_hash import INTERNAL_MARK
from tidemark.pipeline.output.batch import (
    DELETE,
    INSERT,
    UPDATE,
    Adjustment,
    Changes,
    ErrorRow,
    Frontier,
    RowWrites,
)
from tidemark.pipeline.output.encoding import encode_names, encode_row, json_values
from tidemark.pipeline.output.errors import FrontierGap
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column, Value, ViewSchema
from tidemark.views.snapshot import ROWS_AT_ONCE, KeptView, LoggedChange, Snapshot
from tidemark.views.swapping import Rebuilt, Swap, SwapPart

TENANT: Final = "tenant_id"
TELL_EVERY: Final = 1_000


class Tally(msgspec.Struct, rename="camel"):
    """Rows that are new, that are gone, and that say something else."""

    added: int = 0
    removed: int = 0
    changed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.removed + self.changed

    def count(self, live: object, replayed: object) -> None:
        if live is None:
            self.added += 1
        elif replayed is None:
            self.removed += 1
        else:
            self.changed += 1


class RowDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A row that differs. Of one that is in both only the columns that differ."""

    view: str
    key: str
    live: dict[str, Any] | None
    replayed: dict[str, Any] | None


class ViewDifference(msgspec.Struct, rename="camel"):
    """One view. `definition` says how that of the replay stands to the live one."""

    view: str
    definition: str
    live_rows: int = 0
    replayed_rows: int = 0
    rows: Tally = msgspec.field(default_factory=Tally)
    tenants: dict[str, Tally] = msgspec.field(default_factory=dict)
    added_columns: list[str] = msgspec.field(default_factory=list)
    removed_columns: list[str] = msgspec.field(default_factory=list)


class Differences(msgspec.Struct, rename="camel"):
    """All views of a replay beside the live ones. `left` are live and not in the replay."""

    frontier: Frontier
    views: list[ViewDifference] = msgspec.field(default_factory=list)
    examples: list[RowDifference] = msgspec.field(default_factory=list)
    left: list[str] = msgspec.field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(view.rows.total for view in self.views)

    @property
    def is_worth_a_swap(self) -> bool:
        """Whether anything is not as it is in the live views."""
        return bool(self.count) or any(view.definition != SAME for view in self.views)


NEW: Final = "new"
CHANGED: Final = "changed"
SAME: Final = "same"


async def differences(
    live: Snapshot, replayed: Snapshot, *, limit: int, on_progress: Callable[[int], None]
) -> Differences:
    """What readers would see otherwise; keeps the first `limit` rows of each view that differ."""
    assert live.frontier is not None
    found = Differences(live.frontier)
    found.left = [name for name in _shown(live) if name not in replayed.views]
    done = 0
    for name in _shown(replayed):
        view = _new_difference(live.views.get(name), replayed.views[name])
        found.views.append(view)
        of_both = _common(live.views.get(name), replayed.views[name])
        kept = 0
        async for ours, theirs in _rows_side_by_side(live, replayed, name):
            done += 1
            if done % TELL_EVERY == 0:
                on_progress(done)
            view.live_rows += ours is not None
            view.replayed_rows += theirs is not None
            shown = [
                None if row is None else _values(columns, row)
                for columns, row in zip(of_both, (ours, theirs), strict=True)
            ]
            if shown[0] == shown[1]:
                continue
            view.rows.count(ours, theirs)
            schema = replayed.views[name].schema if theirs is not None else live.views[name].schema
            tenant = _tenant(schema, theirs if theirs is not None else ours)
            view.tenants.setdefault(tenant, Tally()).count(ours, theirs)
            if kept < limit:
                kept += 1
                key = (theirs or ours or _NO_ROW).row_key
                found.examples.append(_example(name, key, *shown))
    on_progress(done)
    return found


def plan_swap(
    name: str,
    live: Snapshot,
    replayed: Snapshot,
    found: Differences,
    begun: Mapping[str, str] | None = None,
) -> Swap:
    """The swap that makes the live views what the replayed ones are.

    Rebuilt is what has another definition, and what is not as the same definition has it: its
    differences are changes at the swap too. `begun` are the views of one that was begun, with their
    definitions. The replay may have gone on since, so that more is different by now; if it was
    built as it was then, the same views are rebuilt.
    """
    assert live.frontier is not None
    others = {n for n, v in replayed.views.items() if _definition(live.views.get(n), v) != SAME}
    if begun is not None and others <= begun.keys() and _has(replayed, begun):
        wanted = set(begun)
    else:
        differing = {view.view for view in found.views if view.rows.total}
        wanted = others | {
            view for view in replayed.views if view.partition(INTERNAL_MARK)[0] in differing
        }
    rebuilt = [
        Rebuilt(
            view.schema,
            keeps_log=_keeps_log(live.views.get(view_name), view),
            keeps_old=INTERNAL_MARK not in view_name,
        )
        for view_name, view in replayed.views.items()
        if view_name in wanted
    ]
    return Swap(name, live.frontier, live.frontier, rebuilt, {})


async def swap_parts(swap: Swap, live: Snapshot, replayed: Snapshot) -> AsyncIterator[SwapPart]:
    """What to write for it. All of a view that is rebuilt, of others what differs.

    Raises `FrontierGap` unless the replay is as far as the swap goes: what it had not folded yet
    would never be.
    """
    if replayed.frontier != swap.end:
        raise FrontierGap(
            f"the replay {swap.name} has not come to sequence {swap.end.ingress_sequence}",
            hint="Nothing was written. Ask for the swap again: it goes on where it was.",
        )
    rebuilt = {view.schema.name: view for view in swap.rebuilt}
    for name, view in replayed.views.items():
        again = rebuilt.get(name)
        if again is not None:
            async for part in _whole(swap, again, live, replayed):
                yield part
        else:
            async for part in _differing_rows(live, replayed, name):
                yield part
            if view.schema.logged:
                async for part in _logged(replayed, name, swap.start.received_at):
                    yield part
    gone = frozenset(live.views.keys() - replayed.views.keys())
    async for part in _lists(live, replayed, gone):
        yield part


async def _whole(
    swap: Swap, rebuilt: Rebuilt, live: Snapshot, replayed: Snapshot
) -> AsyncIterator[SwapPart]:
    schema, at = rebuilt.schema, swap.end.received_at
    writes, changes = _Writes(rebuilt.fresh), _Log(schema)
    async for ours, theirs in _rows_side_by_side(live, replayed, schema.name):
        if theirs is not None:
            writes.add(theirs)
        if rebuilt.keeps_log:
            before = _row_values(live.views[schema.name].schema, ours)
            after = _row_values(schema, theirs)
            if before != after:
                changes.add(_change(schema, at, (theirs or ours or _NO_ROW).row_key, before, after))
        if writes.is_full or changes.is_full:
            yield SwapPart(fresh=writes.take(), changes=changes.take())
    yield SwapPart(fresh=writes.take(), changes=changes.take())


async def _differing_rows(live: Snapshot, replayed: Snapshot, name: str) -> AsyncIterator[SwapPart]:
    writes = _Writes(replayed.views[name].schema)
    async for ours, theirs in _rows_side_by_side(live, replayed, name):
        if theirs is None:
            assert ours is not None
            writes.deleted.append(ours.row_key)
        elif ours != theirs:
            writes.add(theirs)
        if writes.is_full:
            yield SwapPart(rows=writes.take())
    yield SwapPart(rows=writes.take())


async def _logged(replayed: Snapshot, name: str, after: int) -> AsyncIterator[SwapPart]:
    changes = _Log(replayed.views[name].schema)
    async for change in replayed.changes(name, after):
        changes.add(change)
        if changes.is_full:
            yield SwapPart(changes=changes.take())
    yield SwapPart(changes=changes.take())


async def _lists(
    live: Snapshot, replayed: Snapshot, gone: frozenset[str]
) -> AsyncIterator[SwapPart]:
    """Adjustments and errors, but for those of views that are not replayed."""
    adjustments: list[Adjustment] = []
    gone_adjustments: list[tuple[int, str, int]] = []
    async for ours, theirs in side_by_side(
        live.adjustments(), replayed.adjustments(), _adjustment_key
    ):
        if ours != theirs:
            if ours is not None and ours.view not in gone:
                gone_adjustments.append(_adjustment_key(ours))
            if theirs is not None:
                adjustments.append(theirs)
        if len(adjustments) + len(gone_adjustments) >= ROWS_AT_ONCE:
            yield SwapPart(adjustments=adjustments, gone_adjustments=gone_adjustments)
            adjustments, gone_adjustments = [], []
    errors: list[ErrorRow] = []
    gone_errors: list[tuple[int, str]] = []
    async for before, after in side_by_side(live.errors(), replayed.errors(), _error_key):
        if before != after:
            # A stage that belongs to a view is named after it: `meter api_calls`.
            if before is not None and before.stage.partition(" ")[2] not in gone:
                gone_errors.append(_error_key(before))
            if after is not None:
                errors.append(after)
        if len(errors) + len(gone_errors) >= ROWS_AT_ONCE:
            yield SwapPart(errors=errors, gone_errors=gone_errors)
            errors, gone_errors = [], []
    yield SwapPart(
        adjustments=adjustments,
        gone_adjustments=gone_adjustments,
        errors=errors,
        gone_errors=gone_errors,
    )


class _Writes:
    """Rows of one view, gathered until they are a page."""

    def __init__(self, schema: ViewSchema) -> None:
        self._schema = schema
        self._rows: list[ViewRow] = []
        self.deleted: list[str] = []

    @property
    def is_full(self) -> bool:
        return len(self._rows) + len(self.deleted) >= ROWS_AT_ONCE

    def add(self, row: ViewRow) -> None:
        self._rows.append(row)

    def take(self) -> RowWrites | None:
        rows, deleted = self._rows, self.deleted
        self._rows, self.deleted = [], []
        if not rows and not deleted:
            return None
        columns = list(zip(*(row.values for row in rows), strict=True))
        return RowWrites(
            self._schema.name,
            [row.row_key for row in rows],
            [row.received_at for row in rows],
            columns or [()] * len(self._schema.columns),
            deleted,
        )


class _Log:
    """Changes of one view, gathered until they are a page."""

    def __init__(self, schema: ViewSchema) -> None:
        self._view = schema.name
        self._changes: list[LoggedChange] = []

    @property
    def is_full(self) -> bool:
        return len(self._changes) >= ROWS_AT_ONCE

    def add(self, change: LoggedChange) -> None:
        self._changes.append(change)

    def take(self) -> Changes | None:
        changes, self._changes = self._changes, []
        if not changes:
            return None
        lines = zip(*map(msgspec.structs.astuple, changes), strict=True)
        return Changes(self._view, *(list(column) for column in lines))


_NO_ROW: Final = ViewRow("", 0, ())


def _rows_side_by_side(
    live: Snapshot, replayed: Snapshot, name: str
) -> AsyncIterator[tuple[ViewRow | None, ViewRow | None]]:
    ours = live.rows(name) if name in live.views else _nothing()
    return side_by_side(ours, replayed.rows(name), _row_key)


async def _nothing() -> AsyncIterator[ViewRow]:
    for _ in ():
        yield _NO_ROW


def _row_key(row: ViewRow) -> str:
    return row.row_key


def _adjustment_key(adjustment: Adjustment) -> tuple[int, str, int]:
    return adjustment.ingress_sequence, adjustment.view, adjustment.part


def _error_key(error: ErrorRow) -> tuple[int, str]:
    return error.ingress_sequence, error.stage


def _shown(snapshot: Snapshot) -> list[str]:
    return [name for name in snapshot.views if INTERNAL_MARK not in name]


def _definition(live: KeptView | None, replayed: KeptView) -> str:
    if live is None:
        return NEW
    ours, theirs = live.schema, replayed.schema
    same = (
        ours.definition_hash == theirs.definition_hash
        and ours.columns == theirs.columns
        and ours.key == theirs.key
        and ours.logged == theirs.logged
    )
    return SAME if same else CHANGED


def _has(replayed: Snapshot, definitions: Mapping[str, str]) -> bool:
    views = replayed.views
    return all(
        name in views and views[name].schema.definition_hash == definition
        for name, definition in definitions.items()
    )


def _keeps_log(live: KeptView | None, replayed: KeptView) -> bool:
    """Whether a change from one to the other can be told in one line of a log."""
    if live is None or not (live.schema.logged and replayed.schema.logged):
        return False
    return live.schema.visible == replayed.schema.visible and live.schema.key == replayed.schema.key


def _new_difference(live: KeptView | None, replayed: KeptView) -> ViewDifference:
    found = ViewDifference(replayed.schema.name, _definition(live, replayed))
    if live is not None:
        before, after = live.schema.visible, replayed.schema.visible
        found.added_columns = [column.name for column in after if column not in before]
        found.removed_columns = [column.name for column in before if column not in after]
    return found


def _common(
    live: KeptView | None, replayed: KeptView
) -> tuple[list[tuple[int, Column]], list[tuple[int, Column]]]:
    """The visible columns that both have, with their places in the rows of each."""
    if live is None:
        own = _places(replayed.schema, replayed.schema.visible)
        return own, own
    both = [column for column in replayed.schema.visible if column in live.schema.visible]
    return _places(live.schema, both), _places(replayed.schema, both)


def _places(schema: ViewSchema, columns: Sequence[Column]) -> list[tuple[int, Column]]:
    return [(schema.columns.index(column), column) for column in columns]


def _values(columns: list[tuple[int, Column]], row: ViewRow) -> dict[str, Any]:
    """As JSON has them; canonical JSON stands as text."""
    return {
        column.name: row.values[place]
        if column.type == "json"
        else next(iter(json_values(column, [row.values[place]])))
        for place, column in columns
    }


def _example(
    view: str, key: str, live: dict[str, Any] | None, replayed: dict[str, Any] | None
) -> RowDifference:
    if live is None or replayed is None:
        return RowDifference(view, key, live, replayed)
    names = [name for name in live if live[name] != replayed[name]]
    before, after = ({name: row[name] for name in names} for row in (live, replayed))
    return RowDifference(view, key, before, after)


def _tenant(schema: ViewSchema, row: ViewRow | None) -> str:
    assert row is not None
    for column, value in zip(schema.columns, row.values, strict=True):
        if column.name == TENANT:
            return str(value)
    return ""


def _row_values(schema: ViewSchema, row: ViewRow | None) -> dict[str, Value] | None:
    if row is None:
        return None
    names = (column.name for column in schema.columns)
    visible = {column.name for column in schema.visible}
    return {n: v for n, v in zip(names, row.values, strict=True) if n in visible}


def _change(
    schema: ViewSchema,
    at: int,
    key: str,
    before: dict[str, Value] | None,
    after: dict[str, Value] | None,
) -> LoggedChange:
    old, new = (None if row is None else encode_row(schema, row) for row in (before, after))
    if before is None:
        return LoggedChange(at, key, INSERT, old, new, None)
    if after is None:
        return LoggedChange(at, key, DELETE, old, new, None)
    names = encode_names(name for name in before if before[name] != after[name])
    return LoggedChange(at, key, UPDATE, old, new, names)
