"""`/healthz`, `/readyz` and `/metrics`, also while the database is away."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Final

from websockets.sync.client import ClientConnection, connect

from tests.contract.frozen import frozen
from tests.integration.http_client import Api, assert_refused, trade, usage
from tests.services.http_calls import Answer
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer
from tidemark.ops.health import ANSWER_TIMEOUT_S

METRICS_PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
COMES_BACK_WITHIN_S: Final = 20.0


def test_a_server_that_can_take_events_is_ready(api: Api) -> None:
    assert api.get("/healthz").json == {"status": "ok"}
    [result] = api.accept(usage(api.tenant))
    answer = api.get("/readyz")
    assert (answer.status, answer.json["status"]) == (200, "ready")
    parts = answer.json["parts"]
    assert list(parts) == [
        *("ledger", "clock", "sequence", "pipeline", "mirror", "landing", "live", "delivery"),
    ]
    for name in ("mirror", "landing"):
        assert parts[name]["state"] == "disabled"
        assert parts[name]["reason"]
    assert parts["ledger"] == {
        "state": "ready",
        "lastSequence": result["ingressSequence"],
        "receivedAt": result["receivedAt"],
    }
    assert parts["sequence"]["state"] == "disabled"
    assert parts["sequence"]["reason"]


def test_a_database_that_goes_away_and_comes_back_needs_no_restart_of_ours(
    second_postgres: PostgresServer, tenant: str
) -> None:
    url = second_postgres.create_database()
    env = {"TIDEMARK_MIRROR__ENABLED": "true"}
    with TidemarkServer(env=env, ledger_url=url) as server:
        api = Api(server.base_url, tenant)
        api.accept(usage(tenant, customerRef="before"))
        assert metric(api, "tidemark_ledger_up") == 1
        with connect(f"{server.websocket_url}/admin/events/tail?after=0", proxy=None) as tail:
            assert customer_of_next_event(tail) == "before"
            second_postgres.stop("immediate")

            answer = api.get("/readyz")
            assert (answer.status, answer.json["status"]) == (503, "unavailable")
            assert answer.json["parts"]["ledger"]["state"] == "unavailable"
            assert "PostgreSQL" in answer.json["parts"]["ledger"]["reason"]
            assert api.get("/healthz").status == 200
            assert metric(api, "tidemark_ledger_up") == 0
            answer = api.get("/admin/event-health")
            assert (answer.status, answer.json["status"]) == (200, "unavailable")
            parts = answer.json["parts"]
            assert {parts[name]["state"] for name in ("mirror", "pipeline")} == {"degraded"}
            assert "PostgreSQL" in parts["mirror"]["reason"]

            refused = api.post(usage(tenant, customerRef="meanwhile"))
            assert_refused(refused, 503, "ledger_unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert_refused(api.get("/admin/events"), 503, "ledger_unavailable")
            assert_refused(api.get("/admin/rejects"), 503, "ledger_unavailable")
            assert_refused(api.get("/admin/events/a/b"), 503, "ledger_unavailable")

            second_postgres.start()
            wait_until_ready(api)
            api.accept(usage(tenant, customerRef="meanwhile"), usage(tenant, customerRef="after"))
            assert customer_of_next_event(tail) == "meanwhile"
            assert customer_of_next_event(tail) == "after"
        stored = api.events()
        assert [event["customerRef"] for event in stored] == ["before", "meanwhile", "after"]
        assert [int(event["ingressSequence"]) for event in stored] == [1, 2, 3]
        failures = metric(api, "tidemark_commit_failures_total", code="ledger_unavailable")
        assert failures >= 1
        # The driver may grumble; we must not.
        assert "ERROR" not in server.log_text(), server.log_text()


def test_a_database_that_hangs_is_told_within_seconds(
    second_postgres: PostgresServer, tenant: str
) -> None:
    with TidemarkServer(ledger_url=second_postgres.create_database()) as server:
        api = Api(server.base_url, tenant)
        api.accept(usage(tenant))
        with frozen(second_postgres):
            started = time.monotonic()
            answer = api.get("/readyz")
            assert time.monotonic() - started < 2 * ANSWER_TIMEOUT_S
            assert (answer.status, answer.json["status"]) == (503, "unavailable")
            assert answer.json["parts"]["ledger"]["reason"] == "no answer within 5 s"
        wait_until_ready(api)
        api.accept(usage(tenant, customerRef="after"))
        assert "Traceback" not in server.log_text(), server.log_text()


def test_a_sequence_database_that_is_away_degrades_and_does_not_stop(tenant: str) -> None:
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/sequence"
    with TidemarkServer(env={"TIDEMARK_SEQUENCE__URL": away}) as server:
        api = Api(server.base_url, tenant)
        api.accept(usage(tenant))
        for path in ("/readyz", "/admin/event-health"):
            answer = api.get(path)
            assert (answer.status, answer.json["status"]) == (200, "degraded")
            assert "global_sequence" in answer.json["parts"]["sequence"]["reason"]
        assert "\ntidemark_sequence_up 0.0\n" in api.get("/metrics").body.decode()


def test_a_process_that_stores_nothing_knows_whether_the_sequence_database_is_there(
    second_postgres: PostgresServer, tenant: str
) -> None:
    second_postgres.start()
    url = second_postgres.create_database()
    with TidemarkServer(env={"TIDEMARK_SEQUENCE__URL": url}) as server:
        api = Api(server.base_url, tenant)

        def state() -> str:
            found: str = api.get("/admin/event-health").json["parts"]["sequence"]["state"]
            return found

        def wait_for(wanted: str) -> None:
            deadline = time.monotonic() + COMES_BACK_WITHIN_S
            while state() != wanted:
                assert time.monotonic() < deadline
                time.sleep(0.05)

        assert (state(), metric(api, "tidemark_sequence_up")) == ("ready", 1)
        second_postgres.stop("immediate")
        wait_for("degraded")
        assert metric(api, "tidemark_sequence_up") == 0
        second_postgres.start()
        wait_for("ready")
        assert metric(api, "tidemark_sequence_up") == 1


def test_metrics_count_what_was_answered(api: Api) -> None:
    names = ("accepted", "duplicates", "conflicts")

    def counts() -> dict[str, float]:
        found = {name: metric(api, f"tidemark_ingest_{name}_total") for name in names}
        rejected = metric(api, "tidemark_ingest_rejected_total", code="unknown_stream")
        return found | {"rejected": rejected, "size": metric(api, "tidemark_commit_events_sum")}

    before = counts()
    event = usage(api.tenant)
    api.send(event, event, {**event, "quantity": 7}, {**trade(api.tenant), "stream": "tread"})
    [last] = api.accept(trade(api.tenant))
    assert {name: value - before[name] for name, value in counts().items()} == {
        "accepted": 2,
        "duplicates": 1,
        "conflicts": 1,
        "rejected": 1,
        "size": 2,
    }
    assert metric(api, "tidemark_ledger_last_sequence") == int(last["ingressSequence"])
    assert metric(api, "tidemark_ingest_queue_events") == 0
    assert metric(api, "tidemark_commit_seconds_count") >= 2


def test_metrics_are_in_the_format_of_prometheus(sqlite_api: Api) -> None:
    answer = sqlite_api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for line in answer.body.decode().splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{[^}]*\})? [-+.0-9eInf]+", line), line


def test_every_metric_is_documented_and_every_documented_metric_is_there(sqlite_api: Api) -> None:
    text = sqlite_api.get("/metrics").body.decode()
    there = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    page = METRICS_PAGE.read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(tidemark_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert documented == there


def customer_of_next_event(tail: ClientConnection) -> str:
    while True:
        message = json.loads(tail.recv(timeout=COMES_BACK_WITHIN_S))
        if message["type"] == "event":
            customer: str = message["event"]["customerRef"]
            return customer


def metric(api: Api, name: str, **labels: str) -> float:
    """The value of one sample, 0 if there is none."""
    wanted = name + (
        "{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else ""
    )
    answer = api.get("/metrics")
    assert answer.status == 200
    for line in answer.body.decode().splitlines():
        sample, _, value = line.rpartition(" ")
        if sample == wanted:
            return float(value)
    return 0.0


def wait_until_ready(api: Api) -> Answer:
    deadline = time.monotonic() + COMES_BACK_WITHIN_S
    while True:
        answer = api.get("/readyz")
        if answer.status == 200:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
