"""What stands ready for a whole run: a PostgreSQL, a Spark session, homes for ledgers and views."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
from pyspark.sql import SparkSession

from benchmarks.ingest.services import peak_rss_mib_of
from benchmarks.pipeline.workload import METRIC
from tests.services.postgres import PostgresServer
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import LedgerStore
from tidemark.pipeline.running import Pipeline, Progress
from tidemark.pipeline.session import start_session, stop_session
from tidemark.views.opening import open_views, views_at, views_place
from tidemark.views.port import RowFilter, ViewsStore

Store = Literal["postgres", "sqlite"]
STORES: Final[tuple[Store, ...]] = ("postgres", "sqlite")

COUNTED_AT_ONCE: Final = 50_000


class Scale(msgspec.Struct, frozen=True):
    """How much is measured."""

    stores: tuple[Store, ...]
    events: int
    warm_up_events: int
    repetitions: int
    sizes: tuple[int, ...]
    step_events: int
    untouched_keys: int
    rates: tuple[int, ...]
    settle_seconds: float
    latency_seconds: float


FULL: Final = Scale(
    stores=STORES,
    events=1_000_000,
    warm_up_events=50_000,
    repetitions=3,
    sizes=(100_000, 1_000_000, 10_000_000),
    step_events=100_000,
    untouched_keys=1_000_000,
    rates=(100, 1_000),
    settle_seconds=10.0,
    latency_seconds=60.0,
)
QUICK: Final = Scale(
    stores=("sqlite",),
    events=2_000,
    warm_up_events=100,
    repetitions=1,
    sizes=(500,),
    step_events=500,
    untouched_keys=1_000,
    rates=(100,),
    settle_seconds=0.0,
    latency_seconds=1.0,
)


class Caught(msgspec.Struct, frozen=True):
    """One run of the pipeline to the end of its ledger."""

    events: int
    seconds: float
    batches: int
    peak_rss_mib: float

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds


class Rig:
    """Entered, everything is started; left, it is gone."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.home = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
        self.postgres = PostgresServer(durable=True)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.home, ignore_errors=True)
        self._stack.enter_context(self.postgres)
        self.spark: SparkSession = start_session(self.config("sqlite").spark, state_dir=self.home)
        self._stack.callback(stop_session)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def stop_spark(self) -> None:
        """For what brings a session of its own."""
        stop_session()

    def config(self, store: Store) -> Config:
        """One meter, as it is by default; a ledger and views of its own."""
        document = self._document(Path(tempfile.mkdtemp(dir=self.home)))
        if store == "postgres":
            document["ledger"] = {"url": self.postgres.create_database()}
        return Config.model_validate(document)

    def _document(self, state_dir: Path) -> dict[str, object]:
        return {
            "state_dir": str(state_dir),
            "streams": {"usage": {"kind": "usage"}},
            "meters": {METRIC: {"period": "month"}},
        }

    def with_new_views(self, config: Config) -> Config:
        """The same ledger, and views of nothing yet."""
        views = self.config("postgres" if config.ledger.url else "sqlite")
        url = views.ledger.url or f"sqlite:///{views.state_dir / 'views.db'}"
        ledger = config.ledger.url or f"sqlite:///{config.state_dir / 'ledger.db'}"
        document = {"ledger": {"url": ledger}, "view_store": {"url": url}}
        return Config.model_validate({**self._document(views.state_dir), **document})

    async def count_changes(self, views: ViewsStore) -> int:
        count, after = 0, 0
        while True:
            page = await views.read_changes(METRIC, after, limit=COUNTED_AT_ONCE)
            count += len(page.changes)
            after = page.scanned_to
            if page.complete:
                return count

    async def count_rows(self, views: ViewsStore) -> int:
        count, cursor = 0, None
        while True:
            page = await views.read_rows(METRIC, RowFilter(), after=cursor, limit=COUNTED_AT_ONCE)
            count += len(page.rows)
            cursor = page.next_cursor
            if cursor is None:
                return count

    @contextlib.asynccontextmanager
    async def stores(self, config: Config) -> AsyncIterator[tuple[LedgerStore, ViewsStore]]:
        async with contextlib.AsyncExitStack() as opened:
            ledger = await open_ledger(config, SystemClock())
            opened.push_async_callback(ledger.close)
            views = await open_views(config)
            opened.push_async_callback(views.close)
            yield ledger, views

    async def catch_up(self, config: Config, ledger: LedgerStore, views: ViewsStore) -> Caught:
        """Everything from the frontier to the end of the ledger, once."""
        progress: list[Progress] = []
        pipeline = Pipeline(
            self.spark,
            config,
            ledger,
            views,
            partial(views_at, views_place(config)),
            loop=asyncio.get_running_loop(),
            on_progress=progress.append,
        )

        def run() -> float:
            pipeline.prepare()
            began = time.perf_counter()
            pipeline.run(until_caught_up=True)
            return time.perf_counter() - began

        seconds = await asyncio.to_thread(run)
        return Caught(
            events=sum(step.event_count for step in progress),
            seconds=seconds,
            batches=len(progress),
            peak_rss_mib=peak_rss_mib_of(os.getpid()),
        )
