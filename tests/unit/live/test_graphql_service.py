"""Subscriptions are read into what the engine needs, and requests are refused in one shape."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from tests.unit.live.graphql_views import (
    DESCRIBED,
    ORDERS,
    StillClock,
    executed,
    session,
    tenant_rule,
)
from tidemark.errors import AccessDenied
from tidemark.live.access.sessions import Session
from tidemark.live.filters import Filter, FilterLimits, both, parse_filter
from tidemark.live.graphql.limits import DocumentLimits
from tidemark.live.graphql.problems import DocumentRefused
from tidemark.live.graphql.rate import RateLimits
from tidemark.live.graphql.service import (
    GraphqlService,
    ServiceLimits,
    SubscriptionRequest,
    read_payload,
)
from tidemark.views.port import ViewsStore

# Nothing here reads a row.
NO_STORE = cast(ViewsStore, None)


def service(**options: Any) -> GraphqlService:
    options = {"rule": tenant_rule, "clock": StillClock()} | options
    return GraphqlService(DESCRIBED, NO_STORE, **options)


def subscribe(
    query: str, caller: Session | None = None, variables: Any = None, **options: Any
) -> SubscriptionRequest:
    payload = {"query": query, "variables": variables}
    return subscribed(service(**options), caller or session(), payload)


def subscribed(
    served: GraphqlService, caller: Session, body: bytes | dict[str, Any]
) -> SubscriptionRequest:
    """What a subscription asks for, read as a connection reads it."""
    payload = read_payload(body)
    operation = served.operation(caller, payload, connection="one")
    return served.subscription(caller, operation, payload.variables)


def refused(query: str, caller: Session | None = None, variables: Any = None) -> dict[str, Any]:
    with pytest.raises(DocumentRefused) as caught:
        subscribe(query, caller, variables)
    [error] = caught.value.errors
    return error


def test_a_subscription_is_a_view_a_filter_and_a_selection() -> None:
    request = subscribe(
        "subscription ($w: ordersExpression) { a: orders(where: $w) { data { price } } }",
        variables={"w": {"price": {"_gt": "1.5"}, "level": {"_in": ["low"]}}},
    )
    assert request.view == "orders"
    assert request.filter == parse_filter(
        ORDERS, {"price": {"_gt": "1.5"}, "level": {"_in": ["low"]}}
    )
    assert request.projection.columns == {"price"}
    assert (request.after, request.progress) == (None, False)


def test_a_subscription_resumes_after_a_timestamp_and_may_want_progress() -> None:
    request = subscribe('subscription { orders(after: "17", progress: true) { operation } }')
    assert (request.after, request.progress) == (17, True)
    request = subscribe("subscription { orders(after: null, progress: null) { operation } }")
    assert (request.after, request.progress) == (None, False)


@pytest.mark.parametrize("after", ["", "-1", "1.5", "x", "١٢", "1" * 19, "2025-01-01T00:00:00Z"])
def test_what_is_no_timestamp_of_an_update_cannot_be_resumed_from(after: str) -> None:
    error = refused(
        "subscription ($a: String) { orders(after: $a) { operation } }", None, {"a": after}
    )
    assert error["extensions"]["code"] == "invalid_argument"
    assert error["extensions"]["field"] == "after"


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"_or": [{}]},
        {"_or": [{"tenant_id": {"_neq": "acme"}}, {"tenant_id": {"_is_null": False}}]},
        {"_not": {"tenant_id": {"_eq": "acme"}}},
        {"tenant_id": {"_eq": "other"}},
    ],
)
def test_the_callers_rule_is_anded_below_whatever_it_asks_for(where: Any) -> None:
    request = subscribe(
        "subscription ($w: ordersExpression) { orders(where: $w) { operation } }",
        session(tenant="acme"),
        {"w": where},
    )
    rule = parse_filter(ORDERS, {"tenant_id": {"_in": ["acme"]}})
    assert request.filter == both(parse_filter(ORDERS, where), rule)


def test_who_may_see_nothing_is_told_so_whatever_it_asks_for() -> None:
    def nothing(view: str, caller: Session) -> Filter:
        raise AccessDenied("no rows for you", status=403, hint="Ask.")

    texts = (
        "subscription { orders { operation } }",
        "subscription { orders(where: {price: {_eq: null}}) { operation } }",
        'subscription { orders(after: "x") { operation } }',
    )
    for text in texts:
        with pytest.raises(DocumentRefused) as caught:
            subscribe(text, rule=nothing)
        assert (caught.value.code, caught.value.status) == ("forbidden", 403)
        assert [error["message"] for error in caught.value.errors] == ["no rows for you"]


def test_a_comparison_with_null_points_to_is_null() -> None:
    error = refused("subscription { orders(where: {price: {_eq: null}}) { operation } }")
    assert error["extensions"]["code"] == "invalid_filter"
    assert error["extensions"]["field"] == "where.price._eq"
    assert "_is_null" in error["extensions"]["hint"]


def test_numbers_in_variables_keep_every_digit() -> None:
    body = (
        b'{"query": "subscription ($w: ordersExpression) { orders(where: $w) { operation } }",'
        b'"variables": {"w": {"price": {"_eq": 12345678901234567890.123456789},'
        b'"number": {"_eq": 9007199254740993}}}}'
    )
    request = subscribed(service(), session(), body)
    assert request.filter == parse_filter(
        ORDERS,
        {"price": {"_eq": "12345678901234567890.123456789"}, "number": {"_eq": "9007199254740993"}},
    )


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ({"price": {"_eq": "1,5"}}, "Decimal cannot represent '1,5'"),
        ({"price": {"_eq": True}}, "Decimal cannot represent True"),
        ({"number": {"_eq": "9223372036854775808"}}, "BigInt cannot represent"),
        ({"number": {"_eq": "1.0"}}, "BigInt cannot represent '1.0'"),
        ({"placed_at": {"_eq": 17}}, "Timestamp cannot represent 17"),
        ({"level": {"_eq": "LOW"}}, "'LOW' does not exist in 'orders_level' enum"),
        ({"amount": {"_eq": 2**31}}, "non 32-bit"),
        ({"secret": {"_eq": "x"}}, "unknown field 'secret'"),
        ({"tenant_id": {"_in": ["a", None]}}, "not to be None"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(where: Any, part: str) -> None:
    text = "subscription ($w: ordersExpression) { orders(where: $w) { operation } }"
    error = refused(text, None, {"w": where})
    assert part in error["message"]
    assert error["extensions"]["code"] == "graphql_variables"


def test_literals_are_taken_as_exactly_as_variables() -> None:
    request = subscribe(
        'subscription { orders(where: {price: {_in: [1.10, 2, "3"]}, number: {_eq: 5},'
        ' placed_at: {_gt: "2025-01-01T00:00:00+01:00"}, level: {_gte: medium},'
        ' state: {_lt: "it\'s done"}, urgent: {_eq: true}}) { operation } }'
    )
    assert request.filter == parse_filter(
        ORDERS,
        {
            "price": {"_in": ["1.1", "2", "3"]},
            "number": {"_eq": "5"},
            "placed_at": {"_gt": "2024-12-31T23:00:00Z"},
            "level": {"_gte": "medium"},
            "state": {"_lt": "it's done"},
            "urgent": {"_eq": True},
        },
    )


def test_a_filter_may_be_so_large_and_no_larger() -> None:
    limits = ServiceLimits(filters=FilterLimits(max_list=2))
    text = "subscription { orders(where: {amount: {_in: [1, 2, 3]}}) { operation } }"
    with pytest.raises(DocumentRefused) as caught:
        subscribe(text, limits=limits)
    assert caught.value.code == "invalid_filter"


async def test_a_subscription_is_not_executed() -> None:
    answer = await executed(
        service(), session(), {"query": "subscription { orders { operation } }"}
    )
    assert answer["errors"][0]["extensions"]["code"] == "subscription_over_http"
    assert "data" not in answer


async def test_who_may_not_read_gets_nothing() -> None:
    caller = session(scopes=frozenset(("ingest",)))
    for query in ("{ orders { number } }", "{ __typename }", "nonsense"):
        answer = await executed(service(), caller, {"query": query})
        assert [error["extensions"]["code"] for error in answer["errors"]] == ["forbidden"]


async def test_the_schema_is_told_only_to_those_who_may_ask() -> None:
    def scope(caller: Session) -> None:
        caller.require("introspect")

    text = "{ __schema { queryType { name } } }"
    served = service(may_introspect=scope)
    answer = await executed(served, session(), {"query": text})
    assert answer == {"data": {"__schema": {"queryType": {"name": "Query"}}}}
    other = session(scopes=frozenset(("read",)))
    answer = await executed(served, other, {"query": text})
    assert answer["errors"][0]["extensions"]["code"] == "forbidden"
    assert "data" not in answer
    assert await executed(served, other, {"query": "{ __typename }"}) == {
        "data": {"__typename": "Query"}
    }


async def test_too_many_documents_are_refused_and_later_ones_are_not() -> None:
    clock = StillClock()
    served = service(clock=clock, limits=ServiceLimits(rate=RateLimits(1, 2)))
    for _ in range(2):
        assert "data" in await executed(served, session(), {"query": "{ __typename }"})
    answer = await executed(served, session(), {"query": "{ __typename }"})
    assert answer["errors"][0]["extensions"]["code"] == "rate_limited"
    with pytest.raises(DocumentRefused):
        subscribed(served, session(), {"query": "subscription { orders { operation } }"})
    clock.now_us += 1_000_000
    subscribed(served, session(), {"query": "subscription { orders { operation } }"})


def from_connection(served: GraphqlService, query: str, connection: str) -> None:
    served.operation(session(), read_payload({"query": query}), connection=connection)


def test_documents_that_have_to_be_read_are_limited_over_all_connections_of_a_caller() -> None:
    served = service(limits=ServiceLimits(rate=RateLimits(1, 3)))
    for number in range(3):
        from_connection(served, f"{{ a{number}: __typename }}", f"connection {number}")
    with pytest.raises(DocumentRefused) as caught:
        from_connection(served, "{ one_more: __typename }", "another")
    assert caught.value.code == "rate_limited"
    # Any number of connections may ask for what is known.
    for number in range(10):
        from_connection(served, "{ a0: __typename }", f"known {number}")


def test_a_connection_may_ask_only_so_often_for_what_is_known() -> None:
    served = service(limits=ServiceLimits(rate=RateLimits(1, 3)))
    for _ in range(3):
        from_connection(served, "{ __typename }", "one")
    with pytest.raises(DocumentRefused):
        from_connection(served, "{ __typename }", "one")


async def test_a_long_document_costs_more_until_it_is_known() -> None:
    served = service(limits=ServiceLimits(rate=RateLimits(1, 20)))
    long = "{ __typename }" + " " * 40_000
    # Ten tokens for the first, one for each of the others.
    for _ in range(1 + 10):
        assert "data" in await executed(served, session(), {"query": long})
    answer = await executed(served, session(), {"query": long})
    assert answer["errors"][0]["extensions"]["code"] == "rate_limited"
    unknown = service(limits=ServiceLimits(rate=RateLimits(1, 20)))
    codes = []
    for _ in range(3):
        answer = await executed(unknown, session(), {"query": "{" + " " * 40_000})
        codes.append(answer["errors"][0]["extensions"]["code"])
    assert codes == ["graphql_syntax", "graphql_syntax", "rate_limited"]


async def test_limits_on_documents_hold_for_queries() -> None:
    served = service(limits=ServiceLimits(documents=DocumentLimits(max_bytes=10)))
    answer = await executed(served, session(), {"query": "{ orders { number } }"})
    assert answer["errors"][0]["extensions"]["code"] == "document_too_large"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"query"',
        b"{}",
        b'{"query": 1}',
        b'{"query": "{a}", "variables": []}',
        b'{"query": "{a}", "operationName": 1}',
        b"\xff",
        b"[" * 100_000,
    ],
)
async def test_what_is_no_request_is_refused_as_such(body: bytes) -> None:
    answer = await executed(service(), session(), body)
    [error] = answer["errors"]
    assert error["extensions"]["code"] == "invalid_request"


def test_null_members_of_a_request_are_as_good_as_none() -> None:
    payload = read_payload(b'{"query": "{a}", "variables": null, "operationName": null}')
    assert (payload.variables, payload.operation_name) == ({}, None)


async def test_an_error_of_our_own_making_shows_nothing_of_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(view: str, caller: Session) -> Filter:
        raise RuntimeError("the password is 1234")

    answer = await executed(service(rule=broken), session(), {"query": "{ orders { number } }"})
    text = msgspec.json.encode(answer).decode()
    assert "1234" not in text
    [error] = answer["errors"]
    assert error["extensions"]["code"] == "internal_error"
    assert error["path"] == ["orders"]
    assert answer["data"] is None
    assert "the password is 1234" in caplog.text
