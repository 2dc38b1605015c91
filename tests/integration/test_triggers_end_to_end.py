"""Triggers through a whole server: from GraphQL and the configuration to a receiver on the wire."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from typing import Any, Final

import jwt
import pytest

from tests.crash.live_past import event_id
from tests.crash.live_world import SETTINGS
from tests.integration.trigger_calls import (
    CREATE,
    FIND,
    SILENCE_S,
    change,
    kinds,
    received,
    until,
)
from tests.services.http_calls import call
from tests.services.live_server import LiveServer, position
from tests.services.webhook_receiver import Received, WebhookReceiver, answering, reply
from tidemark.config.sample import sample_text

OPERATOR: Final = "tmk_operator-of-this-test"
TOKENS: Final = "a secret that only tests know, and long enough"
ACCESS: Final = f"""
auth:
  keys:
    - name: operator
      sha256: {hashlib.sha256(OPERATOR.encode()).hexdigest()}
      scopes: [read, triggers]
      tenants: ["*"]
  jwt:
    - name: app
      algorithm: HS256
      secret: {TOKENS}
      scopes: [read, triggers]
  rules:
    positions: {{trade_id: {{_eq: $jwt.desk}}}}
"""

LIST: Final = "{ positions_triggers { name } }"
DELIVERIES: Final = (
    "query ($name: String!) { positions_trigger_deliveries(name: $name)"
    " { deliveries { event_id status attempts response_status } } }"
)
REDELIVER: Final = (
    "mutation ($name: String!, $id: String) { redeliver_positions_trigger(name: $name,"
    " event_id: $id) }"
)


def token(subject: str, desk: str) -> str:
    claims = {"sub": subject, "desk": desk, "exp": int(time.time()) + 3600}
    return jwt.encode(claims, TOKENS, "HS256")


class Caller:
    """Somebody who asks a server over HTTP."""

    def __init__(self, live: LiveServer, bearer: str = OPERATOR) -> None:
        self._live = live
        self._headers = {"Authorization": f"Bearer {bearer}"}

    def answer(self, query: str, **variables: Any) -> dict[str, Any]:
        body = {"query": query, "variables": variables}
        answer: dict[str, Any] = call(
            self._live.server.base_url, "POST", "/graphql", json=body, headers=self._headers
        ).json
        return answer

    def data(self, query: str, **variables: Any) -> Any:
        """What the one field of the document gives."""
        answer = self.answer(query, **variables)
        assert "errors" not in answer, answer
        [value] = answer["data"].values()
        return value

    def error(self, query: str, **variables: Any) -> str:
        """The code of the error that the document gives."""
        [error] = self.answer(query, **variables)["errors"]
        code: str = error["extensions"]["code"]
        return code

    def create(self, name: str, webhook: str, match: Any, unmatch: Any = None) -> Any:
        wanted = {"name": name, "webhook": webhook, "match": match, "unmatch": unmatch}
        return self.data(CREATE, input=wanted)


@pytest.fixture(scope="module")
def live(store_url: str | None) -> Iterator[LiveServer]:
    """Shared: each test has an account of its own."""
    with LiveServer(sample_text() + SETTINGS + ACCESS, store_url=store_url) as live:
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


@pytest.fixture
def operator(live: LiveServer) -> Caller:
    return Caller(live)


def between(account: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Conditions with a gap between them, for the rows of one account."""
    mine = {"account": {"_eq": account}}
    return {**mine, "quantity": {"_gte": "100"}}, {**mine, "quantity": {"_lt": "90"}}


# Which events there are.


