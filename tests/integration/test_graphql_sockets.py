"""Websockets of GraphQL as `graphql-transport-ws` has them, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.services.graphql_socket import PROTOCOL, UPDATE, GraphqlSocket, connected, opened
from tests.services.live_server import LiveServer, position
from tidemark.config.sample import sample_text

CONFIG = """
live:
  max_subscriptions: 8
  max_subscriptions_per_connection: 5
  max_document_bytes: 20000
  max_snapshot_rows: 3
webhooks:
  secrets: [whsec_QSBzZWNyZXQgdGhhdCBpcyBuZXcgYW5kIGxvbmcgZW5vdWdo]
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    """Shared: each test has rows of accounts of its own."""
    with LiveServer(sample_with(CONFIG)) as live:
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


@pytest.fixture
async def client(live: LiveServer) -> AsyncIterator[GraphqlSocket]:
    async with connected(live.url) as client:
        yield client


def sample_with(settings: str) -> str:
    head, _, _ = sample_text().partition("# Subscriptions and queries over GraphQL.")
    return head + settings


def only(account: str) -> dict[str, Any]:
    return {"account": {"_eq": account}}


# Beginning, and being alive.


async def test_the_subprotocol_is_agreed_on_and_a_connection_acknowledged(
    live: LiveServer,
) -> None:
    async with opened(live.url) as client:
        assert client.connection.subprotocol == PROTOCOL
        await client.send({"type": "connection_init", "payload": {"any": "thing"}})
        assert await client.receive() == {"type": "connection_ack"}


async def test_a_ping_is_answered_with_its_payload_even_before_the_beginning(
    live: LiveServer,
) -> None:
    async with opened(live.url) as client:
        await client.send({"type": "ping"})
        assert await client.receive() == {"type": "pong"}
        await client.send('{"type":"ping","payload":{"n":1.10,"of":[true,null,"ü"]}}')
        pong = await client.connection.recv()
        assert pong == '{"type":"pong","payload":{"n":1.10,"of":[true,null,"ü"]}}'
        await client.send({"type": "pong"})
        await client.init()


@pytest.mark.parametrize(
    "message",
    [
        "",
        "hello",
        "[]",
        "null",
        '{"type":"connection_init"',
        '{"type":"start","id":"1","payload":{}}',
        '{"id":"1"}',
        '{"type":"connection_init","payload":"none"}',
        '{"type":"subscribe","id":"1"}',
        '{"type":"subscribe","id":1,"payload":{"query":"{ __typename }"}}',
        '{"type":"subscribe","id":"","payload":{"query":"{ __typename }"}}',
        '{"type":"complete"}',
        '{"type":"ping","payload":' + '{"a":' * 3_000 + "1" + "}" * 3_001,
        b'{"type":"connection_init"}',
        b"\x00\xff",
    ],
    ids=lambda message: repr(message)[:40],
)
async def test_what_is_no_message_closes_with_4400(live: LiveServer, message: str | bytes) -> None:
    async with opened(live.url) as client:
        await client.send(message)
        code, reason = await client.closed()
    assert code == 4400
    assert reason


async def test_text_that_is_no_utf8_closes_with_1007(live: LiveServer) -> None:
    async with opened(live.url) as client:
        await client.connection.send(b"\xff\xfe", text=True)
        assert (await client.closed())[0] == 1007


@pytest.mark.parametrize("message", ["x" * 20_001, "ü" * 10_001, "x" * 6_000_000], ids=len)
async def test_a_message_that_is_too_large_closes_with_1009(
    client: GraphqlSocket, message: str
) -> None:
    with contextlib.suppress(ConnectionClosed):
        await client.send(message)
    assert (await client.closed())[0] == 1009


async def test_one_who_subscribes_before_the_beginning_is_closed_with_4401(
    live: LiveServer,
) -> None:
    async with opened(live.url) as client:
        await client.ask("1", "{ __typename }")
        assert await client.closed() == (4401, "Unauthorized")


async def test_one_who_begins_twice_is_closed_with_4429(client: GraphqlSocket) -> None:
    await client.send({"type": "connection_init"})
    assert await client.closed() == (4429, "Too many initialisation requests")


async def test_an_id_in_use_closes_with_4409(client: GraphqlSocket) -> None:
    await client.subscribe("one", where=only("nobody"))
    await client.update("one")
    await client.subscribe("one", where=only("nobody"))
    assert await client.closed() == (4409, "Subscriber for one already exists")


@pytest.mark.parametrize("protocol", [None, "graphql-ws"])
async def test_another_subprotocol_closes_with_4406(live: LiveServer, protocol: Any) -> None:
    async with opened(live.url, protocol=protocol) as client:
        assert await client.closed() == (4406, "Subprotocol not acceptable")


