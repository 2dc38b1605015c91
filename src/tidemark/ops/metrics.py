"""The Prometheus metrics of this process (of all its workers, when there are several)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)
from prometheus_client.metrics_core import Metric

from tidemark.errors import TidemarkError
from tidemark.ingress.drafts import Outcome
from tidemark.ops.eventtime import EventtimeNumbers
from tidemark.ops.frontier import Progress
from tidemark.ops.lag_metrics import LagNumbers
from tidemark.ops.live_metrics import LiveMetrics
from tidemark.ops.parts import Part
from tidemark.ops.set_aside import SetAsideNumbers
from tidemark.web.messages import Request, Response

# When a counter was made says nothing that the start of the process does not.
disable_created_metrics()  # type: ignore[no-untyped-call]

COMMIT_SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip


class Metrics:
    """Counts what ingress answered and what the ledger committed."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._answered = {
            "accepted": self._counter("accepted", "Events that were stored."),
            "duplicate": self._counter("duplicates", "Events that were there already."),
            "conflict": self._counter("conflicts", "Events whose key has other content."),
        }
        self._rejected = Counter(
            "tidemark_ingest_rejected",
            "Events that were refused, by code.",
            ["code"],
            registry=self.registry,
        )
        self._commit_events = Histogram(
            "tidemark_commit_events",
            "Events taken into the ledger by one commit.",
            buckets=COMMIT_SIZE_BUCKETS,
            registry=self.registry,
        )
        self._commit_seconds = Histogram(
            "tidemark_commit_seconds",
            "Seconds from taking a group off the queue to its being durable.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._commit_failures = Counter(
            "tidemark_commit_failures",
            "Groups that could not be committed, by code.",
            ["code"],
            registry=self.registry,
        )
        self._last_sequence = Gauge(
            "tidemark_ledger_last_sequence",
            "The highest ingress_sequence this process has committed or seen.",
            registry=self.registry,
            multiprocess_mode="max",
        )
        self._queue_depth = Gauge(
            "tidemark_ingest_queue_events",
            "Events that wait for a commit.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._frontier_sequence = self._gauge(
            "frontier_sequence", "The highest ingress_sequence that is in the views."
        )
        self._lag_events = self._gauge("lag_events", "Events that are not in the views yet.")
        self._lag_seconds = self._gauge(
            "lag_seconds", "Seconds that the oldest commit which is not in the views has waited."
        )
        self.live = LiveMetrics(self.registry)
        self.eventtime = EventtimeNumbers()
        self.set_aside = SetAsideNumbers()
        self.lag = LagNumbers()
        # What is no counter of ours is not added up over processes.
        self._looked_up = (self.eventtime, self.set_aside, self.lag)
        for collector in self._looked_up:
            self.registry.register(collector)
        self._read_queue_depth: Callable[[], int] = lambda: 0
        self._look: Callable[[], Awaitable[Mapping[str, Part]]] | None = None

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"tidemark_ingest_{name}", text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        """Of the pipeline. Every worker looks at the same views: who looked last is right."""
        return Gauge(
            f"tidemark_pipeline_{name}",
            text,
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )

    def watch_queue(self, depth: Callable[[], int]) -> None:
        self._read_queue_depth = depth

    def watch_parts(self, look: Callable[[], Awaitable[Mapping[str, Part]]]) -> None:
        """`look` says how far everything is, whatever is away."""
        self._look = look

    def answered(self, outcomes: Sequence[Outcome]) -> None:
        counts: dict[str, int] = {}
        for outcome in outcomes:
            status = outcome.status
            if status == "rejected" and outcome.rejection is not None:
                self._rejected.labels(outcome.rejection.code).inc()
            else:
                counts[status] = counts.get(status, 0) + 1
        for answered, count in counts.items():
            self._answered[answered].inc(count)
        self.look_at_queue()

    def look_at_queue(self) -> None:
        """Note how much waits. What is scraped from one worker must be current in all of them."""
        self._queue_depth.set(self._read_queue_depth())

    def committed(self, accepted: int, last_sequence: int, seconds: float) -> None:
        self._commit_seconds.observe(seconds)
        if accepted:
            self._commit_events.observe(accepted)
            self._last_sequence.set(last_sequence)

    def failed(self, error: TidemarkError) -> None:
        self._commit_failures.labels(error.code).inc()
        self.look_at_queue()

    def saw_sequence(self, last_sequence: int) -> None:
        self._last_sequence.set(last_sequence)

    def saw_pipeline(self, progress: Progress) -> None:
        self._frontier_sequence.set(progress.sequence)
        self._lag_events.set(progress.lag_events)
        self._lag_seconds.set(progress.lag_seconds)

    async def get(self, request: Request) -> Response:
        self.look_at_queue()
        if self._look is not None:
            self.lag.saw(await self._look())
        registry = self.registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            _AllWorkers(registry)  # type: ignore[no-untyped-call]
            for collector in self._looked_up:
                registry.register(collector)
        return Response(200, generate_latest(registry), CONTENT_TYPE_LATEST.encode())


class _AllWorkers(multiprocess.MultiProcessCollector):
    """Reads what the workers have written, but for files that nothing was written to yet: a worker
    that starts has such a one for a moment, and one that was killed then leaves it for ever."""

    def collect(self) -> Iterable[Metric]:
        files = [file for file in Path(self._path).glob("*.db") if _has_content(file)]
        found: Iterable[Metric] = self.merge(map(str, files))  # type: ignore[no-untyped-call]
        return found


def _has_content(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        # Its worker has ended since.
        return False
