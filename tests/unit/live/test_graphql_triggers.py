"""Triggers are managed through GraphQL by those who may, with what the port is given and gives."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from tests.unit.live.graphql_triggers import Triggers
from tests.unit.live.graphql_views import DESCRIBED, StillClock, executed, session, tenant_rule
from tidemark.live.access.sessions import Session
from tidemark.live.graphql.configured import trigger_management
from tidemark.live.graphql.service import GraphqlService
from tidemark.live.graphql.triggers_port import NewTrigger
from tidemark.views.port import ViewsStore

TRIGGER = "name view webhook match unmatch since until enabled disabled_reason"


@pytest.fixture
def triggers() -> Triggers:
    return Triggers()


async def ask(triggers: Triggers, query: str, caller: Session | None = None) -> Any:
    service = GraphqlService(
        DESCRIBED,
        cast(ViewsStore, None),
        rule=tenant_rule,
        clock=StillClock(),
        triggers=triggers,
        may_manage_triggers=trigger_management,
    )
    return await executed(service, caller or session(), {"query": query})


async def test_a_trigger_is_made_with_the_conditions_as_they_were_written(
    triggers: Triggers,
) -> None:
    answer = await ask(
        triggers,
        """mutation { create_orders_trigger(input: {
            name: "big", webhook: "https://a.example",
            match: {price: {_gt: 9.50}, level: {_in: [low, high]}}, unmatch: {price: {_lt: "5"}}
        }) { %s } }"""
        % TRIGGER,
    )
    match = {"price": {"_gt": "9.50"}, "level": {"_in": ["low", "high"]}}
    unmatch = {"price": {"_lt": "5"}}
    assert triggers.asked == [
        ("create", "ada", "orders", NewTrigger("big", "https://a.example", match, unmatch))
    ]
    assert answer == {
        "data": {
            "create_orders_trigger": {
                "name": "big",
                "view": "orders",
                "webhook": "https://a.example",
                "match": match,
                "unmatch": unmatch,
                "since": "17",
                "until": None,
                "enabled": True,
                "disabled_reason": None,
            }
        }
    }


async def test_triggers_are_listed_and_found(triggers: Triggers) -> None:
    answer = await ask(
        triggers,
        '{ orders_triggers { name since } orders_trigger(name: "big") { match }'
        ' none: orders_trigger(name: "x") { match } }',
    )
    assert answer["data"] == {
        "orders_triggers": [{"name": "big", "since": "1700000000000001"}],
        "orders_trigger": {"match": {"price": {"_gt": "9"}}},
        "none": None,
    }


async def test_triggers_are_listed_found_and_ended_whatever_their_view(triggers: Triggers) -> None:
    answer = await ask(
        triggers,
        '{ triggers { name view } trigger(name: "gone") { view disabled_reason }'
        ' none: trigger(name: "x") { view } of_view: orders_trigger(name: "gone") { view } }',
    )
    assert answer["data"] == {
        "triggers": [{"name": "big", "view": "orders"}, {"name": "gone", "view": "former"}],
        "trigger": {"view": "former", "disabled_reason": "its view"},
        "none": None,
        "of_view": None,
    }
    answer = await ask(triggers, 'mutation { delete_trigger(name: "big") { name } }')
    assert answer == {"data": {"delete_trigger": {"name": "big"}}}
    assert triggers.asked == [("delete", None, "big")]


@pytest.mark.parametrize("verb", ["delete", "enable", "disable", "restart"])
async def test_a_trigger_is_changed_by_name(triggers: Triggers, verb: str) -> None:
    answer = await ask(triggers, 'mutation { %s_orders_trigger(name: "big") { name } }' % verb)
    assert answer == {"data": {f"{verb}_orders_trigger": {"name": "big"}}}
    answer = await ask(triggers, 'mutation { %s_orders_trigger(name: "x") { name } }' % verb)
    assert answer["errors"][0]["message"] == "there is no trigger x"
    assert answer["errors"][0]["extensions"]["code"] == "not_found"
    assert triggers.asked == [(verb, "orders", "big"), (verb, "orders", "x")]


async def test_deliveries_are_paged_and_redelivered(triggers: Triggers) -> None:
    answer = await ask(
        triggers,
        """{ orders_trigger_deliveries(name: "big", status: dead, limit: 7, after: "a") {
            deliveries { event_id event_type row_key source_timestamp status attempts created_at
              next_attempt_at delivered_at response_status last_error payload
              last_attempts { attempted_at status response_status error } }
            next_cursor
        } }""",
    )
    assert answer["data"]["orders_trigger_deliveries"] == {
        "deliveries": [
            {
                "event_id": "ab" * 16,
                "event_type": "MATCH",
                "row_key": '["acme","1"]',
                "source_timestamp": "17",
                "status": "dead",
                "attempts": 3,
                "created_at": "1970-01-01T00:00:00.000000Z",
                "next_attempt_at": None,
                "delivered_at": None,
                "response_status": 500,
                "last_error": "the answer was 500",
                "payload": {"event_id": "ab" * 16},
                "last_attempts": [
                    {
                        "attempted_at": "1970-01-01T00:00:00.000000Z",
                        "status": "pending",
                        "response_status": None,
                        "error": "no answer",
                    },
                    {
                        "attempted_at": "1970-01-01T00:00:00.000001Z",
                        "status": "dead",
                        "response_status": 500,
                        "error": "no",
                    },
                ],
            }
        ],
        "next_cursor": "older",
    }
    await ask(triggers, '{ orders_trigger_deliveries(name: "big") { next_cursor } }')
    answer = await ask(triggers, 'mutation { redeliver_orders_trigger(name: "big") }')
    assert answer == {"data": {"redeliver_orders_trigger": 2}}
    await ask(triggers, 'mutation { redeliver_orders_trigger(name: "big", event_id: "ab") }')
    assert triggers.asked == [
        ("deliveries", "orders", "big", "dead", 7, "a", True),
        ("deliveries", "orders", "big", None, 100, None, False),
        ("redeliver", "orders", "big", None),
        ("redeliver", "orders", "big", "ab"),
    ]
    answer = await ask(
        triggers, '{ orders_trigger_deliveries(name: "big", limit: 1000000) { next_cursor } }'
    )
    assert answer["errors"][0]["extensions"]["code"] == "invalid_argument"


@pytest.mark.parametrize(
    "query",
    [
        "{ triggers { name } }",
        '{ trigger(name: "big") { name } }',
        'mutation { delete_trigger(name: "big") { name } }',
        "{ orders_triggers { name } }",
        '{ orders_trigger(name: "big") { name } }',
        '{ orders_trigger_deliveries(name: "big") { next_cursor } }',
        'mutation { delete_orders_trigger(name: "big") { name } }',
        'mutation { redeliver_orders_trigger(name: "big") }',
        'mutation { create_orders_trigger(input: {name: "a", webhook: "b", match: {}}) { name } }',
    ],
)
async def test_who_may_not_manage_triggers_cannot_even_see_them(
    triggers: Triggers, query: str
) -> None:
    caller = session(scopes=frozenset(("read",)))
    answer = await ask(triggers, query, caller)
    assert [error["extensions"]["code"] for error in answer["errors"]] == ["forbidden"]
    assert not any((answer["data"] or {}).values())
    assert triggers.asked == []


async def test_who_is_nobody_in_particular_has_no_triggers(triggers: Triggers) -> None:
    for claims, codes in (({}, ["forbidden"]), ({"sub": ""}, ["forbidden"]), ({"sub": "ada"}, [])):
        caller = msgspec.structs.replace(session(), by_token=True, claims=claims)
        answer = await ask(triggers, "{ triggers { name } }", caller)
        assert [error["extensions"]["code"] for error in answer.get("errors", ())] == codes


async def test_every_mutation_of_a_document_is_done_once_and_in_order(triggers: Triggers) -> None:
    await ask(
        triggers,
        """mutation {
            a: disable_orders_trigger(name: "big") { name }
            b: enable_orders_trigger(name: "big") { name }
            c: disable_orders_trigger(name: "big") { name }
        }""",
    )
    assert [asked[0] for asked in triggers.asked] == ["disable", "enable", "disable"]