async def test_rows_that_enter_leave_and_are_deleted_are_told_in_order_under_their_ids(
    live: LiveServer, operator: Caller
) -> None:
    match, unmatch = between("swing")
    live.commit([position("swing", "OLD", "150")])
    async with WebhookReceiver() as receiver:
        made = operator.create("swing", receiver.url, match, unmatch)
        assert made["since"] == str(live.received_at)
        times = [
            live.commit([position("swing", "X", quantity)])
            for quantity in ("50", "120", "95", "130", "85", "99", "100")
        ]
        times.append(live.commit(deleted=[position("swing", "X", "100")]))
        left = live.commit([position("swing", "OLD", "1")])
        events = await received(receiver, 5)
    of_x = [event for event in events if event["data"]["symbol"] == "X"]
    assert kinds(of_x) == [
        ("MATCH", "120"), ("UNMATCH", "85"), ("MATCH", "100"), ("UNMATCH", "100")
    ]  # fmt: skip
    at = [times[1], times[4], times[6], times[7]]
    assert [int(event["source_timestamp"]) for event in of_x] == at
    assert [event["event_id"] for event in of_x] == [
        event_id("swing", ("swing", "X"), received_at) for received_at in at
    ]
    # It matched before there was a trigger: no MATCH, and its UNMATCH is not lost.
    [of_old] = [event for event in events if event["data"]["symbol"] == "OLD"]
    assert (of_old["event_type"], of_old["source_timestamp"]) == ("UNMATCH", str(left))
    assert {event["trigger_name"] for event in events} == {"swing"}
    assert len(receiver.received) == 5


async def test_a_receiver_that_fails_gets_the_events_of_a_row_in_their_order(
    live: LiveServer, operator: Caller
) -> None:
    failures = iter([500, 503, 200, 404, 200, 500])

    async def moody(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(next(failures, 200)))

    async with WebhookReceiver(moody) as receiver:
        operator.create("moody", receiver.url, between("moody")[0])
        times = [live.commit([position("moody", "X", q)]) for q in ("100", "1", "101", "2")]
        ids = [event_id("moody", ("moody", "X"), received_at) for received_at in times]
        await until(lambda: delivered_of(operator, "moody") == set(ids))
    assert list(dict.fromkeys(receiver.event_ids)) == ids
    assert receiver.event_ids == sorted(receiver.event_ids, key=ids.index)


def delivered_of(caller: Caller, name: str) -> set[str]:
    page = caller.data(DELIVERIES, name=name)
    return {one["event_id"] for one in page["deliveries"] if one["status"] == "delivered"}


# What can be done to a trigger.


async def test_a_disabled_trigger_stands_still_and_goes_on_where_it_was(
    live: LiveServer, operator: Caller
) -> None:
    async with WebhookReceiver() as receiver:
        operator.create("resting", receiver.url, between("resting")[0])
        live.commit([position("resting", "X", "100")])
        await received(receiver, 1)
        assert operator.data(change("disable"), name="resting")["enabled"] is False
        for quantity in ("1", "200"):
            live.commit([position("resting", "X", quantity)])
        await asyncio.sleep(SILENCE_S)
        assert len(receiver.received) == 1
        assert operator.data(change("enable"), name="resting")["enabled"] is True
        events = await received(receiver, 3)
    assert kinds(events) == [("MATCH", "100"), ("UNMATCH", "1"), ("MATCH", "200")]


async def test_a_receiver_that_is_gone_disables_its_trigger(
    live: LiveServer, operator: Caller
) -> None:
    async with WebhookReceiver(answering(410)) as receiver:
        operator.create("gone", receiver.url, between("gone")[0])
        live.commit([position("gone", "X", "100")])
        await until(lambda: operator.data(FIND, name="gone")["enabled"] is False)
        assert "410" in operator.data(FIND, name="gone")["disabled_reason"]
        live.commit([position("gone", "X", "1")])
        await asyncio.sleep(SILENCE_S)
        assert len(receiver.received) == 1
        receiver.behave = answering(200)
        assert operator.data(REDELIVER, name="gone") == 1
        operator.data(change("enable"), name="gone")
        events = await received(receiver, 3)
    assert kinds(events) == [("MATCH", "100"), ("MATCH", "100"), ("UNMATCH", "1")]


