"""A source tells each subscriber exactly what its filter and its selection make of each commit."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.live.engine_models import (
    COMMITS,
    NAMES,
    PROJECTIONS,
    SCHEMA,
    WHERES,
    Columns,
    Fields,
    Listener,
    State,
    Table,
    apply,
    changed_row,
    full_row,
)
from tidemark.live.engine import ChangedRow, Item, Source
from tidemark.live.filters import Filter, compile_predicate, parse_filter
from tidemark.pipeline.output.encoding import decode_row, encode_row, row_key
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.views.port import ChangeRow

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/views.json").read_text())
EVERYTHING = parse_filter(SCHEMA, None)


class Follower:
    """A subscriber who knows what it should be told."""

    def __init__(
        self, source: Source, table: Table, where: object, columns: tuple[str, ...]
    ) -> None:
        self.filter = parse_filter(SCHEMA, where)
        self.projection = Columns(*columns)
        self.state: State = table.visible(self.filter, self.projection.columns)
        self.listener = Listener()
        self.membership = source.join(self.filter, self.projection, self.listener)

    def check(self, received_at: int, changes: Sequence[ChangedRow], table: Table) -> None:
        expected = evaluated(self.filter, self.projection.columns, changes)
        assert self.listener.commits == [] or expected
        if expected:
            ((at, items),) = self.listener.commits
            assert at == received_at
            assert [
                (item.operation, item.row_key, item.fields, item.received_at) for item in items
            ] == expected
            for item in items:
                apply(self.state, item)
        self.listener.commits.clear()
        assert self.state == table.visible(self.filter, self.projection.columns)


def evaluated(
    row_filter: Filter, selected: frozenset[str], changes: Sequence[ChangedRow]
) -> list[tuple[str, str, tuple[str, ...], int]]:
    """What each change is to a filter, by evaluating it on the row before and the row after."""
    wanted = compile_predicate(SCHEMA, row_filter)
    found = []
    for change in changes:
        was = change.old is not None and wanted(decode_row(SCHEMA, change.old))
        now = change.new is not None and wanted(decode_row(SCHEMA, change.new))
        news = selected.intersection(change.changed)
        if now and not was:
            found.append(("INSERT", {*selected, *SCHEMA.key}, change))
        elif was and not now:
            found.append(("DELETE", {*SCHEMA.key}, change))
        elif was and news:
            found.append(("UPDATE", {*news, *SCHEMA.key}, change))
    return [(op, c.row_key, tuple(sorted(names)), c.received_at) for op, names, c in found]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), WHERES, PROJECTIONS),
        st.tuples(st.just("commit"), COMMITS, st.none()),
        st.tuples(st.just("commit"), COMMITS, st.none()),
        st.tuples(st.just("leave"), st.integers(0, 9), st.none()),
    ),
    min_size=8,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(WHERES, PROJECTIONS), min_size=4, max_size=12), STEPS)
def test_every_follower_hears_what_evaluating_its_filter_gives(
    first: list[tuple[dict[str, Any], tuple[str, ...]]], steps: list[tuple[str, Any, Any]]
) -> None:
    source, table = Source(SCHEMA), Table()
    followers = [Follower(source, table, where, columns) for where, columns in first]
    left: list[Follower] = []
    for received_at, (step, what, how) in enumerate(steps):
        if step == "join":
            followers.append(Follower(source, table, what, how))
        elif step == "leave" and followers:
            left.append(followers.pop(what % len(followers)))
            left[-1].membership.leave()
        elif step == "commit":
            changes = table.commit(received_at, what)
            source.publish(received_at, changes)
            for follower in followers:
                follower.check(received_at, changes, table)
            assert all(follower.listener.commits == [] for follower in left)
        assert source.counters.subscribers == len(followers)
        assert source.counters.filters == len({f.filter.key for f in followers})
        assert source.counters.feeds == len({(f.filter.key, f.projection.key) for f in followers})


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_filters_that_meet_in_few_columns_are_told_apart(chance: random.Random) -> None:
    source, table = Source(SCHEMA), Table()
    followers: list[Follower] = []
    for received_at in range(40):
        while len(followers) < 30:
            followers.append(Follower(source, table, _narrow_where(chance), ("id", "sym", "at")))
        for _ in range(chance.randrange(3)):
            followers.pop(chance.randrange(len(followers))).membership.leave()
        rows: dict[int, Fields | None] = {
            id: {"qty": chance.randrange(6), "sym": chance.choice("ab"), "at": received_at % 3}
            for id in chance.sample(range(4), 2)
        }
        changes = table.commit(
            received_at, rows if received_at % 5 else {chance.randrange(4): None}
        )
        source.publish(received_at, changes)
        for follower in followers:
            follower.check(received_at, changes, table)


def _narrow_where(chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(6)
    where: dict[str, Any] = chance.choice(
        (
            {"qty": {"_eq": number}},
            {"qty": {"_in": [number, chance.randrange(6)]}},
            {"qty": {"_gt": number}},
            {"qty": {"_lte": number}},
            {"qty": {"_gte": number, "_lt": number + 2}},
            {"_or": [{"qty": {"_eq": number}}, {"sym": {"_eq": "b"}}]},
            {"qty": {"_neq": number}},
        )
    )
    return where if chance.random() < 0.5 else {"_and": [where, {"sym": {"_eq": "a"}}]}


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: json.dumps(case["where"]))
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    schema = ViewSchema(
        "trades",
        (Column("id", "int"), Column("sym", "string"), Column("qty", "int")),
        (VECTORS["key"],),
        "",
    )
    source, listener = Source(schema), Listener()
    source.join(parse_filter(schema, case["where"]), Columns("id", "sym", "qty"), listener)
    rows: dict[str, dict[str, Any]] = {}
    for change in VECTORS["changes"]:
        key = row_key(schema, [change["row"]["id"]])
        old, new = rows.pop(key, None), change["row"] if change["op"] == "upsert" else None
        if new is not None:
            rows[key] = new
        # The log holds no change without a difference.
        if old == new:
            continue
        before, after = (None if row is None else encode_row(schema, row) for row in (old, new))
        names = tuple(sorted(n for n, value in (new or {}).items() if (old or {}).get(n) != value))
        source.publish(change["ts"], [ChangedRow(change["ts"], key, before, after, names)])
    assert [
        {
            "operation": item.operation,
            "key": json.loads(item.row_key)[0],
            "fields": list(item.fields),
            "ts": item.received_at,
        }
        for item in listener.items
    ] == case["expected"]


def test_equal_filters_and_selections_share_one_item_that_is_rendered_once() -> None:
    source, listeners = Source(SCHEMA), [Listener() for _ in range(3)]
    projections = [Columns("qty") for _ in listeners]
    for listener, projection in zip(listeners, projections, strict=True):
        source.join(parse_filter(SCHEMA, {"qty": {"_eq": 1}}), projection, listener)
    source.publish(1, [changed_row(1, None, full_row(1, qty=1))])
    items = [item for listener in listeners for item in listener.items]
    assert len(items) == 3
    assert len({id(item) for item in items}) == 1
    assert len({id(item.payload) for item in items}) == 1
    assert sum(projection.rendered for projection in projections) == 1
    assert source.counters.shared == 2


def test_what_nobody_reads_is_not_rendered() -> None:
    source, projection = Source(SCHEMA), Columns("qty")
    source.join(EVERYTHING, projection, Listener())
    source.publish(1, [changed_row(1, None, full_row(1, qty=1))])
    assert projection.rendered == 0


def test_a_commit_is_taken_as_a_whole() -> None:
    source, listener = Source(SCHEMA), Listener()
    source.join(EVERYTHING, Columns(*NAMES), listener)
    source.publish(5, [changed_row(5, None, full_row(id)) for id in range(3)])
    ((received_at, items),) = listener.commits
    assert received_at == 5
    assert [item.row_key for item in items] == ["[0]", "[1]", "[2]"]


def test_a_delete_carries_the_key_alone_even_if_the_row_is_still_there() -> None:
    source, listener = Source(SCHEMA), Listener()
    source.join(parse_filter(SCHEMA, {"qty": {"_gt": 0}}), Columns("qty", "sym"), listener)
    source.publish(1, [changed_row(1, full_row(7, qty=1, sym="a"), full_row(7, qty=0, sym="a"))])
    (item,) = listener.items
    assert json.loads(item.payload)["data"] == {"id": 7}


def test_whoever_leaves_while_others_are_told_hears_no_more() -> None:
    source = Source(SCHEMA)

    class Leaver(Listener):
        def take(self, received_at: int, items: Sequence[Item]) -> None:
            super().take(received_at, items)
            other.leave()
            own.leave()

    leaver, listener = Leaver(), Listener()
    own = source.join(EVERYTHING, Columns("qty"), leaver)
    other = source.join(EVERYTHING, Columns("sym"), listener)
    source.publish(1, [changed_row(1, None, full_row(1))])
    assert len(leaver.items) == 1
    assert listener.items == []
    assert (source.counters.filters, source.counters.subscribers) == (0, 0)


def test_whoever_joins_while_others_are_told_begins_with_the_next_commit() -> None:
    source, late = Source(SCHEMA), Listener()

    class Host(Listener):
        def take(self, received_at: int, items: Sequence[Item]) -> None:
            super().take(received_at, items)
            if received_at == 1:
                source.join(EVERYTHING, Columns("sym"), late)

    source.join(EVERYTHING, Columns("qty"), Host())
    source.join(EVERYTHING, Columns("sym"), Listener())
    source.publish(1, [changed_row(1, None, full_row(1))])
    assert late.items == []
    source.publish(2, [changed_row(2, None, full_row(2))])
    assert [item.row_key for item in late.items] == ["[2]"]


def test_a_change_of_the_log_is_taken_as_it_is() -> None:
    change = ChangedRow.of(ChangeRow(3, "[1]", "UPDATE", '{"id":1}', '{"id": 1}', ("qty",)))
    assert (change.received_at, change.row_key, change.changed) == (3, "[1]", ("qty",))
    assert (change.old, change.new) == ('{"id":1}', '{"id": 1}')
    assert change.old_members == change.new_members == {"id": b"1"}


def test_commits_out_of_order_are_refused() -> None:
    source = Source(SCHEMA)
    source.publish(2, [])
    with pytest.raises(ValueError, match="2 is not after 2"):
        source.publish(2, [])


def test_a_filter_of_another_view_is_refused() -> None:
    other = ViewSchema("other", (Column("id", "int"),), ("id",), "")
    with pytest.raises(ValueError, match="other"):
        Source(SCHEMA).join(parse_filter(other, None), Columns("id"), Listener())


def test_leaving_twice_is_leaving() -> None:
    source = Source(SCHEMA)
    membership = source.join(EVERYTHING, Columns("id"), Listener())
    membership.leave()
    membership.leave()
    assert source.counters.subscribers == 0
