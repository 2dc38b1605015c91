"""All windows of a pipeline between two commits of the views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.fold.parts import ENDS, WINDOW_FACTS, Gathered
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.time.stage import Step
from tidemark.pipeline.time.watermarks import ENDS_SCHEMA
from tidemark.pipeline.windows.definition import WindowDefinition
from tidemark.pipeline.windows.facts import no_facts
from tidemark.pipeline.windows.fold import LANE_MOVES_SCHEMA, WindowFold
from tidemark.pipeline.windows.refolded import Refolded

# How many facts, each in each of its windows, are folded at once.
PLACED_AT_ONCE: Final = 2_000_000

ReadWhole = Callable[[str], Iterable[ViewRow]]
"""All rows of a view, hidden columns too."""


class Anew(NamedTuple):
    """What was folded anew of a window, and the slots that hold all facts of it."""

    slots: frozenset[int]
    refolded: Refolded


class WindowKeeper:
    """After a failure, and when a batch was not committed, it is to be thrown away."""

    def __init__(
        self, windows: Sequence[WindowDefinition], unlogged: frozenset[str], read: ReadWhole
    ) -> None:
        """Goes on from what is committed."""
        self._folds = []
        for window in windows:
            fold = WindowFold(window, logged=window.name not in unlogged)
            members = read(window.members_view) if window.aggregate == "unique" else ()
            fold.load(read(window.open_view), members)
            self._folds.append(fold)

    def close(self) -> None:
        for fold in self._folds:
            fold.close()

    def begin(self, anew: Mapping[str, Anew]) -> None:
        """A batch begins, of which these windows were folded anew, by view."""
        for fold in self._folds:
            if fold.window.name in anew:
                fold.set_aside(anew[fold.window.name].refolded)

    def take(
        self, gathered: Gathered, commits: pa.Table, step: Step, anew: Mapping[str, Anew]
    ) -> None:
        """Take in the commits of a step of the time stage."""
        for fold in self._folds:
            window = fold.window
            facts = gathered.take(window.name, WINDOW_FACTS)
            span = _Span(step.start, step.end)
            facts = no_facts(window) if facts is None else span.of(facts)
            if window.name in anew:
                slots = pa.array(anew[window.name].slots, pa.int64())
                is_apart = pc.is_in(facts.column("slot"), value_set=slots)
                facts = facts.filter(pc.invert(is_apart))
            ends = gathered.take("", ENDS)
            ends = _ends(window, ENDS_SCHEMA.empty_table() if ends is None else span.of(ends))
            moves = _moves(window, span.of(commits), step)
            for piece in _pieces(window, facts, step):
                fold.take(piece.of(facts), piece.of(moves), piece.of(ends))

    def end(self, gathered: Gathered, anew: Mapping[str, Anew]) -> None:
        """A batch has ended; what it changes is added to what was gathered."""
        for fold in self._folds:
            if fold.window.name in anew:
                fold.put_back(anew[fold.window.name].refolded)
            for part in fold.parts():
                gathered.add(part)


def _moves(window: WindowDefinition, commits: pa.Table, step: Step) -> pa.Table:
    if window.time_column is not None:
        own = step.moves.filter(pc.equal(step.moves.column("stream"), window.stream))
        return own.select(LANE_MOVES_SCHEMA.names).cast(LANE_MOVES_SCHEMA)
    # All tenants go by the commits of all streams.
    times = commits.column("received_at").to_pylist()
    columns = [[None] * len(times), times, [step.start, *times[:-1]], times]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, LANE_MOVES_SCHEMA, strict=True)],
        schema=LANE_MOVES_SCHEMA,
    )


def _ends(window: WindowDefinition, ends: pa.Table) -> pa.Table:
    own = ends.filter(pc.equal(ends.column("stream"), window.stream))
    own = own.select(["tenant_id", "received_at"]).group_by(["tenant_id", "received_at"])
    return own.aggregate([])


def _pieces(window: WindowDefinition, facts: pa.Table, step: Step) -> list[_Span]:
    """The commits of a step, cut where what is held in memory at once would be too much."""
    overlap = -(-window.size_us // window.every_us)
    at_once = max(1, PLACED_AT_ONCE // overlap)
    if facts.num_rows <= at_once:
        return [_Span(step.start, step.end)]
    counts = facts.group_by("received_at").aggregate([("received_at", "count")])
    pieces, start, held, last = [], step.start, 0, step.start
    for commit in counts.sort_by("received_at").to_pylist():
        count = commit["received_at_count"]
        if held and held + count > at_once:
            pieces.append(_Span(start, last or 0))
            start, held = last, 0
        held, last = held + count, commit["received_at"]
    return [*pieces, _Span(start, step.end)]


class _Span(NamedTuple):
    """Commits after `start` and up to `end`."""

    start: int | None
    end: int

    def of(self, rows: pa.Table) -> pa.Table:
        times = rows.column("received_at")
        wanted = pc.less_equal(times, self.end)
        if self.start is not None:
            wanted = pc.and_(wanted, pc.greater(times, self.start))
        return rows.filter(wanted)
