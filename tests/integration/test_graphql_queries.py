"""Queries give the rows that a caller may see, exactly, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
from decimal import Context, Decimal
from typing import Any

import pytest

from tests.contract.views_home import Values, Views, ViewsHome, at
from tests.integration.graphql_rows import (
    COLUMNS,
    EVERYTHING,
    ask,
    data,
    fill,
    key,
    order,
    orders,
    rank,
    service,
    shown,
)
from tests.unit.live.graphql_views import COUNTERS, ORDERS, session
from tidemark.decimals import plain_decimal
from tidemark.live.filters import compile_predicate, parse_filter
from tidemark.live.graphql.limits import QueryLimits
from tidemark.live.graphql.service import GraphqlService, ServiceLimits
from tidemark.pipeline.output.encoding import decode_row, encode_row, json_values
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.views.port import RowQuery, RowsFound

pytest_plugins = ("tests.contract.views_fixtures",)

ROWS = sorted(orders(60), key=key)
BY_KEY = "query ($t: String!, $n: BigInt!) { orders_by_pk(tenant_id: $t, number: $n) { %s } }"
WHERES: list[dict[str, Any]] = [
    {},
    {"price": {"_gt": "1.5"}},
    {"price": {"_eq": "12345678901234567890.123456789"}},
    {"number": {"_gte": "9007199254740993", "_lt": "9007199254741000"}},
    {"amount": {"_in": [7, 2**31 - 1]}},
    {"amount": {"_nin": [7]}},
    {"urgent": {"_neq": True}},
    {"placed_at": {"_gt": "2023-11-14T23:13:20+01:00"}},
    {"level": {"_gte": "medium"}},
    {"state": {"_lt": "it's done"}},
    {"extra": {"_is_null": True}},
    {"tenant_id": {"_like": "%a%"}, "level": {"_is_null": False}},
    {"_or": [{"level": {"_eq": "low"}}, {"_not": {"price": {"_lte": "10"}}}]},
    {"_or": []},
    {"tenant_id": {"_eq": "γάμμα"}},
]


@pytest.fixture
async def filled(views_home: ViewsHome) -> Views:
    opened = await views_home.open()
    await opened.declare([ORDERS, COUNTERS])
    await fill(opened, ROWS)
    return opened


@pytest.fixture
def asked(filled: Views) -> GraphqlService:
    return service(filled)


def matching(where: dict[str, Any], rows: list[Values] = ROWS) -> list[Values]:
    """The rows that the filter's Python side wants."""
    wanted = compile_predicate(ORDERS, parse_filter(ORDERS, where))
    return [row for row in rows if wanted(decode_row(ORDERS, encode_row(ORDERS, row)))]


async def test_every_value_is_shown_exactly(asked: GraphqlService) -> None:
    answer = await ask(asked, "{ orders { %s } }" % EVERYTHING)
    assert answer["data"]["orders"] == [shown(row) for row in ROWS]
    assert answer["extensions"] == {"frontier": "10", "ts_timestamp": str(at(1))}
    prices = {row["price"] for row in answer["data"]["orders"]}
    assert {"12345678901234567890.123456789", "-0.000000001", None} <= prices


async def test_where_gives_the_rows_that_its_predicate_wants(asked: GraphqlService) -> None:
    text = "query ($w: ordersExpression) { orders(where: $w) { number } }"
    for where in WHERES:
        found = await data(asked, text, {"w": where})
        assert [int(row["number"]) for row in found["orders"]] == [
            row["number"] for row in matching(where)
        ], where


async def test_rows_are_ordered_by_every_type_with_nulls_where_they_belong(
    asked: GraphqlService,
) -> None:
    for name in COLUMNS:
        if name != "extra":
            await check_order(asked, name)


async def check_order(asked: GraphqlService, name: str) -> None:
    column = COLUMNS[name]
    nulls = [row for row in ROWS if row[name] is None]
    others = [row for row in ROWS if row[name] is not None]
    for direction in ("asc", "asc_nulls_first", "asc_nulls_last", "desc", "desc_nulls_last"):
        descending = direction.startswith("desc")
        # Sorting is stable either way, so ties stay in the order of their keys.
        ordered = sorted(others, key=lambda row: rank(column, row[name]), reverse=descending)
        first = direction in ("asc_nulls_first", "desc")
        wanted = nulls + ordered if first else ordered + nulls
        text = "{ orders(order_by: [{%s: %s}]) { number } }" % (name, direction)
        found = await data(asked, text)
        assert [int(row["number"]) for row in found["orders"]] == [
            row["number"] for row in wanted
        ], direction


