"""What a whole server says of delivery: how far it is, whichever process is asked."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from tests.contract.frozen import frozen
from tests.crash.live_world import SETTINGS
from tests.integration.http_client import Api, usage
from tests.integration.test_http_health import metric
from tests.integration.trigger_calls import CREATE, until
from tests.services.graphql_socket import connected
from tests.services.http_calls import call
from tests.services.live_server import VIEW, LiveServer, position
from tests.services.postgres import PostgresServer
from tests.services.webhook_receiver import WebhookReceiver, answering
from tidemark.app.server import METRICS_PERIOD_S
from tidemark.config.sample import sample_text
from tidemark.live.triggers.leader_reports import LOOK_EVERY_S
from tidemark.ops.health import ANSWER_TIMEOUT_S
from tidemark.timestamps import parse_timestamp

EVENT_HEALTH: Final = "/admin/event-health"
ASKED_TIMES: Final = 12
SILENT_TRIGGER: Final = f"""
triggers:
  hot: {{view: {VIEW}, webhook: "https://one.example/hook", match: {{quantity: {{_gte: 10}}}}}}
"""
MATCH: Final = {"quantity": {"_gte": "10"}}


def part_of(live: LiveServer, path: str = EVENT_HEALTH, name: str = "delivery") -> dict[str, Any]:
    part: dict[str, Any] = call(live.server.base_url, "GET", path).json["parts"][name]
    return part


def create(live: LiveServer, webhook: str, name: str = "hot") -> None:
    wanted = {"name": name, "webhook": webhook, "match": MATCH}
    body = {"query": CREATE, "variables": {"input": wanted}}
    answer = call(live.server.base_url, "POST", "/graphql", json=body).json
    assert "errors" not in answer, answer


async def test_a_receiver_that_takes_nothing_holds_delivery_back(store_url: str | None) -> None:
    config = sample_text() + SETTINGS
    async with WebhookReceiver(answering(500)) as receiver:
        with LiveServer(config, store_url=store_url) as live:
            api = Api(live.server.base_url, "acme")
            live.commit([position("a", "X", "1")])
            create(live, receiver.url)
            results = [api.accept(usage("acme", customerRef=f"c{n}"))[0] for n in range(3)]
            for quantity, result in zip(("5", "20", "21"), results, strict=True):
                after_us = parse_timestamp(result["receivedAt"]) - live.received_at
                live.commit([position("a", "X", quantity)], after_us=after_us)
            first, _, third = [result["ingressSequence"] for result in results]

            await until(lambda: part_of(live).get("evaluatedSequence") == third)
            part = part_of(live)
            assert (part["state"], part["slowestTrigger"]) == ("ready", "hot")
            assert (part["lastSequence"], part["lagEvents"]) == (first, "2")
            assert part["receivedAt"] == results[0]["receivedAt"]
            assert part["lagSeconds"] > 0
            assert part["webhooks"]["oldestWaitingSeconds"] > 0
            assert part_of(live, "/readyz")["lastSequence"] == first
            name = "tidemark_webhook_oldest_waiting_seconds"
            await until(lambda: metric(api, name, trigger="hot") > 0)
            assert metric(api, "tidemark_copy_lag_events", copy="delivery") == 2
            assert metric(api, "tidemark_trigger_lag_seconds") == 0

            receiver.behave = answering(200)
            await until(lambda: part_of(live)["lastSequence"] == third)
            part = part_of(live)
            assert (part["lagEvents"], part["lagSeconds"]) == ("0", 0.0)
            assert "oldestWaitingSeconds" not in part["webhooks"]
            await until(lambda: metric(api, name, trigger="hot") == 0)


async def test_whichever_worker_is_asked_says_what_the_one_that_leads_knows() -> None:
    """Nobody signs, which only the leading process finds out."""
    config = sample_text() + SILENT_TRIGGER
    with LiveServer(config, {"TIDEMARK_HTTP__WORKERS": "3"}) as live:
        live.commit([position("a", "X", "1")])
        api = Api(live.server.base_url, "acme")
        await until(lambda: "secret to sign" in part_of(live).get("reason", ""))
        # Until all others have listened once more.
        await asyncio.sleep(2 * LOOK_EVERY_S)
        for _ in range(ASKED_TIMES):
            assert part_of(live)["state"] == "degraded"
            assert part_of(live, "/readyz", "live")["state"] == "degraded"
            assert metric(api, "tidemark_copy_up", copy="delivery") == 0
            assert "\ntidemark_live_up 0.0\n" in api.get("/metrics").body.decode()


async def test_a_store_of_triggers_that_hangs_keeps_no_other_number_waiting(
    second_postgres: PostgresServer,
) -> None:
    env = {"TIDEMARK_TRIGGER_STORE__URL": second_postgres.create_database()}
    with LiveServer(sample_text() + SETTINGS, env) as live:
        live.commit([position("a", "X", "1")])
        create(live, "https://one.example/hook")
        api = Api(live.server.base_url, "acme")
        with frozen(second_postgres):
            # It hangs for who counts what waits too.
            await asyncio.sleep(2 * METRICS_PERIOD_S)
            started = time.monotonic()
            async with connected(live.url):
                # Whoever answers asks that store too.
                assert metric(api, "tidemark_live_connections") == 1
            assert time.monotonic() - started < 2 * ANSWER_TIMEOUT_S
            assert "no answer" in part_of(live)["reason"]
        await until(lambda: part_of(live)["state"] == "ready")
