"""Filters are found by what they ask for: the cost is that of the matches, not of the filters."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.live.engine_models import NAMES, ROWS, SCHEMA, Columns, Listener, full_row
from tests.unit.live.engine_models import changed_row as changed
from tidemark.live.engine import Source
from tidemark.live.engine.changes import RowReader
from tidemark.live.engine.conditions import Among, Between, lookups_of
from tidemark.live.engine.ranges import Ranges
from tidemark.live.filters import parse_filter
from tidemark.pipeline.output.encoding import decode_row, encode_row


def joined(wheres: list[dict[str, Any]]) -> tuple[Source, Listener]:
    source, listener = Source(SCHEMA), Listener()
    for where in wheres:
        source.join(parse_filter(SCHEMA, where), Columns(*NAMES), listener)
    assert source.counters.filters == len(wheres)
    return source, listener


NUMBERS = range(1_000)
SHAPES: dict[str, list[dict[str, Any]]] = {
    "equality": [{"qty": {"_eq": n}} for n in NUMBERS],
    "membership": [{"qty": {"_in": [n, n + 5_000, n + 9_000]}} for n in NUMBERS],
    "null": [{"qty": {"_is_null": True}, "sym": {"_eq": f"{n}"}} for n in NUMBERS],
    "alternatives of one column": [
        {"_or": [{"qty": {"_eq": n}}, {"qty": {"_eq": n + 5_000}}]} for n in NUMBERS
    ],
    "equality in common with others": [
        {"ok": {"_eq": True}, "side": {"_in": ["sell", "buy"]}, "qty": {"_eq": n}} for n in NUMBERS
    ],
    "a range behind what all have in common": [
        {"ok": {"_eq": True}, "px": {"_gt": f"{n}", "_lte": f"{n + 1}"}} for n in NUMBERS
    ],
    "narrow ranges": [{"px": {"_gte": f"{n}.5", "_lt": f"{n + 1}.5"}} for n in NUMBERS],
    "lower bounds": [{"px": {"_gt": f"{n}"}} for n in range(500, 1_500)],
    "upper bounds": [{"px": {"_lte": f"{n}"}} for n in range(-490, 510)],
    "different columns": [
        {name: {"_eq": f"{n}" if name in ("sym", "px", "big") else n}}
        for n in range(200)
        for name in ("id", "sym", "qty", "px", "big")
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_filters_that_do_not_match_are_hardly_ever_looked_at(shape: str) -> None:
    source, listener = joined(SHAPES[shape])
    old = full_row(7, qty=7, px=Decimal("500.7"), ok=True, side="buy", sym="7", big=7)
    source.publish(1, [changed(1, None, old)])
    source.publish(2, [changed(2, old, old | {"at": 5})])
    source.publish(3, [changed(3, old | {"at": 5}, old | {"at": 5, "qty": None})])
    source.publish(4, [changed(4, old | {"at": 5, "qty": None}, None)])
    assert listener.items
    # The first that came have nothing yet to tell a good condition from a bad one.
    assert source.counters.evaluations <= 4 * 64 + len(listener.items)


def test_a_filter_is_evaluated_once_if_none_of_its_columns_changed() -> None:
    source, listener = joined([{"_or": [{"qty": {"_eq": 1}}, {"sym": {"_eq": "a"}}]}])
    source.publish(1, [changed(1, full_row(1, qty=1), full_row(1, qty=1, ok=True))])
    assert [item.operation for item in listener.items] == ["UPDATE"]
    assert (source.counters.evaluations, source.counters.skipped) == (1, 1)


def test_a_filter_is_not_evaluated_if_nobody_would_hear_of_it() -> None:
    source, listener = Source(SCHEMA), Listener()
    where = {"_or": [{"qty": {"_eq": 1}}, {"sym": {"_eq": "a"}}]}
    source.join(parse_filter(SCHEMA, where), Columns("id", "sym"), listener)
    source.publish(1, [changed(1, full_row(1, qty=1), full_row(1, qty=1, ok=True))])
    assert listener.items == []
    assert (source.counters.evaluations, source.counters.skipped) == (0, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_joined_can_leave(shape: str) -> None:
    source, listener = Source(SCHEMA), Listener()
    memberships = [
        source.join(parse_filter(SCHEMA, where), Columns(*NAMES), listener)
        for where in SHAPES[shape]
    ]
    row = full_row(7, qty=7, px=Decimal("500.7"), ok=True, side="buy", sym="7", big=7)
    source.publish(1, [changed(1, None, row)])
    for membership in memberships[::2] + memberships[1::2]:
        membership.leave()
    assert (source.counters.filters, source.counters.feeds) == (0, 0)
    listener.commits.clear()
    source.join(parse_filter(SCHEMA, None), Columns(*NAMES), listener)
    source.publish(2, [changed(2, row, None)])
    assert len(listener.items) == 1


@pytest.mark.parametrize(
    ("where", "lookups", "complete"),
    [
        (None, (), True),
        ({"qty": {"_eq": 1}}, (Among("qty", (1,)),), True),
        ({"qty": {"_is_null": True}}, (Among("qty", (None,)),), True),
        ({"qty": {"_gt": 1, "_lte": 5, "_lt": 5}}, (Between("qty", (1, 1), (5, 0)),), True),
        ({"qty": {"_gte": 1, "_neq": 3}}, (Between("qty", (1, 0), None),), False),
        ({"_or": [{"qty": {"_eq": 1}}, {"sym": {"_eq": "a"}}]}, (), False),
        ({"sym": {"_like": "a%"}}, (), False),
    ],
)
def test_what_must_hold_is_what_is_looked_up(
    where: Any, lookups: tuple[Among | Between, ...], complete: bool
) -> None:
    found = lookups_of(parse_filter(SCHEMA, where).node, SCHEMA)
    assert (found.lookups, found.complete, found.never) == (lookups, complete, False)


def test_a_filter_that_nothing_matches_is_never_looked_at() -> None:
    source, listener = joined([{"_or": []}])
    source.publish(1, [changed(1, None, full_row(1))])
    assert (listener.items, source.counters.evaluations) == ([], 0)


BOUNDS = st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 1)))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), BOUNDS, BOUNDS),
            st.tuples(st.just("add many"), st.integers(0, 20), st.integers(1, 150)),
            st.tuples(st.just("remove"), st.integers(0, 999), st.integers(1, 40)),
            st.tuples(st.just("look"), st.integers(-1, 21), st.none()),
        ),
        max_size=30,
    )
)
def test_ranges_hold_what_comparing_with_each_of_them_says(
    steps: list[tuple[str, Any, Any]],
) -> None:
    ranges: Ranges[int] = Ranges()
    kept: dict[int, Between] = {}
    for number, (step, first, second) in enumerate(steps):
        if step == "add" and (first or second):
            kept[1_000 * number] = Between("qty", first, second)
            ranges.add(1_000 * number, kept[1_000 * number])
        elif step == "add many":
            for at in range(second):
                between = Between("qty", (first - at % 7, at % 2), (first + at % 5, at % 3 % 2))
                kept[1_000 * number + at] = between
                ranges.add(1_000 * number + at, between)
        elif step == "remove":
            for at in sorted(kept)[first % (len(kept) + 1) :][:second]:
                del kept[at]
                ranges.remove(at)
        elif step == "look":
            found = ranges.holding(first)
            assert sorted(found) == [at for at in sorted(kept) if _holds(kept[at], first)]
        assert len(ranges) == len(kept)
    assert ranges.holding(None) == []


def _holds(between: Between, value: int) -> bool:
    lower, upper = between.lower, between.upper
    above = lower is None or (value > lower[0] if lower[1] else value >= lower[0])
    below = upper is None or (value <= upper[0] if upper[1] else value < upper[0])
    return above and below


@given(ROWS, st.sets(st.sampled_from(NAMES)))
def test_a_reader_gives_the_columns_it_is_for_as_the_encoding_does(
    fields: dict[str, Any], columns: set[str]
) -> None:
    text = encode_row(SCHEMA, full_row(1, **fields))
    expected = [
        value if name in columns else None
        for name, value in zip(NAMES, decode_row(SCHEMA, text), strict=True)
    ]
    assert list(RowReader(SCHEMA, columns).read(text)) == expected
