"""A Prometheus that scrapes a server finds what the dashboard asks for, and has no alert."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.http_client import Api, usage
from tests.services.prometheus import Prometheus
from tests.services.tidemark_server import TidemarkServer

MONITORING: Final = Path(__file__).parents[2] / "monitoring"
ACCEPTED: Final = 30
SEEN_WITHIN_S: Final = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    with TidemarkServer(env={"TIDEMARK_HTTP__WORKERS": "2"}) as server:
        api = Api(server.base_url, "acme")
        for number in range(ACCEPTED):
            api.accept(usage("acme", idempotencyKey=f"k-{number}"))
        yield server


@pytest.fixture(scope="module")
def prometheus(
    server: TidemarkServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    rules = MONITORING / "prometheus" / "alerts.yaml"
    with Prometheus(directory, f"127.0.0.1:{server.port}", rules).running() as prometheus:
        yield prometheus


def seen(look: Callable[[], Any]) -> Any:
    """What it finds, as soon as it finds something."""
    deadline = time.monotonic() + SEEN_WITHIN_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def questions() -> list[str]:
    """Of the dashboard, with what Grafana puts into them."""
    document = json.loads((MONITORING / "grafana" / "tidemark.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    return [
        question.replace("$__rate_interval", "1m").replace("$instance", ".+") for question in found
    ]


def test_a_scrape_has_the_numbers_of_all_workers(prometheus: Prometheus) -> None:
    [series] = seen(lambda: prometheus.query("tidemark_ingest_accepted_total"))
    assert series["value"][1] == str(ACCEPTED)
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")


@pytest.mark.parametrize("question", questions())
def test_it_understands_what_the_dashboard_asks(question: str, prometheus: Prometheus) -> None:
    prometheus.query(question)


def test_what_every_server_has_is_on_the_dashboard(prometheus: Prometheus) -> None:
    answered = seen(lambda: [question for question in questions() if prometheus.query(question)])
    for name in (
        *("tidemark_ledger_up", "tidemark_clock_held", "tidemark_ledger_last_sequence"),
        *("tidemark_ingest_queue_events", "tidemark_copy_up", "tidemark_copy_lag_seconds"),
    ):
        assert any(name in question for question in answered), name


def test_every_rule_is_evaluated_and_a_server_that_is_well_has_no_alert(
    prometheus: Prometheus,
) -> None:
    def evaluated() -> list[dict[str, Any]]:
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    seen(lambda: prometheus.query("tidemark_ledger_up"))
    for rule in seen(evaluated):
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
        assert rule["state"] != "firing", rule["name"]
