"""`explain` goes on to views, triggers and deliveries, told from what really happened."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import jsonschema_rs
import pytest

from tests.acceptance.cli_runs import tidemark
from tests.folding.runs import run_pipeline
from tests.integration.http_client import Api
from tests.services.tidemark_server import TidemarkServer
from tests.services.webhook_receiver import Received, WebhookReceiver, reply
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.opening import open_ledger
from tidemark.live.triggers.event_ids import event_id
from tidemark.timestamps import parse_timestamp
from tidemark.views.opening import open_views, views_place

CONFIG = """
streams:
  usage: {kind: usage}
  trades:
    identity: [trade_id]
    fields: {trade_id: string, account: string, quantity: decimal, gone: boolean}
meters:
  calls: {}
views:
  positions: {stream: trades, key: [account], deleteWhen: gone}
webhooks:
  secrets: [whsec_QSBzZWNyZXQgdGhhdCBpcyBuZXcgYW5kIGxvbmcgZW5vdWdo]
  allow: [127.0.0.1]
  id_prefix: tm_
  first_retry: 50ms
  max_retry: 50ms
  retry_for: 100ms
auth:
  keys:
    - {name: all, sha256: "%s", scopes: [ingest, read, triggers, introspect], tenants: ["*"]}
    - {name: reader, sha256: "%s", scopes: [read], tenants: ["*"]}
    - {name: acme, sha256: "%s", scopes: [read, triggers], tenants: [acme]}
triggers:
  above: {view: positions, webhook: "WEBHOOK/above", match: {quantity: {_gt: "10"}}}
  away: {view: positions, webhook: "WEBHOOK/away", match: {quantity: {_gt: "10"}}}
  asleep:
    {view: positions, webhook: "WEBHOOK/asleep", match: {quantity: {_gt: "10"}}, enabled: false}
  band:
    view: positions
    webhook: "WEBHOOK/band"
    match: {quantity: {_gt: "30"}}
    unmatch: {quantity: {_lt: "5"}}
  called: {view: calls, webhook: "WEBHOOK/called", match: {total: {_gte: "2"}}}
""" % tuple(hashlib.sha256(name.encode()).hexdigest() for name in ("all", "reader", "acme"))
TRIGGERS = ("above", "away", "asleep", "band", "called")
T = TypeVar("T")


class World:
    """A server, its pipeline run by hand, and a receiver that takes all but what goes `away`."""

    def __init__(self, server: TidemarkServer, receiver: WebhookReceiver) -> None:
        self.server = server
        self.api = Api(server.base_url, "acme", "all")
        self.receiver = receiver
        self.sent: dict[str, dict[str, Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.run(receiver.up())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def close(self) -> None:
        self.run(self.receiver.down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def send(self, **events: dict[str, Any]) -> None:
        for name, event in events.items():
            [self.sent[name]] = self.api.accept(event)

    async def fold(self) -> None:
        config = load_config(self.server.config_path, dict(self.server.env))
        ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
        try:
            await run_pipeline(config, ledger, views, views_place(config))
        finally:
            await views.close()
            await ledger.close()

    def graphql(self, query: str) -> Any:
        answer = self.api.call("POST", "/graphql", json={"query": query})
        return answer.json.get("data") if answer.status == 200 else None

    def explain(self, name: str, key: str = "all") -> dict[str, Any]:
        api = Api(self.server.base_url, "acme", key)
        answer = api.get("/admin/explain", sequence=self.sent[name]["ingressSequence"])
        assert answer.status == 200, answer
        explained: dict[str, Any] = answer.json
        return explained

    def trigger(self, name: str, trigger: str) -> dict[str, Any]:
        [found] = [it for it in self.explain(name)["triggers"] if it["trigger"] == trigger]
        told: dict[str, Any] = found
        return told

    def received_at(self, name: str) -> int:
        return parse_timestamp(self.sent[name]["receivedAt"])


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def trade(trade_id: str, account: str, quantity: str, *, gone: bool = False) -> dict[str, Any]:
    data = {"trade_id": trade_id, "account": account, "quantity": quantity, "gone": gone}
    return {"stream": "trades", "tenantId": "acme", "data": data}


def usage(quantity: str) -> dict[str, Any]:
    return {
        "tenantId": "acme",
        "metric": "calls",
        "customerRef": "c",
        "ts": "2025-01-31T12:00:00Z",
        "quantity": quantity,
    }


async def _behave(request: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(503, b"no") if request.path.endswith("/away") else reply(204))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Some trades before there are triggers, and some after."""
    receiver = WebhookReceiver(_behave)
    config = CONFIG.replace("WEBHOOK", receiver.url)
    with TidemarkServer(config) as server:
        found = World(server, receiver)
        try:
            _happen(found)
            yield found
        finally:
            found.close()
        assert "Traceback" not in server.log_text(), server.log_text()


def _happen(world: World) -> None:
    world.send(before=trade("t-0", "a0", "100"))
    # A running server would make the triggers as soon as the views are declared.
    world.server.stop()
    world.run(world.fold())
    world.server.start()
    query = "{ positions_triggers { name } calls_triggers { name } }"

    def has_triggers() -> bool:
        data = world.graphql(query)
        return data is not None and sum(len(it) for it in data.values()) == len(TRIGGERS)

    wait_until(has_triggers)
    world.send(
        small=trade("t-1", "a1", "1"),
        entered=trade("t-2", "a1", "20"),
        still=trade("t-3", "a1", "21"),
        left=trade("t-4", "a1", "2"),
        again=trade("t-5", "a1", "40"),
        between=trade("t-6", "a1", "12"),
        deleted=trade("t-7", "a1", "0", gone=True),
        counted=usage("3"),
    )
    world.run(world.fold())
    dead = '{ positions_trigger_deliveries(name: "away", status: dead) { deliveries { status } } }'

    def all_is_over() -> bool:
        data = world.graphql(dead)["positions_trigger_deliveries"]
        fired = {it.event_id for it in world.receiver.received if not it.path.endswith("/away")}
        return len(data["deliveries"]) == 4 and len(fired) == 7

    wait_until(all_is_over)


