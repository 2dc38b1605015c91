"""Views as a plain dictionary, commit by commit: what a store must be equal to."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tests.contract.views_home import (
    POSITIONS,
    VISIBLE,
    Values,
    adjustment,
    at,
    batch,
    changes,
    key_of,
    position,
    writes,
)
from tidemark.pipeline.output.batch import ViewBatch
from tidemark.pipeline.output.schema import Value

Key: TypeAlias = tuple[str, str | None]
Commit: TypeAlias = Mapping[Key, Values | None]
"""What becomes of some rows; None takes one away, an empty commit is a tick."""

Line: TypeAlias = tuple[int, str, str, tuple[Value, ...] | None, tuple[Value, ...] | None]

TENANTS = ("acme", 'a"c\\me', "ü,[]")
REGIONS = (None, "null", "eu")
LONGEST = Decimal("-98765432109876543210987654321.123456789")

# Few values, so that a row often comes back to what it was.
ROWS: st.SearchStrategy[Values] = st.fixed_dictionaries(
    {},
    optional={
        "quantity": st.sampled_from([Decimal("0"), Decimal("-1.50"), LONGEST]),
        "trades": st.sampled_from([0, -(2**63), 2**63 - 1]),
        "open": st.booleans(),
        "side": st.sampled_from(["sell", "it's both"]),
        "since": st.sampled_from([0, at(3)]),
        "note": st.sampled_from(['{"a":1}', '"null"', "[]"]),
        "memory": st.sampled_from(["", "m"]),
    },
)
COMMITS: st.SearchStrategy[Commit] = st.dictionaries(
    st.tuples(st.sampled_from(TENANTS), st.sampled_from(REGIONS)),
    st.none() | ROWS,
    max_size=4,
)
STORIES = st.lists(COMMITS, min_size=1, max_size=6)


class Model:
    """The state after each commit of a story; the first state is that of the empty views."""

    def __init__(self, story: list[Commit]) -> None:
        self.last = len(story)
        self.states: list[dict[Key, Values]] = [{}]
        # The commit that last changed what readers see of a row.
        self.changed: list[dict[Key, int]] = [{}]
        for number, commit in enumerate(story, 1):
            state, changed = dict(self.states[-1]), dict(self.changed[-1])
            for key, values in commit.items():
                before = state.pop(key, None)
                if values is not None:
                    state[key] = position(*key) | values
                if visible(before) != visible(state.get(key)):
                    changed[key] = number
            self.states.append(state)
            self.changed.append(changed)
        self._story = story

    def outcome(self, current: int, start: int, end: int) -> str:
        """What must become of a batch while the views stand at commit `current`."""
        if start == current:
            return "applied"
        return "skipped" if end <= current else "gap"

    def lines(self, start: int, end: int) -> list[Line]:
        """The net changes of the commits after `start` up to `end`."""
        found: list[Line] = []
        for number in range(start + 1, end + 1):
            old, new = self.states[number - 1], self.states[number]
            for key in sorted(self._story[number - 1], key=lambda key: key_of(position(*key))):
                before, after = visible(old.get(key)), visible(new.get(key))
                if before != after:
                    op = "insert" if before is None else "delete" if after is None else "update"
                    found.append((at(number), key_of(position(*key)), op, before, after))
        return found

    def batch(self, start: int, end: int) -> ViewBatch:
        """The batch from one commit to another, as a pipeline would write it."""
        touched = {key for commit in self._story[start:end] for key in commit}
        kept = [key for key in touched if key in self.states[end]]
        gone = [key for key in touched if key not in self.states[end]]
        rows = writes(
            *(self.states[end][key] for key in kept),
            commit=end,
            deleted=[position(*key) for key in gone],
        )
        received_at = [at(self.changed[end][key]) for key in kept]
        pairs: list[Any] = []
        for number in range(start + 1, end + 1):
            old, new = self.states[number - 1], self.states[number]
            pairs += [
                (number, old.get(key), new.get(key))
                for key in self._story[number - 1]
                if visible(old.get(key)) != visible(new.get(key))
            ]
        return batch(
            start or None,
            end,
            rows=[type(rows)(rows.view, rows.row_keys, received_at, rows.columns, rows.deleted)],
            changes=[changes(*pairs)],
            adjustments=[adjustment(n, commit=n) for n in range(start + 1, end + 1)],
            state={"commit": str(end).encode(), f"only after {start}": b"", "old": None},
        )

    def rows(self, number: int) -> dict[str, tuple[Value, ...]]:
        """What readers see after a commit, by key."""
        return {
            key_of(row): shown
            for row in self.states[number].values()
            if (shown := visible(row)) is not None
        }

    def hidden(self, number: int) -> dict[str, tuple[int, tuple[Value, ...]]]:
        """Everything a row holds after a commit, and when it changed, by key."""
        return {
            key_of(row): (
                at(self.changed[number][key]),
                tuple(row[column.name] for column in POSITIONS.columns),
            )
            for key, row in self.states[number].items()
        }


def visible(row: Values | None) -> tuple[Value, ...] | None:
    return None if row is None else tuple(row[name] for name in VISIBLE)
