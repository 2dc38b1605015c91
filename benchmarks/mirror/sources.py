"""The same events into the same views, from the topics of the mirror and from the ledger."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, Literal

import msgspec
from pyspark.sql import SparkSession

from benchmarks.ingest.services import peak_rss_mib_of
from benchmarks.mirror.rig import Rig, Store, config_at, opened
from benchmarks.pipeline.workload import METRIC, Workload
from tests.services.spark import CONNECTOR
from tidemark.app.mirror import run_mirror
from tidemark.config import Config
from tidemark.ledger.port import LedgerStore
from tidemark.pipeline.kafka.asking import AskedLedger
from tidemark.pipeline.kafka.source import FromKafka
from tidemark.pipeline.reading import EventSource
from tidemark.pipeline.running import Pipeline
from tidemark.pipeline.session import start_session, stop_session
from tidemark.pipeline.session_options import SparkSettings
from tidemark.views.opening import open_views, views_at, views_place
from tidemark.views.port import RowFilter, ViewsStore

Source = Literal["ledger", "kafka"]
SOURCES: Final[tuple[Source, ...]] = ("ledger", "kafka")
SOURCES_STORE: Final[Store] = "sqlite"
_ROWS_AT_ONCE: Final = 50_000


class Folded(msgspec.Struct, frozen=True):
    """One run to the end. `batch_s` is from the end of each batch but the first to the next."""

    seconds: float
    first_batch_s: float
    batch_s: list[float]
    rows: int
    peak_rss_mib: float

    @property
    def batches(self) -> int:
        return len(self.batch_s) + 1


class FromSource(msgspec.Struct, frozen=True):
    source: Source
    runs: list[Folded]

    @property
    def seconds(self) -> float:
        return median(run.seconds for run in self.runs)

    @property
    def batch_s(self) -> float | None:
        found = [seconds for run in self.runs for seconds in run.batch_s]
        return median(found) if found else None


class Sources(msgspec.Struct, frozen=True):
    events: int
    max_batch_events: int
    ledger: FromSource
    kafka: FromSource

    @property
    def of_ledger(self) -> float:
        return self.ledger.seconds / self.kafka.seconds


async def measure_sources(rig: Rig) -> Sources:
    """By turns, after a smaller run of each that is not counted."""
    scale = rig.scale
    small = await _mirrored(rig, scale.warm_up_events) if scale.warm_up_events else None
    large = await _mirrored(rig, scale.pipeline_events)
    spark = start_session(_spark_settings(config_at(large)), state_dir=rig.home)
    try:
        if small is not None:
            for source in SOURCES:
                await _fold(rig, spark, small, source)
        found = {source: FromSource(source, []) for source in SOURCES}
        for _ in range(scale.repetitions):
            for source in SOURCES:
                found[source].runs.append(await _fold(rig, spark, large, source))
    finally:
        stop_session()
    rows = {run.rows for each in found.values() for run in each.runs}
    if len(rows) != 1:
        raise RuntimeError(f"the views have {sorted(rows)} rows")
    batch_events = config_at(large).pipeline.max_batch_events
    return Sources(scale.pipeline_events, batch_events, found["ledger"], found["kafka"])


async def _mirrored(rig: Rig, events: int) -> Path:
    """The configuration of a ledger that is in Kafka."""
    path = rig.new_configuration(rig.new_ledger(SOURCES_STORE))
    async with opened(path) as ledger:
        await Workload().append(ledger, 0, events)
    await asyncio.to_thread(
        run_mirror,
        config_at(path),
        until_caught_up=True,
        on_progress=lambda done, total: None,
        stop=threading.Event(),
    )
    return path


def _spark_settings(config: Config) -> SparkSettings:
    jars = ",".join(map(str, sorted(CONNECTOR.glob("*.jar"))))
    return config.spark.model_copy(update={"options": {**config.spark.options, "spark.jars": jars}})


async def _fold(rig: Rig, spark: SparkSession, mirrored: Path, source: Source) -> Folded:
    """Into views of nothing yet."""
    ready = config_at(mirrored)
    assert ready.ledger.url is not None
    config = config_at(rig.new_configuration(ready.ledger.url, ready.mirror.topic_prefix))
    views = await open_views(config)
    try:
        async with opened(mirrored) as ledger:
            times: list[float] = []
            loop = asyncio.get_running_loop()
            pipeline = Pipeline(
                spark,
                config,
                ledger,
                views,
                partial(views_at, views_place(config)),
                loop=loop,
                on_progress=lambda progress: times.append(time.perf_counter()),
                source=_from_kafka(config, ledger, loop) if source == "kafka" else None,
            )
            seconds, began = await asyncio.to_thread(_run, pipeline)
            return Folded(
                seconds,
                times[0] - began,
                [later - earlier for earlier, later in pairwise(times)],
                await _count_rows(views),
                peak_rss_mib_of(os.getpid()),
            )
    finally:
        await views.close()


def _run(pipeline: Pipeline) -> tuple[float, float]:
    pipeline.prepare()
    began = time.perf_counter()
    pipeline.run(until_caught_up=True)
    return time.perf_counter() - began, began


def _from_kafka(
    config: Config, ledger: LedgerStore, loop: asyncio.AbstractEventLoop
) -> EventSource:
    return FromKafka(config, AskedLedger(ledger, loop), threading.Event())


async def _count_rows(views: ViewsStore) -> int:
    count, cursor = 0, None
    while True:
        page = await views.read_rows(METRIC, RowFilter(), after=cursor, limit=_ROWS_AT_ONCE)
        count += len(page.rows)
        cursor = page.next_cursor
        if cursor is None:
            return count