def test_the_views_that_show_the_change_are_named_with_its_timestamp(world: World) -> None:
    assert world.explain("entered")["views"] == [
        {
            "view": "positions",
            "row": {"tenant_id": "acme", "account": "a1"},
            "operation": "update",
            "tsTimestamp": str(world.received_at("entered")),
        }
    ]
    [shown] = world.explain("deleted")["views"]
    assert shown["operation"] == "delete"


def test_a_trigger_that_fired_is_told_with_its_delivery(world: World) -> None:
    told = world.trigger("entered", "above")
    identity = event_id("above", ["acme", "a1"], world.received_at("entered"), "tm_")
    delivery = told.pop("delivery")
    assert told == {
        "trigger": "above",
        "view": "positions",
        "row": {"tenant_id": "acme", "account": "a1"},
        "outcome": "fired",
        "reason": "the row entered its condition",
        "eventType": "MATCH",
        "eventId": identity,
    }
    assert identity in world.receiver.event_ids
    assert (delivery["status"], delivery["attempts"]) == ("delivered", 1)
    assert delivery["responseStatus"] == 204
    assert "settledAt" in delivery
    assert (
        "Fired above (MATCH, delivered), away (MATCH, dead)." in world.explain("entered")["answer"]
    )


def test_a_row_that_leaves_or_is_deleted_is_an_unmatch(world: World) -> None:
    for name in ("left", "deleted"):
        told = world.trigger(name, "above")
        assert (told["outcome"], told["eventType"]) == ("fired", "UNMATCH")


def test_a_dead_letter_is_told_with_its_last_answer(world: World) -> None:
    delivery = world.trigger("entered", "away")["delivery"]
    assert (delivery["status"], delivery["responseStatus"]) == ("dead", 503)
    assert delivery["attempts"] > 1
    assert "503" in delivery["lastError"]


@pytest.mark.parametrize(
    ("event", "trigger", "outcome", "reason"),
    [
        ("small", "above", "not_fired", "the row matched neither before nor after"),
        ("still", "above", "not_fired", "the row matched before and after"),
        ("entered", "band", "not_fired", "the row is between `match` and `unmatch`"),
        ("between", "band", "not_fired", "the row is between `match` and `unmatch`"),
        ("entered", "asleep", "not_yet", "it is disabled: it is switched off in the configuration"),
    ],
)
def test_a_trigger_that_did_not_fire_says_why(
    world: World, event: str, trigger: str, outcome: str, reason: str
) -> None:
    told = world.trigger(event, trigger)
    assert (told["outcome"], told["reason"]) == (outcome, reason)
    assert "eventId" not in told


def test_a_trigger_with_two_thresholds_is_told_by_its_past(world: World) -> None:
    told = world.trigger("again", "band")
    assert (told["outcome"], told["eventType"]) == ("fired", "MATCH")
    told = world.trigger("deleted", "band")
    assert (told["outcome"], told["eventType"]) == ("fired", "UNMATCH")


def test_a_meter_has_triggers_as_well(world: World) -> None:
    explained = world.explain("counted")
    assert [it["view"] for it in explained["views"]] == ["calls"]
    told = world.trigger("counted", "called")
    assert (told["outcome"], told["delivery"]["status"]) == ("fired", "delivered")


def test_a_change_from_before_a_trigger_is_none_of_its(world: World) -> None:
    explained = world.explain("before")
    assert explained["views"] != []
    assert "triggers" not in explained
    assert "notes" not in explained


def test_of_triggers_only_those_are_told_that_a_key_may_see(world: World) -> None:
    reader = world.explain("entered", "reader")
    assert "triggers" not in reader
    assert reader["notes"] == ["Of triggers only keys with the scope `triggers` are told."]
    assert "Fired" not in reader["answer"]
    assert reader["views"] == world.explain("entered")["views"]
    of_tenant = world.explain("entered", "acme")
    assert "triggers" not in of_tenant
    assert "Fired" not in of_tenant["answer"]


def test_every_explanation_fits_its_description(world: World) -> None:
    document = world.api.get("/openapi.json").json
    validator = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/Explanation", "components": document["components"]},
        validate_formats=True,
    )
    for name in world.sent:
        validator.validate(world.explain(name))


def test_people_read_it_after_everything_else(world: World) -> None:
    sequence = world.sent["entered"]["ingressSequence"]
    ran = tidemark(
        *("explain", sequence, "--url", world.server.base_url),
        cwd=world.server.directory,
        env={"TIDEMARK_API_KEY": "all"},
    )
    assert (ran.code, ran.err) == (0, "")
    told = ran.out[ran.out.index("\nviews\n") :]
    timestamp = world.received_at("entered")
    assert f"  positions: update of the row acme, a1 at {timestamp}\n\ntriggers\n" in told
    identity = event_id("above", ["acme", "a1"], timestamp, "tm_")
    assert (
        "  above on positions, row acme, a1: fired: MATCH: the row entered its condition\n"
        f"    event id     {identity}\n"
        "    delivery     delivered after 1 attempt\n"
        "    last answer  204\n"
    ) in told
    assert "  asleep on positions, row acme, a1: not yet: it is disabled" in told
    as_json = tidemark(
        *("explain", sequence, "--json", "--url", world.server.base_url),
        cwd=world.server.directory,
        env={"TIDEMARK_API_KEY": "all"},
    )
    assert json.loads(as_json.out) == world.explain("entered")
