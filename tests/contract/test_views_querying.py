"""Rows and aggregates by a condition: the same answers from every store, exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.contract.events import START
from tests.contract.views_home import (
    POSITIONS,
    VISIBLE,
    Values,
    Views,
    ViewsHome,
    all_rows,
    frontier,
    insertion,
    key_of,
    position,
)
from tidemark.live.filters import parse_filter, row_query, sql_condition
from tidemark.pipeline.output.errors import UnknownView
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column, Value
from tidemark.views.port import RowQuery
from tidemark.views.querying import order_term

pytest_plugins = ("tests.contract.views_fixtures",)

COLUMNS = {column.name: column for column in POSITIONS.columns}
LARGEST = 2**63 - 1
# What no float and no 28 digits of a decimal context can add up.
PRECISE = Decimal("12345678901234567890123456789.123456789")


def some_rows() -> list[Values]:
    return [
        position("acme", "eu", rank=3, quantity=PRECISE, trades=LARGEST, side="buy", open=True),
        position("acme", "us", rank=1, quantity=PRECISE, trades=LARGEST, side="sell", open=False),
        position("acme", "ca", rank=2, quantity=Decimal("-0.000000001"), since=START, note="{}"),
        position("zeta", "eu", rank=2, quantity=None, side="it's both", memory="hidden"),
        position("zeta", None, rank=None, quantity=Decimal("1.5"), trades=-LARGEST),
    ]


@pytest.fixture
async def filled(views: Views) -> Views:
    await views.commit(insertion(*some_rows()))
    return views


async def found(views: Views, where: Any, **query: Any) -> list[ViewRow]:
    wanted = row_query(POSITIONS, parse_filter(POSITIONS, where), views.dialect, **query)
    return (await views.select("positions", wanted)).rows


def regions(rows: list[ViewRow]) -> list[Value]:
    return [row.values[VISIBLE.index("region")] for row in rows]


async def aggregated(views: Views, where: Any, *terms: tuple[str, str]) -> list[Any]:
    condition = sql_condition(POSITIONS, parse_filter(POSITIONS, where), views.dialect)
    values, _ = await views.aggregate("positions", condition, terms)
    return values


async def test_all_rows_are_selected_just_as_they_are_read(filled: Views) -> None:
    answer = await filled.select("positions", RowQuery())
    assert answer.columns == VISIBLE
    assert answer.rows == await all_rows(filled)
    assert answer.frontier == frontier(1)
    assert [type(value) for row in answer.rows for value in row.values] == [
        type(value) for row in await all_rows(filled) for value in row.values
    ]


async def test_an_empty_store_has_no_rows_and_no_frontier(views: Views) -> None:
    answer = await views.select("positions", RowQuery())
    assert (answer.rows, answer.frontier) == ([], None)
    assert await views.aggregate("positions", ("true", ()), [("count", "*"), ("sum", "rank")]) == (
        [0, None],
        None,
    )


async def test_only_the_rows_of_a_condition_are_selected(filled: Views) -> None:
    assert regions(await found(filled, {"rank": {"_eq": 2}})) == ["ca", "eu"]
    assert regions(await found(filled, {"side": {"_gt": "sell"}})) == ["eu", "eu"]
    assert regions(await found(filled, {"quantity": {"_lt": "-0.0000000001"}})) == ["ca"]


async def test_rows_are_in_the_order_asked_for_and_then_in_that_of_their_keys(
    filled: Views,
) -> None:
    by_rank = order_term(COLUMNS["rank"], filled.dialect)
    rows = await found(filled, {}, order=(by_rank,))
    assert regions(rows) == ["us", "ca", "eu", "eu", None]
    backwards = order_term(COLUMNS["rank"], filled.dialect, descending=True)
    assert regions(await found(filled, {}, order=(backwards,)))[0] is None
    nulls_first = order_term(COLUMNS["rank"], filled.dialect, nulls_first=True)
    assert regions(await found(filled, {}, order=(nulls_first,))) == [None, "us", "ca", "eu", "eu"]


async def test_an_enum_is_ordered_as_declared(filled: Views) -> None:
    term = order_term(COLUMNS["side"], filled.dialect)
    rows = await found(filled, {"side": {"_is_null": False}}, order=(term,))
    sides = [row.values[VISIBLE.index("side")] for row in rows]
    assert sides == ["sell", "buy", "it's both"]


async def test_a_limit_and_an_offset_cut_a_piece_out(filled: Views) -> None:
    everything = await found(filled, {})
    assert await found(filled, {}, limit=2) == everything[:2]
    assert await found(filled, {}, limit=2, offset=3) == everything[3:]
    assert await found(filled, {}, offset=4) == everything[4:]
    assert await found(filled, {}, limit=0) == []


async def test_values_never_become_sql(filled: Views) -> None:
    for text in ("'; DROP TABLE frontier; --", "?", "$1", '"', "it's both"):
        where = {"_or": [{"region": {"_in": [text, "x"]}}, {"tenant_id": {"_like": text}}]}
        assert await found(filled, where) == []
    enum = Column("side", "enum", values=("sell?", "buy"))
    ordered = RowQuery(order=(order_term(enum, filled.dialect),))
    assert len((await filled.select("positions", ordered)).rows) == len(some_rows())


async def test_a_tenant_is_found_by_the_key(views_home: ViewsHome) -> None:
    views = await views_home.open()
    await views.declare([POSITIONS])
    rows = [position(f"t{n % 1000}", f"r{n}", rank=n % 7) for n in range(5_000)]
    await views.commit(insertion(*rows))
    where = {"tenant_id": {"_eq": "t7"}, "rank": {"_gte": 0}}
    condition, values = sql_condition(POSITIONS, parse_filter(POSITIONS, where), views.dialect)
    assert "row_key >= ?" in condition
    answer = await views.select("positions", RowQuery((condition, values)))
    assert len(answer.rows) == 5
    plan = await _plan(views_home, condition, values)
    assert "row_key" in plan, plan
    assert "SCAN" not in plan, plan
    assert "Seq Scan" not in plan, plan


async def _plan(home: ViewsHome, condition: str, values: Any) -> str:
    for value in values:
        condition = condition.replace(
            "?", f"'{value}'" if isinstance(value, str) else str(value), 1
        )
    explain = "EXPLAIN QUERY PLAN" if home.kind == "sqlite" else "EXPLAIN"
    statement = f"{explain} SELECT * FROM {POSITIONS.table} WHERE {condition} ORDER BY row_key"
    return "\n".join(str(row) for row in await home.sql(statement))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"_eq": "12345678901234567890123456789.123456789"}, ["eu", "us"]),
        ({"_eq": "12345678901234567890123456789.1234567890001"}, []),
        ({"_neq": "0.00000000001"}, ["ca", "eu", "us", None]),
        ({"_gt": "-0.00000000100001"}, ["ca", "eu", "us", None]),
        ({"_gte": "-0.00000000099999"}, ["eu", "us", None]),
        ({"_lte": "-0.00000000100001"}, []),
        ({"_lt": "1e300"}, ["ca", "eu", "us", None]),
        ({"_gt": "1e300"}, []),
        ({"_gt": "-1e300"}, ["ca", "eu", "us", None]),
        ({"_lt": "-1e300"}, []),
        ({"_in": ["1.50", "1e300", "1.50000000001"]}, [None]),
        ({"_nin": ["1e300"]}, ["ca", "eu", "us", None]),
        ({"_in": ["1e300", "-1e300"]}, []),
    ],
)
async def test_a_number_that_no_row_can_hold_is_compared_exactly(
    filled: Views, where: dict[str, Any], expected: list[Value]
) -> None:
    assert regions(await found(filled, {"quantity": where})) == expected


async def test_one_row_is_found_by_its_whole_key(filled: Views) -> None:
    where = {"tenant_id": {"_eq": "zeta"}, "region": {"_is_null": True}}
    [row] = await found(filled, where)
    assert row.row_key == key_of(position("zeta", None))


async def test_aggregates_are_exact(filled: Views) -> None:
    assert await aggregated(
        filled,
        {},
        ("count", "*"),
        ("count", "quantity"),
        ("count_distinct", "quantity"),
        ("sum", "quantity"),
        ("sum", "trades"),
        ("sum", "rank"),
        ("avg", "rank"),
        ("avg", "trades"),
    ) == [
        5,
        4,
        3,
        Decimal("24691357802469135780246913579.746913577"),
        LARGEST,
        8,
        Decimal(2),
        Decimal("3074457345618258602.3333333333333333333"),
    ]


async def test_a_sum_may_be_larger_than_any_of_its_values(filled: Views) -> None:
    where = {"trades": {"_gt": 0}}
    assert await aggregated(filled, where, ("sum", "trades")) == [2 * LARGEST]


async def test_the_least_and_the_greatest_are_found_in_every_ordered_type(filled: Views) -> None:
    names = ("quantity", "rank", "trades", "since", "side", "open", "region")
    assert await aggregated(filled, {}, *(("min", name) for name in names)) == [
        Decimal("-0.000000001"), 1, -LARGEST, START, "sell", False, "ca"
    ]  # fmt: skip
    assert await aggregated(filled, {}, *(("max", name) for name in names)) == [
        PRECISE, 3, LARGEST, START, "it's both", True, "us"
    ]  # fmt: skip


async def test_an_aggregate_of_nothing_is_null_and_a_count_of_it_zero(filled: Views) -> None:
    terms = [(name, "quantity") for name in ("count", "count_distinct", "sum", "avg", "min", "max")]
    assert await aggregated(filled, {"_or": []}, *terms) == [0, 0, None, None, None, None]


async def test_an_aggregate_is_of_the_rows_of_its_condition_and_of_a_moment(filled: Views) -> None:
    condition = sql_condition(
        POSITIONS, parse_filter(POSITIONS, {"tenant_id": {"_eq": "zeta"}}), filled.dialect
    )
    assert await filled.aggregate("positions", condition, [("count", "*")]) == ([2], frontier(1))


@pytest.mark.parametrize(
    "term",
    [
        ("sum", "region"),
        ("avg", "since"),
        ("min", "note"),
        ("median", "rank"),
        ("count", "memory"),
        ("sum", "*"),
        ("count", 'rank") FROM frontier --'),
    ],
)
async def test_an_aggregate_that_there_is_not_is_refused(
    filled: Views, term: tuple[str, str]
) -> None:
    with pytest.raises(UnknownView):
        await filled.aggregate("positions", ("true", ()), [term])


async def test_a_view_that_there_is_not_cannot_be_queried(views: Views) -> None:
    with pytest.raises(UnknownView):
        await views.select("nothing", RowQuery())
    with pytest.raises(UnknownView):
        await views.aggregate("nothing", ("true", ()), [("count", "*")])
