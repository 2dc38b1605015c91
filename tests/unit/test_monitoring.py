"""The dashboard, the alerts and the runbook fit each other and the metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.metrics_core import Metric

from tidemark.ops.metrics import Metrics

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = ROOT / "monitoring" / "grafana" / "tidemark.json"
ALERTS: Final = ROOT / "monitoring" / "prometheus" / "alerts.yaml"
RUNBOOK: Final = ROOT / "docs" / "howto" / "runbook.md"
METRICS: Final = ROOT / "docs" / "reference" / "metrics.md"

_NAME = re.compile(r"\btidemark_\w+")
# What Prometheus makes of a metric of each type.
_ENDINGS: Final = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


def families() -> list[Metric]:
    """All that a server can show, also what has no samples yet."""
    return list(Metrics().registry.collect())


def known_names() -> set[str]:
    return {f.name + ending for f in families() for ending in _ENDINGS[f.type]}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    assert len({group["name"] for group in groups}) == len(groups)
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return document


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    """The questions of the dashboard, each with the title of its panel."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def test_every_metric_of_the_dashboard_is_there() -> None:
    for title, target in targets():
        found = _NAME.findall(target["expr"])
        assert found, title
        assert set(found) <= known_names(), title
    [variable] = [it for it in dashboard()["templating"]["list"] if it["name"] == "instance"]
    assert set(_NAME.findall(variable["definition"])) <= known_names()


def test_every_metric_of_an_alert_is_there() -> None:
    for rule in rules():
        found = _NAME.findall(rule["expr"])
        assert found, rule["alert"]
        assert set(found) <= known_names(), rule["alert"]


def test_every_expression_that_the_docs_give_is_of_metrics_that_are_there() -> None:
    pages = [*(ROOT / "docs" / "howto").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]
    base_names = {family.name for family in families()}
    for page in pages:
        for name in re.findall(r"`[^`\n]*?\b(tidemark_\w+)", page.read_text(encoding="utf-8")):
            if re.match(r"tidemark_(ingest|commit|ledger|copy|clock|pipeline|live|webhook)_", name):
                assert name in known_names() | base_names, (page.name, name)


@pytest.mark.parametrize("label", ["copy", "status", "outcome"])
def test_the_values_of_labels_that_are_asked_for_are_documented(label: str) -> None:
    asked = " ".join([*(rule["expr"] for rule in rules()), *(t["expr"] for _, t in targets())])
    page = METRICS.read_text(encoding="utf-8")
    for value in re.findall(rf'\b{label}="([^"]+)"', asked):
        assert f"`{value}`" in page, value


def test_every_alert_says_how_grave_it_is_and_where_to_read_on() -> None:
    for rule in rules():
        assert re.fullmatch(r"Tidemark[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description", "runbook"} == set(rule["annotations"])


def test_every_alert_has_its_entry_in_the_runbook_and_the_other_way_round() -> None:
    page = RUNBOOK.read_text(encoding="utf-8")
    entries = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    written = [entry.split("\n", 1)[0] for entry in entries]
    assert written == [rule["alert"] for rule in rules()]
    for entry in entries:
        assert re.findall(r"^\*\*(.+?):\*\*", entry, re.MULTILINE) == ["Means", "Look at", "Do"]
    for rule in rules():
        place = f"{RUNBOOK.relative_to(ROOT)}#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == place


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    document = dashboard()
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    [source] = [it for it in document["templating"]["list"] if it["type"] == "datasource"]
    assert source["query"] == "prometheus"
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == f"${{{source['name']}}}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_dashboard_shows_what_there_is_to_watch() -> None:
    asked = {name for _, target in targets() for name in _NAME.findall(target["expr"])}
    for wanted in (
        *("tidemark_ingest_accepted_total", "tidemark_commit_seconds_bucket"),
        *("tidemark_copy_lag_events", "tidemark_copy_lag_seconds", "tidemark_copy_up"),
        *("tidemark_eventtime_late_dropped_total", "tidemark_pipeline_adjustments_total"),
        *("tidemark_live_subscribers", "tidemark_webhook_outbox_events"),
    ):
        assert wanted in asked


def test_every_metric_is_documented_and_every_documented_metric_is_there() -> None:
    page = METRICS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tidemark_\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    assert dict(rows) == {
        f.name + ("_total" if f.type == "counter" else ""): f.type for f in families()
    }
