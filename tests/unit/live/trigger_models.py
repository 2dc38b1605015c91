"""A small view and its random past, and triggers told in plain Python.

The reference knows nothing of how Tidemark does it: it keeps every row and the set of matched keys,
from the first commit on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from tidemark.live.filters import both, compile_predicate, parse_filter
from tidemark.live.triggers.transitions import Condition
from tidemark.pipeline.output.batch import DELETE, INSERT, UPDATE
from tidemark.pipeline.output.encoding import encode_row, row_key
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import ChangeRow

Row: TypeAlias = Mapping[str, Any]
Commit: TypeAlias = Mapping[int, Row | None]
Told: TypeAlias = tuple[str, int, int, Row]
"""Event type, key, source timestamp, data."""

SCHEMA = ViewSchema(
    name="quotes",
    columns=(
        Column("id", "int"),
        Column("px", "int"),
        Column("desk", "string"),
        Column("note", "string"),
    ),
    key=("id",),
    definition_hash="first",
)
EVERYTHING = parse_filter(SCHEMA, {})


@dataclass(frozen=True)
class Rules:
    """A trigger's thresholds; None is not set."""

    match_from: int
    unmatch_below: int | None = None
    desk: str | None = None

    @property
    def condition(self) -> Condition:
        match = parse_filter(SCHEMA, {"px": {"_gte": self.match_from}})
        rule = EVERYTHING
        if self.desk is not None:
            rule = both(rule, parse_filter(SCHEMA, {"desk": {"_eq": self.desk}}))
        unmatch = None
        if self.unmatch_below is not None:
            unmatch = parse_filter(SCHEMA, {"px": {"_lt": self.unmatch_below}})
        return Condition(
            compile_predicate(SCHEMA, match),
            None if unmatch is None else compile_predicate(SCHEMA, unmatch),
            compile_predicate(SCHEMA, rule),
            match.columns | rule.columns | (unmatch.columns if unmatch else frozenset()),
        )

    def sees(self, row: Row | None) -> bool:
        return row is not None and (self.desk is None or row["desk"] == self.desk)

    def matches(self, row: Row) -> bool:
        return row["px"] is not None and row["px"] >= self.match_from

    def unmatches(self, row: Row) -> bool:
        if self.matches(row):
            return False
        if self.unmatch_below is None:
            return True
        return row["px"] is not None and row["px"] < self.unmatch_below


@dataclass
class History:
    """Commits at the timestamps 1, 2, …, as a log of net changes."""

    commits: Sequence[Commit]
    lines: list[ChangeRow] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = []
        rows: dict[int, Row] = {}
        for timestamp, commit in enumerate(self.commits, 1):
            changed = []
            for key, new in commit.items():
                old = rows.get(key)
                if old != new:
                    changed.append(change_row(timestamp, key, old, new))
                rows.pop(key, None)
                if new is not None:
                    rows[key] = new
            self.lines += sorted(changed, key=lambda line: line.row_key)


def change_row(timestamp: int, key: int, old: Row | None, new: Row | None) -> ChangeRow:
    names = tuple(column.name for column in SCHEMA.visible)
    if old is not None and new is not None:
        names = tuple(name for name in names if old[name] != new[name])
    return ChangeRow(
        timestamp,
        row_key(SCHEMA, [key]),
        INSERT if old is None else DELETE if new is None else UPDATE,
        None if old is None else encode_row(SCHEMA, old),
        None if new is None else encode_row(SCHEMA, new),
        names,
    )


def told(rules: Rules, commits: Sequence[Commit], since: int, until: int | None) -> list[Told]:
    """What a trigger has to say about a past."""
    rows: dict[int, Row] = {}
    matched: set[int] = set()
    events: list[Told] = []
    for timestamp, commit in enumerate(commits, 1):
        if timestamp == since + 1:
            matched = {k for k, row in rows.items() if rules.sees(row) and rules.matches(row)}
        for key, new in sorted(commit.items(), key=lambda item: str(item[0])):
            old = rows.pop(key, None)
            if new is not None:
                rows[key] = new
            if not since < timestamp or (until is not None and timestamp > until):
                continue
            if new is not None and rules.sees(new):
                stays = key in matched and not rules.unmatches(new)
                now, data = rules.matches(new) or stays, new
            else:
                now, data = False, old or {}
            if now != (key in matched):
                events.append(("MATCH" if now else "UNMATCH", key, timestamp, data))
                matched.symmetric_difference_update({key})
    return events


def pasts() -> st.SearchStrategy[list[dict[int, Row | None]]]:
    """Few keys and few values, so that rows come and go and change back."""
    prices = st.none() | st.sampled_from([90, 95, 97, 100, 105])
    columns = st.tuples(prices, st.sampled_from(["a", "b"]), st.sampled_from(["", "x"]))

    def commit(values: dict[int, tuple[Any, str, str] | None]) -> dict[int, Row | None]:
        return {
            key: None if row is None else {"id": key, "px": row[0], "desk": row[1], "note": row[2]}
            for key, row in values.items()
        }

    values = st.dictionaries(st.integers(1, 4), st.none() | columns, max_size=3)
    return st.lists(values.map(commit), min_size=1, max_size=12)


def thresholds() -> st.SearchStrategy[Rules]:
    return st.builds(
        Rules,
        st.sampled_from([95, 100]),
        st.none() | st.sampled_from([91, 95, 100]),
        st.none() | st.just("a"),
    )
