"""Which ranges hold a value, found by sorted bounds.

Whatever is kept here is added and removed in any order, also in the thousands between two lookups.
A lookup costs by what it finds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from tidemark.live.engine.conditions import Between, Bound

Kept = TypeVar("Kept")

# A bound, and a number that tells equal bounds apart.
_Place: TypeAlias = tuple[Any, int, int]

_FIRST: Final = -1
# So many are put in place one by one; more are sorted together.
_FEW: Final = 64


class Ranges(Generic[Kept]):
    """Things by the range of values that they are for."""

    def __init__(self) -> None:
        self._from = _Bounds[Kept]()
        self._to = _Bounds[Kept]()
        self._both = _Intervals[Kept]()
        self._homes: dict[Kept, tuple[Between, int]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, kept: Kept, between: Between) -> None:
        self._added += 1
        self._homes[kept] = between, self._added
        lower, upper = between.lower, between.upper
        if lower is not None and upper is not None:
            self._both.add(self._added, lower, upper, kept)
        elif lower is not None:
            self._from.add((*lower, self._added), kept)
        elif upper is not None:
            self._to.add((*upper, self._added), kept)

    def remove(self, kept: Kept) -> None:
        between, number = self._homes.pop(kept)
        lower, upper = between.lower, between.upper
        if lower is not None and upper is not None:
            self._both.remove(number)
        elif lower is not None:
            self._from.remove((*lower, number))
        elif upper is not None:
            self._to.remove((*upper, number))

    def holding(self, value: Any) -> list[Kept]:
        """What is kept for a range with this value in it; none has null in it."""
        if value is None:
            return []
        found = self._from.up_to(value)
        found += self._to.beyond(value)
        self._both.collect(value, found)
        return found


class _Bounds(Generic[Kept]):
    """Things in the order of one bound each."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._kept: list[Kept] = []
        self._waiting: dict[_Place, Kept] = {}

    def add(self, place: _Place, kept: Kept) -> None:
        self._waiting[place] = kept

    def remove(self, place: _Place) -> None:
        if self._waiting.pop(place, None) is None:
            at = bisect_left(self._places, place)
            del self._places[at], self._kept[at]

    def up_to(self, value: Any) -> list[Kept]:
        return self._kept[: self._split(value)]

    def beyond(self, value: Any) -> list[Kept]:
        return self._kept[self._split(value) :]

    def _split(self, value: Any) -> int:
        """The first whose bound comes after the value."""
        if self._waiting:
            self._settle()
        # The value itself stands between its two bounds.
        return bisect_left(self._places, (value, 1, _FIRST))

    def _settle(self) -> None:
        if len(self._waiting) <= _FEW:
            for place, kept in self._waiting.items():
                at = bisect_left(self._places, place)
                self._places.insert(at, place)
                self._kept.insert(at, kept)
        else:
            known = dict(zip(self._places, self._kept, strict=True)) | self._waiting
            self._places = sorted(known)
            self._kept = [known[place] for place in self._places]
        self._waiting.clear()


_Interval: TypeAlias = tuple[Bound, Bound, int, Kept]


class _Intervals(Generic[Kept]):
    """Things between two bounds each: a few as they came, the others in trees.

    A tree does not change. New ones join with those that are no larger, so each thing is sorted
    about as often as their number can be doubled, and there are as few trees as that.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Interval[Kept]] = {}
        self._trees: list[_Tree[Kept]] = []
        self._removed: set[int] = set()
        self._in_trees = 0

    def add(self, number: int, lower: Bound, upper: Bound, kept: Kept) -> None:
        self._waiting[number] = lower, upper, number, kept

    def remove(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            return
        self._removed.add(number)
        if 2 * len(self._removed) > self._in_trees:
            self._rebuild(self._in_trees)

    def collect(self, value: Any, found: list[Kept]) -> None:
        if len(self._waiting) > _FEW:
            self._rebuild(len(self._waiting))
        # Just before the value lies what may be below it, just after it what may be above it.
        below, above = (value, 0), (value, 1)
        for lower, upper, _, kept in self._waiting.values():
            if lower <= below and upper >= above:
                found.append(kept)
        for tree in self._trees:
            for interval in tree.around(below, above):
                if interval[2] not in self._removed:
                    found.append(interval[3])

    def _rebuild(self, size: int) -> None:
        """One tree of what waits and of the trees that are not larger than that."""
        intervals = list(self._waiting.values())
        self._waiting.clear()
        while self._trees and len(self._trees[-1].intervals) <= max(size, len(intervals)):
            for interval in self._trees.pop().intervals:
                if interval[2] in self._removed:
                    self._removed.discard(interval[2])
                else:
                    intervals.append(interval)
        if intervals:
            self._trees.append(_Tree(intervals))
        self._in_trees = sum(len(tree.intervals) for tree in self._trees)


# So many intervals in a row are compared one by one.
_LEAF: Final = 8


class _Tree(Generic[Kept]):
    """Intervals in the order of their lower bounds, with the highest upper bound of each part."""

    def __init__(self, intervals: Iterable[_Interval[Kept]]) -> None:
        self.intervals = sorted(intervals, key=lambda interval: (interval[0], interval[2]))
        self._lowers = [interval[0] for interval in self.intervals]
        self._uppers = [interval[1] for interval in self.intervals]
        self._highest = _highest(self._uppers)

    def around(self, below: Bound, above: Bound) -> list[_Interval[Kept]]:
        """Those that begin at one bound or before it and end at another or after it."""
        uppers, intervals = self._uppers, self.intervals
        last = bisect_right(self._lowers, below)
        found: list[_Interval[Kept]] = []
        # The parts to look at, all of one size; each has two of half that size.
        parts = [0] if last else []
        size = _LEAF << len(self._highest)
        for highest in reversed(self._highest):
            size >>= 1
            begun = -(-last // size)
            parts = [at for at in parts if at < begun and highest[at] >= above]
            if size > _LEAF:
                parts = [half for at in parts for half in (2 * at, 2 * at + 1)]
        for at in parts:
            for place in range(at * _LEAF, min(at * _LEAF + _LEAF, last)):
                if uppers[place] >= above:
                    found.append(intervals[place])
        return found


def _highest(uppers: Sequence[Bound]) -> list[list[Bound]]:
    """The highest bound of each leaf, then of each two leaves and so on up to that of all."""
    levels = [[max(uppers[at : at + _LEAF]) for at in range(0, len(uppers), _LEAF)]]
    while len(levels[-1]) > 1:
        level = levels[-1]
        levels.append([max(level[at : at + 2]) for at in range(0, len(level), 2)])
    return levels
