"""Usage as keys may see it, before there is any, and while the views are away or not ours."""

from __future__ import annotations

import hashlib
import time

import pytest

from tests.integration.filled_views import FilledViews, MeterRow, counters
from tests.integration.http_client import Api, assert_refused, usage
from tests.integration.usage.metered import (
    ADJUSTMENTS,
    CONFIG,
    ERRORS,
    JANUARY,
    USAGE,
    commit,
    entries,
    late,
)
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer

# Who sees what.


def test_a_key_for_some_tenants_sees_only_theirs() -> None:
    keys = {"all": '["*"]', "one": "[acme]", "two": "[acme, globex]", "none": "[initech]"}
    lines = [
        f"    - {{name: {name}, sha256: '{hashlib.sha256(name.encode()).hexdigest()}', "
        f"scopes: [{'ingest, read' if name != 'none' else 'ingest'}], tenants: {tenants}}}"
        for name, tenants in keys.items()
    ]
    config = CONFIG + "auth:\n  keys:\n" + "\n".join(lines)
    with TidemarkServer(config) as server:
        apis = {name: Api(server.base_url, "acme", name) for name in keys}
        apis["all"].accept(usage("acme"))
        tenants = ("acme", "globex", "umbrella")
        FilledViews(server.config_path, server.env).commit(
            *(MeterRow("bytes_month", tenant, "c", JANUARY, counters("1")) for tenant in tenants),
            adjustments=[
                {**late(apis["all"], number), "tenant_id": tenant}
                for number, tenant in enumerate(tenants)
            ],
            errors=[
                {
                    "ingress_sequence": number,
                    "code": "c",
                    "message": "m",
                    "tenant_id": tenant,
                    "stream": "usage",
                    "idempotency_key": "k",
                }
                for number, tenant in enumerate(tenants)
            ],
        )
        for path, name in ((USAGE, "usage"), (ADJUSTMENTS, "adjustments"), (ERRORS, "errors")):
            for key, seen in (("all", tenants), ("one", tenants[:1]), ("two", tenants[:2])):
                found = entries(apis[key].get(path), name)
                assert tuple(entry["tenantId"] for entry in found) == seen
            assert_refused(apis["one"].get(path, tenantId="globex"), 403, "forbidden")
            assert_refused(apis["none"].get(path), 403, "forbidden")
            assert_refused(
                Api(server.base_url, "acme").get(path), 401, "unauthorized", "Authorization"
            )


# Before there is anything, and when the store is away.


@pytest.mark.parametrize("config", ["streams: {usage: {kind: usage}}\n", CONFIG])
def test_before_the_pipeline_ever_ran_there_is_nothing(config: str) -> None:
    with TidemarkServer(config) as server:
        api = Api(server.base_url, "acme")
        api.accept(usage("acme"))
        for path, name in ((USAGE, "usage"), (ADJUSTMENTS, "adjustments"), (ERRORS, "errors")):
            assert api.get(path).json == {name: [], "frontier": "0", "nextCursor": None}
            lines = api.get(path, format="csv").body.decode().split("\r\n")
            assert (len(lines), lines[1]) == (2, "")
        has_views = (server.directory / "tidemark-state" / "views.db").exists()
        assert has_views == ("meters" in config)
        part = api.get("/readyz").json["parts"]["pipeline"]
        if has_views:
            assert part["state"] == "ready"
            assert (part["lastSequence"], part["lagEvents"]) == ("0", "1")
        else:
            assert part["state"] == "disabled"


def test_views_that_are_away_do_not_stop_ingest_and_are_found_again(
    second_postgres: PostgresServer,
) -> None:
    url = second_postgres.create_database()
    second_postgres.stop("immediate")
    with TidemarkServer(CONFIG, {"TIDEMARK_VIEW_STORE__URL": url}) as server:
        api = Api(server.base_url, "acme")
        api.accept(usage("acme"))
        ready = api.get("/readyz")
        assert (ready.status, ready.json["status"]) == (200, "degraded")
        assert ready.json["parts"]["pipeline"]["reason"]
        for path in (USAGE, ADJUSTMENTS, ERRORS):
            answer = api.get(path)
            assert_refused(answer, 503, "views_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert_refused(api.get(USAGE, minSequence="1"), 503, "views_unavailable")
        second_postgres.start()
        assert api.get(USAGE).json["frontier"] == "0"
        FilledViews(server.config_path, server.env).commit(
            MeterRow("bytes_month", "acme", "c", JANUARY, counters("1"))
        )
        assert len(entries(api.get(USAGE, minSequence="1"))) == 1
        second_postgres.stop("immediate")
        assert_refused(api.get(USAGE), 503, "views_unavailable")
        second_postgres.start()
        assert len(entries(api.get(USAGE))) == 1
        assert "Traceback" not in server.log_text(), server.log_text()


def test_a_meter_that_was_counted_otherwise_is_not_shown_as_if_it_were_not() -> None:
    with TidemarkServer(CONFIG) as server:
        api = Api(server.base_url, "acme")
        api.accept(usage("acme"))
        FilledViews(server.config_path, server.env).commit(
            MeterRow("bytes_month", "acme", "c", JANUARY, counters("1")),
            adjustments=[late(api, 1)],
            changed={"timezone": "Europe/Berlin"},
        )
        assert_refused(api.get(USAGE), 503, "definition_changed", "meter")
        # What was adjusted is shown, without an end that nobody knows.
        [adjustment] = entries(api.get(ADJUSTMENTS), "adjustments")
        assert "periodEnd" not in adjustment


def test_views_of_another_ledger_are_noticed() -> None:
    with TidemarkServer(CONFIG) as other, TidemarkServer(CONFIG) as server:
        Api(other.base_url, "acme").accept(usage("acme"))
        place = server.directory / "tidemark-state" / "views.db"
        env = {"TIDEMARK_VIEW_STORE__URL": f"sqlite:///{place}"}
        FilledViews(other.config_path, env).commit()
        answer = Api(server.base_url, "acme").get("/readyz")
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        assert "another ledger" in answer.json["parts"]["pipeline"]["reason"]


def test_health_and_metrics_tell_how_far_the_pipeline_is_behind(
    api: Api, views: FilledViews
) -> None:
    sequence = commit(api, views)
    part = api.get("/readyz").json["parts"]["pipeline"]
    assert part == {
        "state": "ready",
        "lastSequence": str(sequence),
        "receivedAt": api.events()[-1]["receivedAt"],
        "lagEvents": "0",
        "lagSeconds": 0.0,
    }
    for number in range(3):
        api.accept(usage(api.tenant, customerRef=f"behind-{number}"))
    part = api.get("/readyz").json["parts"]["pipeline"]
    assert (part["lastSequence"], part["lagEvents"]) == (str(sequence), "3")
    assert part["lagSeconds"] > 0
    deadline = time.monotonic() + 20
    while metrics(api) != (sequence, 3):
        assert time.monotonic() < deadline, metrics(api)
        time.sleep(0.05)
    assert sample(api, "lag_seconds") > 0


def metrics(api: Api) -> tuple[float, float]:
    return sample(api, "frontier_sequence"), sample(api, "lag_events")


def sample(api: Api, name: str) -> float:
    for line in api.get("/metrics").body.decode().splitlines():
        if line.startswith(f"tidemark_pipeline_{name} "):
            return float(line.rpartition(" ")[2])
    raise AssertionError(name)
