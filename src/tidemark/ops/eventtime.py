"""What the pipeline's time stage has counted for each stream, for the metrics of a server.

The stage counts since the beginning of the ledger and keeps its counts among the views, so every
process of a server shows the same, whichever is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark.clock import MICROS_PER_SECOND
from tidemark.config import Config
from tidemark.ops.opened_views import OpenedViews
from tidemark.pipeline.output.batch import Frontier

# As the time stage names it. Whoever imports the stage imports the engine that it computes with.
STATE_NAME: Final = "time"
_STREAM: Final = ("stream",)


class StreamNumbers(msgspec.Struct, frozen=True):
    """The counts of one stream, as the time stage keeps them."""

    buffer_size: int
    late_dropped_count: int
    watermark_emitted_count: int
    wild_count: int
    max_timestamp_seen: int | None


class _State(msgspec.Struct):
    """What matters here of the time stage's state."""

    metrics: dict[str, StreamNumbers]


_decode = msgspec.msgpack.Decoder(_State).decode


def read_numbers(state: bytes) -> dict[str, StreamNumbers]:
    """The counts by stream, from the state of the time stage."""
    return _decode(state).metrics


class EventtimeNumbers(Collector):
    """Shows what was seen last. It is no counter of ours, so it is not added up over processes."""

    def __init__(self) -> None:
        self._streams: Mapping[str, StreamNumbers] = {}

    def saw(self, streams: Mapping[str, StreamNumbers]) -> None:
        self._streams = streams

    def collect(self) -> Iterable[Metric]:
        waiting = _gauge("buffer_size", "Events that wait for the watermark to reach them.")
        newest = _gauge(
            "max_timestamp_seen_seconds", "The latest time of an event, in seconds since 1970."
        )
        late = _counter("late_dropped", "Events that the watermark had passed when they came.")
        moves = _counter("watermark_emitted", "Times that a watermark has moved.")
        wild = _counter("wild", "Events too far in the future to move a watermark.")
        for name, numbers in self._streams.items():
            waiting.add_metric([name], numbers.buffer_size)
            late.add_metric([name], numbers.late_dropped_count)
            moves.add_metric([name], numbers.watermark_emitted_count)
            wild.add_metric([name], numbers.wild_count)
            if numbers.max_timestamp_seen is not None:
                newest.add_metric([name], numbers.max_timestamp_seen / MICROS_PER_SECOND)
        return [waiting, late, moves, newest, wild]


class EventtimeWatch:
    """Looks at the counts whenever the views have moved on."""

    def __init__(self, config: Config, views: OpenedViews, numbers: EventtimeNumbers) -> None:
        pipeline = config.pipeline
        self.is_kept = pipeline.eventtime.enabled or bool(pipeline.ordered)
        self._views = views
        self._numbers = numbers
        self._seen: Frontier | None = None

    async def look(self, frontier: Frontier | None) -> None:
        """`frontier` is where the views stand."""
        if not self.is_kept or frontier == self._seen:
            return
        state = (await (await self._views.store()).read_pipeline_state()).get(STATE_NAME)
        if state is not None:
            self._numbers.saw(read_numbers(state))
        self._seen = frontier


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tidemark_eventtime_{name}", text, labels=_STREAM)


def _counter(name: str, text: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"tidemark_eventtime_{name}", text, labels=_STREAM)