async def test_a_websocket_from_a_foreign_page_is_refused(live: LiveServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with opened(live.url, origin="https://elsewhere.example"):
            pass
    assert refused.value.response.status_code == 403


# Operations.


async def test_queries_and_mutations_are_answered_and_completed(
    client: GraphqlSocket, live: LiveServer
) -> None:
    live.commit([position("query", "X", "2.50")])
    await client.ask(
        "q",
        "query ($a: String!) { positions(where: {account: {_eq: $a}}) { quantity } }",
        a="query",
    )
    answer = await client.receive()
    assert (answer["type"], answer["id"]) == ("next", "q")
    assert answer["payload"]["data"] == {"positions": [{"quantity": "2.5"}]}
    assert await client.receive() == {"type": "complete", "id": "q"}

    await client.ask(
        "m",
        'mutation { create_positions_trigger(input: {name: "t", webhook: "https://a.example/", '
        'match: {account: {_eq: "query"}}}) { name } }',
    )
    answer = await client.receive()
    assert answer["payload"]["data"] == {"create_positions_trigger": {"name": "t"}}, answer
    assert await client.receive() == {"type": "complete", "id": "m"}


async def test_an_error_in_one_field_comes_with_the_answer(client: GraphqlSocket) -> None:
    await client.ask("q", "{ positions(limit: -1) { account } }")
    answer = await client.receive()
    assert answer["type"] == "next"
    [error] = answer["payload"]["errors"]
    assert error["extensions"]["field"] == "limit"
    assert await client.receive() == {"type": "complete", "id": "q"}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("subscription { nothing { operation } }", "graphql_invalid"),
        ("subscription { positions { data { nothing } } }", "graphql_invalid"),
        ("subscription {", "graphql_syntax"),
        ("subscription { positions { operation } trades { operation } }", "graphql_invalid"),
        ("{ nothing }", "graphql_invalid"),
        ("", "graphql_syntax"),
    ],
)
async def test_a_document_that_does_not_hold_ends_its_operation_only(
    client: GraphqlSocket, live: LiveServer, query: str, code: str
) -> None:
    await client.subscribe("other", where=only(query))
    await client.update("other")
    await client.ask("1", query)
    assert (await client.error())["extensions"]["code"] == code
    at = live.commit([position(query)])
    assert len(await client.updates_until(at, "other")) == 1


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({"quantity": {"_gt": None}}, "where.quantity._gt"),
        ({"_or": [{}, {"account": {"_eq": None}}]}, "where._or[1].account._eq"),
    ],
)
async def test_a_filter_that_does_not_hold_names_its_field(
    client: GraphqlSocket, where: Any, field: str
) -> None:
    await client.subscribe(where=where)
    error = await client.error()
    assert error["extensions"]["code"] == "invalid_filter"
    assert error["extensions"]["field"] == field


async def test_a_subscription_without_a_query_is_an_error(client: GraphqlSocket) -> None:
    await client.send({"type": "subscribe", "id": "1", "payload": {}})
    assert (await client.error())["extensions"]["code"] == "invalid_request"


async def test_decimals_of_variables_keep_every_digit(
    client: GraphqlSocket, live: LiveServer
) -> None:
    live.commit([position("exact", "X", "12345678901234567890.000000001")])
    for number, found in (("12345678901234567890.000000001", 1), ("12345678901234567890.0", 0)):
        await client.send(
            '{"type":"subscribe","id":"q","payload":{"variables":{"n":' + number + '},"query":'
            '"query ($n: Decimal!) { positions(where: {quantity: {_eq: $n}}) { quantity } }"}}'
        )
        assert len((await client.receive())["payload"]["data"]["positions"]) == found
        await client.receive()


async def test_what_is_complete_is_sent_no_more_and_its_id_is_free(
    client: GraphqlSocket, live: LiveServer
) -> None:
    await client.subscribe(where=only("complete"))
    await client.update()
    await client.send({"type": "complete", "id": "1"})
    await client.send({"type": "complete", "id": "never heard of"})
    await client.send({"type": "ping"})
    assert await client.receive() == {"type": "pong"}
    live.commit([position("complete")])
    await client.subscribe(where=only("complete"))
    update = await client.update()
    assert (update["operation"], update["data"]["quantity"]) == ("INSERT", "1")
    assert (await client.update())["operation"] == "PROGRESS"
    await client.send({"type": "ping"})
    assert await client.receive() == {"type": "pong"}


# Limits.


async def test_a_connection_has_so_many_subscriptions_and_no_more(client: GraphqlSocket) -> None:
    for number in range(5):
        await client.subscribe(str(number), where=only("limit"))
        await client.update(str(number))
    await client.subscribe("one more", where=only("limit"))
    error = await client.error("one more")
    assert error["extensions"]["code"] == "too_many_subscriptions"
    await client.send({"type": "complete", "id": "0"})
    await client.subscribe("one more", where=only("limit"))
    await client.update("one more")


async def test_a_process_has_so_many_subscriptions_and_no_more(live: LiveServer) -> None:
    async with connected(live.url) as first, connected(live.url) as second:
        for number in range(8):
            client = first if number < 5 else second
            await client.subscribe(str(number), where=only("limit"))
            await client.update(str(number))
        await second.subscribe("one more", where=only("limit"))
        error = await second.error("one more")
        assert error["extensions"]["code"] == "too_many_subscriptions"
        assert "process" in error["message"]