async def test_later_columns_of_an_order_break_ties(asked: GraphqlService) -> None:
    text = "{ orders(order_by: [{level: desc_nulls_last}, {number: desc}]) { number } }"
    found = await data(asked, text)
    levels = (None, *COLUMNS["level"].values)
    wanted = sorted(ROWS, key=lambda row: (levels.index(row["level"]), row["number"]), reverse=True)
    assert [int(row["number"]) for row in found["orders"]] == [row["number"] for row in wanted]


async def test_an_order_names_one_column_at_a_time(asked: GraphqlService) -> None:
    answer = await ask(asked, "{ orders(order_by: [{level: asc, number: asc}]) { number } }")
    assert answer["errors"][0]["extensions"]["code"] == "graphql_invalid"
    answer = await ask(
        asked,
        "query ($o: [ordersOrderBy!]) { orders(order_by: $o) { number } }",
        {"o": [{"level": "asc", "number": "asc"}]},
    )
    assert answer["errors"][0]["extensions"]["code"] == "graphql_variables"
    one = await data(asked, "{ orders(order_by: {number: asc}, limit: 1) { number } }")
    assert one == {"orders": [{"number": "9007199254740992"}]}


async def test_limit_and_offset_cut_a_part_out(asked: GraphqlService) -> None:
    for limit, offset in ((5, 0), (5, 7), (0, 0), (100, 58), (5, 1_000)):
        text = "{ orders(limit: %d, offset: %d) { number } }" % (limit, offset)
        found = await data(asked, text)
        assert [int(row["number"]) for row in found["orders"]] == [
            row["number"] for row in ROWS[offset : offset + limit]
        ]


async def test_there_is_a_limit_on_limits(filled: Views) -> None:
    limits = ServiceLimits(
        queries=QueryLimits(default_rows=4, max_rows=9, max_offset=50, max_order_columns=1)
    )
    asked = service(filled, limits=limits)
    assert len((await data(asked, "{ orders { number } }"))["orders"]) == 4
    assert len((await data(asked, "{ orders(limit: 9) { number } }"))["orders"]) == 9
    for arguments, field in (
        ("limit: 10", "limit"),
        ("limit: -1", "limit"),
        ("offset: 51", "offset"),
        ("offset: -1", "offset"),
        ("order_by: [{level: asc}, {number: asc}]", "order_by"),
    ):
        answer = await ask(asked, "{ orders(%s) { number } }" % arguments)
        [error] = answer["errors"]
        assert error["extensions"]["code"] == "invalid_argument"
        assert error["extensions"]["field"] == field
        assert error["path"] == ["orders"]
        assert answer["data"] is None


async def test_a_row_is_found_by_its_key(asked: GraphqlService) -> None:
    for row in ROWS[::7]:
        found = await data(
            asked, BY_KEY % EVERYTHING, {"t": row["tenant_id"], "n": str(row["number"])}
        )
        assert found == {"orders_by_pk": shown(row)}
    for tenant, number in (("acme", "1"), ("nobody", str(ROWS[0]["number"])), ("", "0")):
        found = await data(asked, BY_KEY % "number", {"t": tenant, "n": number})
        assert found == {"orders_by_pk": None}


async def test_aggregates_are_what_python_makes_of_the_rows(asked: GraphqlService) -> None:
    for where in WHERES:
        await check_aggregates(asked, where)


