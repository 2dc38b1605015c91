"""What subscriptions, triggers and webhooks come to, in the metrics of the process.

The parts count for themselves, without knowing of Prometheus; here their counts are read about once
a second and passed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidemark.live.hub import ViewCounts
from tidemark.live.triggers.port import OutboxCount
from tidemark.live.webhooks.counters import LATENCY_BOUNDS_S, Latency
from tidemark.live.webhooks.counters import Counters as DeliveryCounters

_VIEW_COUNTERS: Final = {
    "changes": "Changes of rows that were looked at for subscribers.",
    "evaluations": "Times that a filter was evaluated for a row.",
    "skipped": "Times that a filter was not evaluated again because none of its columns changed.",
    "shared": "Messages to one more subscriber that did not have to be made again.",
}
_VIEW_GAUGES: Final = {
    "subscribers": "Subscriptions.",
    "filters": "Different filters of subscriptions.",
    "feeds": "Different pairs of a filter and a selection.",
}


class CountedHistogram(Histogram):
    """A histogram of what was counted elsewhere, with the same bounds."""

    def advance(self, counts: Iterable[int], total: float) -> None:
        for bucket, count in zip(self._buckets, counts, strict=True):
            bucket.inc(count)
        self._sum.inc(total)


class LiveMetrics:
    """Passes on what changed since the last look."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # The worst of all workers, since a subscriber may have any.
        self._up = Gauge(
            "tidemark_live_up",
            "Whether what is live is served and goes on: 1, or 0 if something is wrong.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._up.set(1)
        self._connections = Gauge(
            "tidemark_live_connections",
            "Websockets of GraphQL.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._view_counters = {
            name: Counter(f"tidemark_live_{name}", text, ["view"], registry=registry)
            for name, text in _VIEW_COUNTERS.items()
        }

        def gauge_of_view(name: str, text: str) -> Gauge:
            return Gauge(
                f"tidemark_live_{name}",
                text,
                ["view"],
                registry=registry,
                multiprocess_mode="livesum",
            )

        self._view_gauges = {name: gauge_of_view(name, text) for name, text in _VIEW_GAUGES.items()}
        self._rows_visible = gauge_of_view(
            "rows_visible",
            "Rows that subscriptions see, added up; those that resumed are left out.",
        )
        self._trigger_events = Counter(
            "tidemark_trigger_events",
            "Events of triggers that were put into the outbox.",
            ["trigger", "type"],
            registry=registry,
        )
        self._outbox = Gauge(
            "tidemark_webhook_outbox_events",
            "Events that are not delivered, by trigger and status.",
            ["trigger", "status"],
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._oldest_waiting = Gauge(
            "tidemark_webhook_oldest_waiting_seconds",
            "Seconds since the source timestamp of the oldest event that is to be delivered.",
            ["trigger"],
            registry=registry,
            multiprocess_mode="livemostrecent",
        )
        self._attempts = Counter(
            "tidemark_webhook_attempts",
            "Attempts to deliver an event, by what came of them.",
            ["outcome"],
            registry=registry,
        )
        self._in_flight = Gauge(
            "tidemark_webhook_in_flight",
            "Deliveries under way.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._seconds = CountedHistogram(
            "tidemark_webhook_seconds",
            "Seconds that attempts to deliver an event took.",
            buckets=LATENCY_BOUNDS_S,
            registry=registry,
        )
        self._latency = Latency()
        self._seen: dict[tuple[str, ...], int] = {}
        self._views: set[str] = set()
        self._outbox_labels: set[tuple[str, str]] = set()
        self._waiting: set[str] = set()

    def saw_health(self, is_up: bool) -> None:
        self._up.set(is_up)

    def saw_connections(self, count: int) -> None:
        self._connections.set(count)

    def saw_views(self, counts: Iterable[ViewCounts]) -> None:
        """`counts` has the views with subscriptions; counters go on, gauges of others are 0."""
        found = set()
        for count in counts:
            view, counters = count.view, count.counters
            found.add(view)
            for name, counter in self._view_counters.items():
                self._advance(counter.labels(view), ("view", view, name), getattr(counters, name))
            for name, gauge in self._view_gauges.items():
                gauge.labels(view).set(getattr(counters, name))
            self._rows_visible.labels(view).set(count.rows_visible)
        for view in self._views - found:
            for gauge in (*self._view_gauges.values(), self._rows_visible):
                gauge.labels(view).set(0)
        self._views = found

    def saw_trigger_events(self, events: Mapping[tuple[str, str], int]) -> None:
        for (trigger, kind), count in events.items():
            self._advance(
                self._trigger_events.labels(trigger, kind), ("trigger", trigger, kind), count
            )

    def saw_outbox(self, counts: Iterable[OutboxCount]) -> None:
        labels: set[tuple[str, str]] = set()
        for count in counts:
            labels.add((count.trigger, count.status))
            self._outbox.labels(count.trigger, count.status).set(count.count)
        for gone in self._outbox_labels - labels:
            self._outbox.labels(*gone).set(0)
        self._outbox_labels = labels

    def saw_waiting(self, ages_s: Mapping[str, float]) -> None:
        """How old the oldest of each trigger is that has any."""
        for trigger, age_s in ages_s.items():
            self._oldest_waiting.labels(trigger).set(age_s)
        for gone in self._waiting - ages_s.keys():
            self._oldest_waiting.labels(gone).set(0)
        self._waiting = set(ages_s)

    def saw_deliveries(self, counters: DeliveryCounters | None) -> None:
        self._in_flight.set(0 if counters is None else counters.in_flight)
        if counters is None:
            return
        for outcome in ("delivered", "failed", "dead"):
            self._advance(
                self._attempts.labels(outcome), ("attempt", outcome), getattr(counters, outcome)
            )

        self._advance_seconds(counters.latency)

    def _advance_seconds(self, latency: Latency) -> None:
        before = self._latency if latency.count >= self._latency.count else Latency()
        differences = (now - then for now, then in zip(latency.counts, before.counts, strict=True))
        self._seconds.advance(differences, latency.sum_s - before.sum_s)
        self._latency = latency.copy()

    def _advance(self, counter: Counter, name: tuple[str, ...], count: int) -> None:
        """A part that was made anew counts from 0 again."""
        before = self._seen.get(name, 0)
        counter.inc(count - before if count >= before else count)
        self._seen[name] = count
