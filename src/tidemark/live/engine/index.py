"""Finds the filters that a change can matter to, without looking at the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from tidemark.live.engine.changes import Row
from tidemark.live.engine.conditions import Among, Lookup, lookups_of
from tidemark.live.engine.ranges import Ranges
from tidemark.live.filters.tree import Node
from tidemark.pipeline.output.schema import Value, ViewSchema

Predicate: TypeAlias = Callable[[Row], bool]

# What of a range is compared with: nothing says how many filters a value will find there, but a
# column with a value that so many ask for is no better.
_RANGE_COST: Final = 64


class Indexed:
    """A filter as the index knows it; whoever uses the index makes a class of it.

    A change of none of the columns in `watched` is of no interest, whether the row is visible or
    not.
    """

    __slots__ = ("columns", "exact", "lookup", "matches", "node", "watched")

    def __init__(self, node: Node, columns: frozenset[str], matches: Predicate) -> None:
        self.node = node
        self.columns = columns
        self.matches = matches
        self.watched = columns
        # Set by the index: where it is found, and whether being found there is all it takes.
        self.lookup: Lookup | None = None
        self.exact = False


Found = TypeVar("Found", bound=Indexed)


class Affected(Generic[Found]):
    """For which filters a row became visible, stays so, or no longer is."""

    __slots__ = ("entered", "evaluations", "left", "skipped", "stayed")

    def __init__(self) -> None:
        self.entered: list[Found] = []
        self.stayed: list[Found] = []
        self.left: list[Found] = []
        # How often a filter was evaluated, and how often not, as no column of it had changed.
        self.evaluations = 0
        self.skipped = 0


class PredicateIndex(Generic[Found]):
    """The filters of one view.

    Of the conditions that must hold one is chosen to find the filter by: where the fewest others
    are. Filters without such a condition are looked at with every change.
    """

    def __init__(self, schema: ViewSchema) -> None:
        self._schema = schema
        self._positions = {column.name: at for at, column in enumerate(schema.visible)}
        self._columns: dict[str, _ColumnIndex[Found]] = {}
        self._others: dict[Found, None] = {}
        self._used: Counter[str] = Counter()

    @property
    def columns(self) -> Collection[str]:
        """The columns that some filter looks at."""
        return self._used.keys()

    def add(self, found: Found) -> None:
        self._used.update(found.columns)
        lookups = lookups_of(found.node, self._schema)
        found.exact = lookups.complete
        if lookups.never:
            return
        found.lookup = min(lookups.lookups, key=self._cost, default=None)
        if found.lookup is None:
            self._others[found] = None
            return
        name = found.lookup.column
        if name not in self._columns:
            self._columns[name] = _ColumnIndex(name, self._positions[name])
        self._columns[name].add(found, found.lookup)

    def remove(self, found: Found) -> None:
        self._used.subtract(found.columns)
        for name in found.columns:
            if not self._used[name]:
                del self._used[name]
        if found.lookup is None:
            self._others.pop(found, None)
            return
        column = self._columns[found.lookup.column]
        column.remove(found, found.lookup)
        if not column:
            del self._columns[column.name]

    def affected(
        self, old: Row | None, new: Row | None, changed: frozenset[str]
    ) -> Affected[Found]:
        """What a change does. Rows need only the `columns` of the index; `changed` names those that
        differ where there are two.
        """
        affected: Affected[Found] = Affected()
        if old is None:
            if new is not None:
                self._all_of(new, affected, affected.entered)
        elif new is None:
            self._all_of(old, affected, affected.left)
        else:
            self._between(old, new, changed, affected)
        return affected

    def _all_of(self, row: Row, affected: Affected[Found], visible: list[Found]) -> None:
        for column in self._columns.values():
            for found in column.hits(row[column.position]):
                if found.exact:
                    visible.append(found)
                else:
                    affected.evaluations += 1
                    if found.matches(row):
                        visible.append(found)
        for found in self._others:
            if found.exact:
                visible.append(found)
            else:
                affected.evaluations += 1
                if found.matches(row):
                    visible.append(found)

    def _between(
        self, old: Row, new: Row, changed: frozenset[str], affected: Affected[Found]
    ) -> None:
        for column in self._columns.values():
            after = column.hits(new[column.position])
            if column.name not in changed:
                if after:
                    self._found_by_both(after, old, new, changed, affected)
                continue
            before = column.hits(old[column.position])
            if before and after:
                self._found_by_either(before, after, old, new, affected)
                continue
            for found in after:
                if found.exact or _evaluated(found, new, affected):
                    affected.entered.append(found)
            for found in before:
                if found.exact or _evaluated(found, old, affected):
                    affected.left.append(found)
        if self._others:
            self._found_by_both(self._others, old, new, changed, affected)

    def _found_by_both(
        self,
        candidates: Collection[Found],
        old: Row,
        new: Row,
        changed: frozenset[str],
        affected: Affected[Found],
    ) -> None:
        """Those that the row before and the row after have in common."""
        for found in candidates:
            if found.exact:
                affected.stayed.append(found)
            elif changed.isdisjoint(found.columns):
                affected.skipped += 1
                if not changed.isdisjoint(found.watched) and _evaluated(found, new, affected):
                    affected.stayed.append(found)
            else:
                _sort_out(found, old, new, affected)

    def _found_by_either(
        self,
        before: Collection[Found],
        after: Collection[Found],
        old: Row,
        new: Row,
        affected: Affected[Found],
    ) -> None:
        if before is after:
            # Two values that are equal, such as decimals with more and fewer zeros.
            for found in after:
                _sort_out(found, old, new, affected)
            return
        seen_before = before if isinstance(before, dict) else set(before)
        seen_after = after if isinstance(after, dict) else set(after)
        for found in after:
            if found in seen_before:
                if found.exact:
                    affected.stayed.append(found)
                else:
                    _sort_out(found, old, new, affected)
            elif found.exact or _evaluated(found, new, affected):
                affected.entered.append(found)
        for found in before:
            if found not in seen_after and (found.exact or _evaluated(found, old, affected)):
                affected.left.append(found)

    def _cost(self, lookup: Lookup) -> tuple[int, int]:
        """How many filters one would look at in vain; then what is cheaper to keep."""
        if not isinstance(lookup, Among):
            return _RANGE_COST, 0
        column = self._columns.get(lookup.column)
        most = 0 if column is None else column.most_at(lookup.values)
        return most, len(lookup.values)


def _evaluated(found: Found, row: Row, affected: Affected[Found]) -> bool:
    affected.evaluations += 1
    return found.matches(row)


def _sort_out(found: Found, old: Row, new: Row, affected: Affected[Found]) -> None:
    affected.evaluations += 2
    if found.matches(new):
        (affected.stayed if found.matches(old) else affected.entered).append(found)
    elif found.matches(old):
        affected.left.append(found)


class _ColumnIndex(Generic[Found]):
    """The filters that are found by the value of one column."""

    def __init__(self, name: str, position: int) -> None:
        self.name = name
        self.position = position
        self._by_value: dict[Value, dict[Found, None]] = {}
        self._ranges = Ranges[Found]()
        self._none: Mapping[Found, None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_value) or len(self._ranges) > 0

    def add(self, found: Found, lookup: Lookup) -> None:
        if isinstance(lookup, Among):
            for value in lookup.values:
                self._by_value.setdefault(value, {})[found] = None
        else:
            self._ranges.add(found, lookup)

    def remove(self, found: Found, lookup: Lookup) -> None:
        if isinstance(lookup, Among):
            for value in lookup.values:
                sharing = self._by_value[value]
                del sharing[found]
                if not sharing:
                    del self._by_value[value]
        else:
            self._ranges.remove(found)

    def hits(self, value: Value) -> Collection[Found]:
        """The filters that a row with this value may match, each once."""
        sharing: Collection[Found] = self._by_value.get(value, self._none)
        return [*sharing, *self._ranges.holding(value)] if len(self._ranges) else sharing

    def most_at(self, values: Collection[Value]) -> int:
        """The most filters that are found by one of these values."""
        return max((len(self._by_value.get(value, ())) for value in values), default=0)