async def test_a_redelivery_has_the_same_id_and_the_same_bytes(
    live: LiveServer, operator: Caller
) -> None:
    async with WebhookReceiver() as receiver:
        operator.create("again", receiver.url, between("again")[0])
        live.commit([position("again", "X", "100")])
        [event] = await received(receiver, 1)
        await until(lambda: delivered_of(operator, "again") == {event["event_id"]})
        assert operator.data(REDELIVER, name="again", id=event["event_id"]) == 1
        await received(receiver, 2)
    first, second = receiver.received
    assert (first.event_id, first.body) == (second.event_id, second.body)


async def test_a_deleted_trigger_is_silent_and_its_name_is_free(
    live: LiveServer, operator: Caller
) -> None:
    match = between("ending")[0]
    async with WebhookReceiver() as receiver:
        operator.create("ending", receiver.url, match)
        live.commit([position("ending", "X", "100")])
        [first] = await received(receiver, 1)
        operator.data(change("delete"), name="ending")
        live.commit([position("ending", "X", "1")])
        await asyncio.sleep(SILENCE_S)
        assert len(receiver.received) == 1
        assert operator.data(FIND, name="ending") is None
        operator.create("ending", receiver.url, match)
        live.commit([position("ending", "X", "300")])
        events = await received(receiver, 2)
    assert kinds(events) == [("MATCH", "100"), ("MATCH", "300")]
    assert first["event_id"] != events[1]["event_id"]


# Who sees what.


async def test_a_trigger_sees_the_rows_that_its_creator_sees(live: LiveServer) -> None:
    ada = Caller(live, token("ada", "desk-a"))

    def row(quantity: str, desk: str, symbol: str = "X") -> Any:
        return position("ruled", symbol, quantity, trade_id=desk)

    asked = {"_or": [{"trade_id": {"_eq": "desk-b"}}, {"account": {"_eq": "ruled"}}]}
    async with WebhookReceiver() as receiver:
        ada.create("ruled", receiver.url, asked)
        live.commit([row("1", "desk-b", "HIDDEN"), row("2", "desk-a")])
        live.commit([row("3", "desk-b", "HIDDEN")])
        live.commit([row("4", "desk-b")])
        live.commit([row("5", "desk-b")])
        live.commit([row("6", "desk-a")])
        events = await received(receiver, 3)
        await asyncio.sleep(SILENCE_S)
    # A row that is given to another desk is as if deleted: what it is then is not shown.
    assert kinds(events) == [("MATCH", "2"), ("UNMATCH", "2"), ("MATCH", "6")]
    assert {event["data"]["trade_id"] for event in events} == {"desk-a"}
    assert len(receiver.received) == 3


async def test_the_trigger_of_one_caller_is_not_there_for_another(
    live: LiveServer, operator: Caller
) -> None:
    ada, bob = Caller(live, token("ada", "desk-a")), Caller(live, token("bob", "desk-a"))
    async with WebhookReceiver() as receiver:
        ada.create("private", receiver.url, {"account": {"_eq": "private"}})
        for caller, names in ((ada, {"private"}), (bob, set())):
            listed = {one["name"] for one in caller.data(LIST)}
            assert listed & {"private"} == names
        assert "private" in {one["name"] for one in operator.data(LIST)}
        assert bob.data(FIND, name="private") is None
        for document in (DELIVERIES, REDELIVER, *map(change, ("delete", "enable", "disable"))):
            assert bob.error(document, name="private") == "not_found"
        assert ada.data(change("delete"), name="private")["name"] == "private"


async def test_a_webhook_to_a_private_address_is_refused_unless_it_is_allowed(
    operator: Caller,
) -> None:
    # The configuration of these tests allows 127.0.0.1.
    refused = [
        "http://127.0.0.2/hook",
        "http://10.0.0.1/hook",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/hook",
        "http://localhost/hook",
        "http://0x7f000001/hook",
    ]
    for url in refused:
        wanted = {"name": "inward", "webhook": url, "match": {}}
        assert operator.error(CREATE, input=wanted) == "webhook_refused", url
    assert operator.data(FIND, name="inward") is None