async def check_aggregates(asked: GraphqlService, where: dict[str, Any]) -> None:
    numbers = ("number", "price", "amount")
    ordered = [name for name in COLUMNS if name != "extra"]
    text = """
        query ($w: ordersExpression) {
          orders_aggregate(where: $w) {
            aggregate {
              count
              some: count(columns: [level])
              different: count(columns: [level], distinct: true)
              all: count(distinct: true)
              sum { %s } avg { %s } min { %s } max { %s }
            }
          }
        }
    """ % (" ".join(numbers), " ".join(numbers), " ".join(ordered), " ".join(ordered))
    found = (await data(asked, text, {"w": where}))["orders_aggregate"]["aggregate"]
    rows = matching(where)
    levels = [row["level"] for row in rows if row["level"] is not None]
    assert found["count"] == found["all"] == len(rows)
    assert (found["some"], found["different"]) == (len(levels), len(set(levels)))
    exact = Context(prec=200)
    for name in numbers:
        values = [Decimal(str(row[name])) for row in rows if row[name] is not None]
        total = Decimal(0)
        for value in values:
            total = exact.add(total, value)
        assert found["sum"][name] == (plain_decimal(total) if values else None)
        mean = Context(prec=38).divide(total, Decimal(len(values))) if values else None
        assert found["avg"][name] == (None if mean is None else plain_decimal(mean))
    for name in ordered:
        column = COLUMNS[name]
        present = [row[name] for row in rows if row[name] is not None]
        for function, choose in (("min", min), ("max", max)):
            chosen = choose(present, key=lambda value: rank(column, value), default=None)
            [as_json] = json_values(column, [chosen])
            assert found[function][name] == as_json, (function, name)


async def test_a_count_is_over_one_column(asked: GraphqlService) -> None:
    text = "{ orders_aggregate { aggregate { count(columns: [level, price]) } } }"
    [error] = (await ask(asked, text))["errors"]
    assert error["extensions"] | {"hint": ""} == {
        "code": "invalid_argument",
        "hint": "",
        "field": "columns",
    }


async def test_aggregates_of_nothing_but_names_are_answered(asked: GraphqlService) -> None:
    text = """{ orders_aggregate { __typename aggregate { __typename sum { __typename }
        a: count @skip(if: true) } } }"""
    assert await data(asked, text) == {
        "orders_aggregate": {
            "__typename": "ordersAggregate",
            "aggregate": {
                "__typename": "ordersAggregateFields",
                "sum": {"__typename": "ordersSumFields"},
            },
        }
    }


async def test_aliases_fragments_and_directives_hold_for_rows(asked: GraphqlService) -> None:
    text = """
        query ($yes: Boolean!) {
          some: orders(limit: 1) { ...F ... on orders { p: price } price @skip(if: $yes) }
          orders(limit: 2, offset: 1) { __typename level @include(if: $yes) }
          one: orders_by_pk(tenant_id: "acme", number: 9007199254740992) { ...F }
        }
        fragment F on orders { number again: number kind: __typename }
    """
    found = await data(asked, text, {"yes": True})
    first = shown(ROWS[0])
    assert found == {
        "some": [
            {
                "number": first["number"],
                "again": first["number"],
                "kind": "orders",
                "p": first["price"],
            }
        ],
        "orders": [{"__typename": "orders", "level": shown(row)["level"]} for row in ROWS[1:3]],
        "one": {
            "number": "9007199254740992",
            "again": "9007199254740992",
            "kind": "orders",
        },
    }
    assert list(found["some"][0]) == ["number", "again", "kind", "p"]


DOCUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("{ orders { %s } }" % EVERYTHING, {}),
    *(
        ("query ($w: ordersExpression) { orders(where: $w) { number } }", {"w": where})
        for where in (
            *WHERES,
            {"_or": [{}, {"tenant_id": {"_neq": "acme"}}]},
            {"_not": {"tenant_id": {"_eq": "acme"}}},
            {"tenant_id": {"_in": ["Beta", "γάμμα"]}},
            {"tenant_id": {"_eq": None}},
            {"price": {"_gt": "x"}},
        )
    ),
    ("{ orders(order_by: [{price: desc}], limit: 3, offset: 2) { tenant_id number } }", {}),
    ("{ orders(offset: 1000000) { number } }", {}),
    ("{ orders(limit: 100000) { number } }", {}),
    *(
        (
            BY_KEY % "price",
            {"t": row["tenant_id"], "n": str(row["number"])},
        )
        for row in ROWS[:6]
    ),
    *(
        (
            """query ($w: ordersExpression) { orders_aggregate(where: $w) { aggregate {
                count different: count(columns: [tenant_id], distinct: true)
                sum { price } avg { amount } min { tenant_id number } max { tenant_id price }
            } } }""",
            {"w": where},
        )
        for where in ({}, {"_not": {"tenant_id": {"_eq": "acme"}}}, {"tenant_id": {"_eq": "Beta"}})
    ),
]


