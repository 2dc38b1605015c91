"""What the parts have counted comes out of the metrics, also after a part was made anew."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from tidemark.live.webhooks.counters import Counters
from tidemark.ops.live_metrics import LiveMetrics


def test_the_seconds_of_attempts_are_a_histogram() -> None:
    registry = CollectorRegistry()
    metrics = LiveMetrics(registry)

    def at_most(bound: str) -> float | None:
        return registry.get_sample_value("tidemark_webhook_seconds_bucket", {"le": bound})

    first, second = Counters(), Counters()
    for seconds in (0.005, 0.3, 20.0):
        first.latency.add(seconds)
        metrics.saw_deliveries(first)
    # Nothing new is nothing more.
    metrics.saw_deliveries(first)
    metrics.saw_deliveries(None)
    second.latency.add(0.3)
    metrics.saw_deliveries(second)

    bounds = ("0.005", "0.25", "0.5", "15.0", "+Inf")
    assert [at_most(bound) for bound in bounds] == [1, 1, 3, 3, 4]
    assert registry.get_sample_value("tidemark_webhook_seconds_count") == 4
    total = registry.get_sample_value("tidemark_webhook_seconds_sum")
    assert total == pytest.approx(20.605)


def test_the_oldest_webhook_of_each_trigger_has_an_age_until_it_has_none() -> None:
    registry = CollectorRegistry()
    metrics = LiveMetrics(registry)

    def age_s(trigger: str) -> float | None:
        name = "tidemark_webhook_oldest_waiting_seconds"
        return registry.get_sample_value(name, {"trigger": trigger})

    metrics.saw_waiting({"hot": 4000.5, "cold": 2.0})
    assert (age_s("hot"), age_s("cold"), age_s("idle")) == (4000.5, 2.0, None)
    metrics.saw_waiting({"cold": 3.0})
    assert (age_s("hot"), age_s("cold")) == (0, 3.0)


def test_what_is_live_is_well_unless_it_is_said_to_be_degraded() -> None:
    registry = CollectorRegistry()
    metrics = LiveMetrics(registry)
    # Where nothing is live, nothing is wrong with it.
    assert registry.get_sample_value("tidemark_live_up") == 1
    metrics.saw_health(False)
    assert registry.get_sample_value("tidemark_live_up") == 0
    metrics.saw_health(True)
    assert registry.get_sample_value("tidemark_live_up") == 1
