"""Two sets of views held against each other: those that are live, and the same made anew.

Both are read in the order of keys, side by side, so that neither has to be in memory. What is
compared is everything that follows from the ledger: rows with their hidden columns, the log of
changes as far as it is kept, adjustments and error rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tidemark.decimals import plain_decimal
from tidemark.ops.entries import side_by_side
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.encoding import json_values
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.timestamps import format_timestamp
from tidemark.views.snapshot import KeptView, Snapshot

ROWS: Final = "rows"
CHANGES: Final = "changes"
ADJUSTMENTS: Final = "adjustments"
ERRORS: Final = "errors"
SOURCE_TIMESTAMP: Final = "source_timestamp"
TELL_EVERY: Final = 1_000

Key: TypeAlias = tuple[Any, ...]
Content: TypeAlias = Mapping[str, Any]
Entry: TypeAlias = tuple[Key, Content]
Entries: TypeAlias = AsyncIterator[Entry]

_encode = msgspec.json.Encoder().encode


class Difference(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is not as the ledger has it.

    Without a `column` the whole entry is missing (`live` is None) or should not be there
    (`recomputed` is None).
    """

    part: str
    view: str | None
    key: list[Any]
    column: str | None
    live: Any
    recomputed: Any


class Compared(msgspec.Struct, rename="camel"):
    """One part of the views. The hashes are over all its content, in order."""

    part: str
    view: str | None
    live_count: int = 0
    recomputed_count: int = 0
    difference_count: int = 0
    live_hash: str = ""
    recomputed_hash: str = ""


class Verification(msgspec.Struct, rename="camel"):
    """What the comparison came to. `unchecked` are live views that are not configured any more."""

    frontier: Frontier
    compared: list[Compared] = msgspec.field(default_factory=list)
    differences: list[Difference] = msgspec.field(default_factory=list)
    unchecked: list[str] = msgspec.field(default_factory=list)

    @property
    def difference_count(self) -> int:
        return sum(part.difference_count for part in self.compared)


def require_same_definitions(
    live: Mapping[str, KeptView], recomputed: Mapping[str, KeptView]
) -> None:
    """Views of another definition would differ in everything, and say nothing."""
    for name, view in recomputed.items():
        present = live.get(name)
        if present is not None and _meaning(present) != _meaning(view):
            raise DefinitionChanged(
                f"view {name} was built with another definition than the configuration has now",
                hint="Verify with the configuration it was built with, or build the new one first.",
                field=name,
            )


async def compare(
    live: Snapshot,
    recomputed: Snapshot,
    *,
    limit: int,
    on_progress: Callable[[int], None],
) -> Verification:
    """Compares two snapshots at one frontier; keeps the first `limit` differences of each part."""
    assert live.frontier is not None
    result = Verification(live.frontier)
    result.unchecked = sorted(live.views.keys() - recomputed.views.keys())
    comparison = _Comparison(result, limit, on_progress)
    for name, view in sorted(recomputed.views.items()):
        present = live.views.get(name)
        await comparison.run(ROWS, name, _rows(live, present), _rows(recomputed, view))
        if present is not None and present.schema.logged and view.schema.logged:
            # Up to a swap the log is that of another definition.
            floor = max(present.log_floor, present.swapped_at)
            await comparison.run(
                CHANGES, name, _changes(live, name, floor), _changes(recomputed, name, floor)
            )
    gone = frozenset(result.unchecked)
    await comparison.run(ADJUSTMENTS, None, _adjustments(live, gone), _adjustments(recomputed))
    await comparison.run(ERRORS, None, _errors(live, gone), _errors(recomputed))
    return result


class _Comparison:
    """One part after the other."""

    def __init__(
        self, result: Verification, limit: int, on_progress: Callable[[int], None]
    ) -> None:
        self._result = result
        self._limit = limit
        self._on_progress = on_progress
        self._done = 0

    async def run(self, part: str, view: str | None, live: Entries, recomputed: Entries) -> None:
        compared = Compared(part, view)
        self._result.compared.append(compared)
        hashes = hashlib.sha256(), hashlib.sha256()
        async for ours, theirs in side_by_side(live, recomputed, _key):
            for entry, digest in zip((ours, theirs), hashes, strict=True):
                if entry is not None:
                    digest.update(_encode(entry))
            compared.live_count += ours is not None
            compared.recomputed_count += theirs is not None
            if ours != theirs:
                for difference in _differences(part, view, ours, theirs):
                    self._keep(compared, difference)
            self._done += 1
            if self._done % TELL_EVERY == 0:
                self._on_progress(self._done)
        compared.live_hash, compared.recomputed_hash = (digest.hexdigest() for digest in hashes)

    def _keep(self, compared: Compared, difference: Difference) -> None:
        compared.difference_count += 1
        if compared.difference_count <= self._limit:
            self._result.differences.append(difference)


def _differences(
    part: str, view: str | None, ours: Entry | None, theirs: Entry | None
) -> list[Difference]:
    if ours is None or theirs is None:
        [key] = [list(entry[0]) for entry in (ours, theirs) if entry is not None]
        live, recomputed = (None if e is None else dict(e[1]) for e in (ours, theirs))
        return [Difference(part, view, key, None, live, recomputed)]
    return [
        Difference(part, view, list(ours[0]), column, ours[1][column], theirs[1][column])
        for column in ours[1]
        if ours[1][column] != theirs[1][column]
    ]


async def _rows(snapshot: Snapshot, view: KeptView | None) -> Entries:
    if view is None:
        return
    columns = view.schema.columns
    async for row in snapshot.rows(view.schema.name):
        content: dict[str, Any] = {SOURCE_TIMESTAMP: format_timestamp(row.received_at)}
        for column, value in zip(columns, row.values, strict=True):
            # Canonical JSON is compared as the text it is.
            is_text = column.type == "json"
            content[column.name] = value if is_text else next(iter(json_values(column, [value])))
        yield (row.row_key,), content


async def _changes(snapshot: Snapshot, view: str, floor: int) -> Entries:
    async for change in snapshot.changes(view, floor):
        content = msgspec.structs.asdict(change)
        yield (content.pop("received_at"), content.pop("row_key")), content


async def _adjustments(snapshot: Snapshot, left_out: frozenset[str] = frozenset()) -> Entries:
    async for adjustment in snapshot.adjustments():
        if adjustment.view in left_out:
            continue
        content = msgspec.structs.asdict(adjustment)
        content["amount"] = plain_decimal(adjustment.amount)
        key = tuple(content.pop(name) for name in ("ingress_sequence", "view", "part"))
        yield key, content


async def _errors(snapshot: Snapshot, left_out: frozenset[str] = frozenset()) -> Entries:
    async for error in snapshot.errors():
        # A stage that belongs to a view is named after it: `meter api_calls`.
        if error.stage.partition(" ")[2] in left_out:
            continue
        content = msgspec.structs.asdict(error)
        yield (content.pop("ingress_sequence"), content.pop("stage")), content


def _key(entry: Entry) -> Key:
    return entry[0]


def _meaning(view: KeptView) -> tuple[object, ...]:
    schema = view.schema
    return schema.definition_hash, schema.columns, schema.key