async def test_a_row_outside_the_rule_is_as_if_it_were_not_there(
    views_home: ViewsHome, tmp_path_factory: pytest.TempPathFactory, filled: Views
) -> None:
    """Whoever is limited sees, in everything, what anybody would see if only its rows existed."""
    place = tmp_path_factory.mktemp("alone") / "views.db"
    alone_home = ViewsHome(f"sqlite:///{place}")
    alone = await alone_home.open()
    await alone.declare([ORDERS, COUNTERS])
    await fill(alone, [row for row in ROWS if row["tenant_id"] == "acme"])
    for query, variables in DOCUMENTS:
        limited = await ask(service(filled), query, variables, session(tenant="acme"))
        unlimited = await ask(service(alone), query, variables)
        assert limited == unlimited, (query, variables)
        assert "Beta" not in str(limited)
    await alone_home.close()


async def test_a_caller_of_no_tenant_sees_nothing(asked: GraphqlService) -> None:
    nobody = session(tenants=frozenset())
    answer = await ask(
        asked, "{ orders { number } orders_aggregate { aggregate { count } } }", None, nobody
    )
    assert answer["data"] == {"orders": [], "orders_aggregate": {"aggregate": {"count": 0}}}


class Moving:
    """A store in which a commit comes before each of the first reads."""

    def __init__(self, views: Views, moves: int) -> None:
        self._views = views
        self._moves = moves
        self._turn = asyncio.Lock()
        self.commits = 1
        self.reads = 0

    @property
    def dialect(self) -> str:
        return self._views.dialect

    async def select(self, view: str, query: RowQuery) -> RowsFound:
        async with self._turn:
            self.reads += 1
            if self.reads <= self._moves:
                self.commits += 1
                await fill(self._views, [order("acme", self.commits)], self.commits)
            return await self._views.select(view, query)


async def test_all_fields_of_a_document_are_as_of_one_moment(filled: Views) -> None:
    moving = Moving(filled, moves=3)
    text = "{ a: orders { number } b: orders { number } c: orders { number } }"
    answer = await ask(service(moving), text)
    found = answer["data"]
    assert found["a"] == found["b"] == found["c"]
    assert moving.reads == 6
    last = answer["extensions"]["ts_timestamp"]
    assert last == str(at(moving.commits))


async def test_a_document_whose_views_never_rest_is_refused(filled: Views) -> None:
    moving = Moving(filled, moves=10_000)
    answer = await ask(service(moving), "{ a: orders { number } b: orders { number } }")
    assert answer["errors"][0]["extensions"]["code"] == "views_moving"
    assert "data" not in answer
    one = await ask(service(moving), "{ orders { number } }")
    assert "errors" not in one


async def test_before_the_first_commit_there_is_no_moment(views_home: ViewsHome) -> None:
    opened = await views_home.open()
    await opened.declare([ORDERS, COUNTERS])
    answer = await ask(service(opened), "{ orders { number } counters { name } }")
    assert answer == {
        "data": {"orders": [], "counters": []},
        "extensions": {"frontier": None, "ts_timestamp": None},
    }


async def test_a_store_that_is_away_is_said_to_be(filled: Views) -> None:
    class Away:
        dialect = filled.dialect

        async def select(self, *arguments: Any) -> Any:
            raise ViewsUnavailable("the views do not answer", hint="Try again.")

    answer = await ask(service(Away()), "{ orders { number } }")
    assert answer["data"] is None
    assert answer["errors"] == [
        {
            "message": "the views do not answer",
            "extensions": {"code": "views_unavailable", "hint": "Try again."},
            "locations": [{"line": 1, "column": 3}],
            "path": ["orders"],
        }
    ]


async def test_more_rows_than_one_turn_writes_are_all_written(views_home: ViewsHome) -> None:
    opened = await views_home.open()
    await opened.declare([ORDERS, COUNTERS])
    await fill(opened, orders(2_500))
    asked = service(opened)
    found = await data(asked, "{ orders(limit: 10000) { number } }")
    assert len({row["number"] for row in found["orders"]}) == 2_500
    found = await data(asked, "{ orders(limit: 10000) { __typename } }")
    assert found["orders"] == [{"__typename": "orders"}] * 2_500
    assert len((await data(asked, "{ orders { number } }"))["orders"]) == 1_000