async def test_a_snapshot_that_is_too_large_is_refused(
    client: GraphqlSocket, live: LiveServer
) -> None:
    live.commit([position("large", str(number)) for number in range(4)])
    await client.subscribe(where=only("large"))
    error = await client.error()
    assert error["extensions"]["code"] == "snapshot_too_large"
    assert error["extensions"]["field"] == "where"
    await client.subscribe(where=only("large") | {"symbol": {"_neq": "0"}})
    assert [(await client.update())["operation"] for _ in range(3)] == ["INSERT"] * 3


# Many at once.


async def test_clients_with_different_filters_see_each_their_own(live: LiveServer) -> None:
    async with connected(live.url) as few, connected(live.url) as many:
        await few.subscribe(where=only("own") | {"quantity": {"_gte": "10"}})
        await many.subscribe(where=only("own") | {"quantity": {"_lt": "10"}})
        await few.update()
        await many.update()
        at = live.commit([position("own", "X", "9"), position("own", "Y", "10")])
        assert [u["data"]["symbol"] for u in await few.updates_until(at)] == ["Y"]
        assert [u["data"]["symbol"] for u in await many.updates_until(at)] == ["X"]
        at = live.commit([position("own", "X", "11")])
        [entered] = await few.updates_until(at)
        [left] = await many.updates_until(at)
    assert (entered["operation"], left["operation"]) == ("INSERT", "DELETE")
    assert entered["data"] == {"account": "own", "symbol": "X", "quantity": "11"}
    assert left["data"] == {"account": "own", "symbol": "X", "quantity": None}


async def test_a_connection_holds_many_subscriptions_with_selections_of_their_own(
    client: GraphqlSocket, live: LiveServer
) -> None:
    await client.subscribe("all", where=only("many"))
    await client.ask(
        "price",
        'subscription { mine: positions(where: {account: {_eq: "many"}}) '
        "{ operation data { price } } }",
    )
    await client.update("all")
    live.commit([position("many")])
    messages = [await client.receive() for _ in range(3)]
    assert [message["id"] for message in messages].count("all") == 2
    [other] = [message for message in messages if message["id"] == "price"]
    assert other["payload"]["data"] == {"mine": {"operation": "INSERT", "data": {"price": "1.5"}}}
    # The quantity is not what this one selected, so it hears nothing of it.
    at = live.commit([position("many", quantity="2")])
    [update] = await client.updates_until(at, "all")
    assert update["operation"] == "UPDATE"
    assert set(update["fields"]) == {"tenant_id", "account", "symbol", "quantity"}


async def test_a_query_is_answered_between_updates(client: GraphqlSocket, live: LiveServer) -> None:
    await client.subscribe(where=only("between"))
    await client.update()
    await client.ask("q", "{ __typename }")
    live.commit([position("between")])
    received = [await client.receive() for _ in range(4)]
    assert sorted(message["id"] for message in received) == ["1", "1", "q", "q"]


async def test_a_commit_reaches_a_subscriber_whole(client: GraphqlSocket, live: LiveServer) -> None:
    await client.subscribe(where=only("whole"))
    await client.update()
    first = live.commit([position("whole", str(number)) for number in range(3)])
    updates = [await client.update() for _ in range(4)]
    assert [update["operation"] for update in updates] == ["INSERT"] * 3 + ["PROGRESS"]
    assert {update["ts_timestamp"] for update in updates} == {str(first)}
    second = live.commit(
        [position("whole", "0", "2")], deleted=[position("whole", "1"), position("whole", "2")]
    )
    updates = [await client.update() for _ in range(4)]
    assert sorted(u["operation"] for u in updates[:3]) == ["DELETE", "DELETE", "UPDATE"]
    assert {update["ts_timestamp"] for update in updates} == {str(second)}


async def test_one_who_sends_without_pause_keeps_nobody_waiting(live: LiveServer) -> None:
    async with connected(live.url) as busy, connected(live.url) as other:
        ping = json.dumps({"type": "ping"})

        async def flood() -> None:
            for _ in range(20_000):
                await busy.connection.send(ping)

        async def listen() -> None:
            async for _ in busy.connection:
                pass

        work = [asyncio.create_task(flood()), asyncio.create_task(listen())]
        for _ in range(20):
            await asyncio.wait_for(other.send({"type": "ping"}), 5)
            assert await other.receive() == {"type": "pong"}
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        busy.connection.transport.abort()


async def test_fragments_of_one_document_and_its_name_are_understood(
    client: GraphqlSocket, live: LiveServer
) -> None:
    live.commit([position("named")])
    await client.send(
        {
            "type": "subscribe",
            "id": "1",
            "payload": {
                "query": f"query A {{ __typename }} subscription B($a: String!) {{ positions("
                f"where: {{account: {{_eq: $a}}}}) {{ ...Change }} }} "
                f"fragment Change on positionsUpdate {{ {UPDATE} }}",
                "operationName": "B",
                "variables": {"a": "named"},
                "extensions": {"ignored": True},
            },
        }
    )
    assert (await client.update())["operation"] == "INSERT"
