"""The pipeline as a streaming query: micro-batch after micro-batch, each committed as a whole.

Where to begin is always the frontier of the views. Spark wants a checkpoint of its own; it is made
anew at each start, because nothing in it could be right that contradicts the frontier.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.ledger.port import LedgerStore
from tidemark.pipeline.batches import BatchFolder, collected
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import Definitions
from tidemark.pipeline.errors import SparkUnavailable
from tidemark.pipeline.fold.parts import Gathered
from tidemark.pipeline.fold.task import PLAIN_LIMIT, OpenViews
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.output.port import ViewRow, ViewsSink
from tidemark.pipeline.reading import EventSource, FoldedBatch, FromLedger
from tidemark.pipeline.source.frames import ledger_address
from tidemark.pipeline.time.plans import plan_of
from tidemark.pipeline.time.registry import registry_of
from tidemark.pipeline.time_keeping import TimeKeeper, keeps_time
from tidemark.pipeline.windows.keeper import WindowKeeper
from tidemark.pipeline.windows.refolding import WindowRefolder

_T = TypeVar("_T")
_CHECKPOINT: Final = "checkpoint"
_POLL_S: Final = 0.1
_COMMITS_AT_ONCE: Final = 10_000
_ROWS_AT_ONCE: Final = 10_000


class Progress(msgspec.Struct, frozen=True):
    """A batch that is committed: where the views stand, and how much it was."""

    frontier: Frontier
    event_count: int


class Pipeline:
    """Keeps views at the end of a ledger. `stop` may be called from any thread."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        ledger: LedgerStore,
        views: ViewsSink,
        open_views: OpenViews,
        *,
        loop: asyncio.AbstractEventLoop,
        max_rows: int | None = None,
        partitions: int | None = None,
        plain_limit: int = PLAIN_LIMIT,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        source: EventSource | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        """`loop` is where the stores live; it must run while the pipeline does.

        `stopping` ends `run` as `stop` does. `source` is by default the ledger.

        Raises `ConfigError` for expressions that cannot be used.
        """
        self._spark = spark
        self._config = config
        self._ledger = ledger
        self._views = views
        self._loop = loop
        self._max_rows = max_rows or config.pipeline.max_batch_events
        self._partitions = partitions
        self._on_progress = on_progress
        self._source = source or FromLedger(ledger_address(config))
        self._definitions = Definitions.of(config)
        decoder = Decoder(spark, config, self._definitions, registry_of(config))
        self._folder = BatchFolder(
            spark,
            self._definitions,
            decoder,
            ledger_address(config),
            ledger.ledger_id,
            open_views,
            WindowRefolder(
                decoder.windows,
                plan_of(config),
                decoder.records,
                lambda upto: self._wait(commit_times(ledger, upto)),
            ),
            plain_limit,
        )
        self._frontier: Frontier | None = None
        self._time: TimeKeeper | None = None
        self._failure: BaseException | None = None
        self._stopping = stopping or threading.Event()

    @property
    def frontier(self) -> Frontier | None:
        """How far the views have come."""
        return self._frontier

    def prepare(self) -> None:
        """Declares the views and finds the place to begin at.

        Raises `DefinitionChanged`, or `LedgerRewound` if ledger and views do not belong together.
        """
        self._frontier = self._wait(self._views.frontier())
        if self._frontier is not None:
            self._wait(require_same_history(self._ledger, self._frontier))
        state = self._wait(self._views.read_pipeline_state())
        self._folder.require_same_views(self._frontier, state)
        self._wait(self._views.declare(self._folder.schemas))
        if keeps_time(self._config):
            windows = WindowKeeper(
                self._definitions.windows,
                self._definitions.unlogged,
                lambda view: self._wait(whole_state(self._views, view)),
            )
            self._time = TimeKeeper(self._config, self._frontier, state, windows)

    def run(self, *, until_caught_up: bool = False) -> None:
        """Runs until it is stopped, or has reached what the ledger has now.

        Whatever stops it otherwise is raised; what is committed stays, and the next run goes on.
        """
        self._failure = None
        try:
            query = self._start(until_caught_up=until_caught_up)
            try:
                while query.isActive and not self._stopping.wait(_POLL_S):
                    pass
                error = None if self._stopping.is_set() else query.exception()
            finally:
                _stop_query(query)
        finally:
            if self._time is not None:
                self._time.close()
        if error is None:
            return
        failure = self._failed_with(error)
        if failure is not None:
            raise failure from error
        raise SparkUnavailable(
            f"the query failed: {str(error).strip().splitlines()[0]}",
            hint="Look at Spark's log in the state directory; what is committed is safe.",
        ) from error

    def _failed_with(self, error: Exception) -> BaseException | None:
        return self._failure if self._failure is not None else self._source.failure(error)

    def stop(self) -> None:
        """Ends `run`. A batch under way is given up; it runs again unless it was just committed."""
        self._stopping.set()

    def _start(self, *, until_caught_up: bool) -> StreamingQuery:
        stream = self._source.stream(
            self._spark,
            self._frontier,
            self._folder.folded,
            max_rows=self._max_rows,
            partitions=self._partitions,
        )
        writer = (
            stream.writeStream.queryName("tidemark")
            .option("checkpointLocation", self._new_checkpoint().as_uri())
            .foreachBatch(self._take)
        )
        if until_caught_up:
            writer = writer.trigger(availableNow=True)
        query: StreamingQuery = writer.start()
        return query

    def _new_checkpoint(self) -> Path:
        checkpoint = self._config.state_dir.absolute() / "spark" / _CHECKPOINT
        shutil.rmtree(checkpoint, ignore_errors=True)
        return checkpoint

    def _take(self, taken: DataFrame, batch_id: int) -> None:
        try:
            for batch in self._source.batches(taken, lambda: self._frontier):
                self._commit(batch)
        except BaseException as error:
            # Spark would hand on only its text.
            self._failure = self._source.failure(error) or error
            raise

    def _commit(self, taken: FoldedBatch) -> None:
        crash_point("pipeline.batch_begun")
        batch = self._folder.batch(self._gathered(taken), self._frontier, self._time)
        if batch is None:
            return
        crash_point("pipeline.batch_folded")
        self._wait(self._views.commit(batch))
        crash_point("pipeline.batch_committed")
        before = 0 if self._frontier is None else self._frontier.ingress_sequence
        self._frontier = batch.end
        self._on_progress(Progress(batch.end, batch.end.ingress_sequence - before))

    def _gathered(self, taken: FoldedBatch) -> Gathered:
        """What comes of it, or of what is to be taken in its place."""
        while True:
            try:
                gathered = collected(taken.folded)
            except PySparkException as error:
                # What has a name is no fault of what was read.
                is_known = self._stopping.is_set() or self._source.failure(error) is not None
                instead = None if is_known else taken.died()
                if instead is None:
                    raise
            else:
                instead = taken.check()
                if instead is None:
                    return gathered
            taken = instead

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def commit_times(ledger: LedgerStore, upto: int) -> list[int]:
    """When each commit was received, in order, up to a time."""
    times: list[int] = []
    while commits := await ledger.read_commits(times[-1] if times else -1, _COMMITS_AT_ONCE):
        times += (commit.received_at for commit in commits if commit.received_at <= upto)
        if commits[-1].received_at >= upto:
            break
    return times


async def whole_state(views: ViewsSink, view: str) -> list[ViewRow]:
    """All rows of a view, hidden columns too."""
    rows: list[ViewRow] = []
    while page := await views.scan_state(
        view, after=rows[-1].row_key if rows else None, limit=_ROWS_AT_ONCE
    ):
        rows += page
    return rows


async def require_same_history(ledger: LedgerStore, frontier: Frontier) -> None:
    """Refuses views that were made from another ledger than this, or from more than it has."""
    if frontier.ledger_id != ledger.ledger_id:
        raise LedgerRewound(
            f"the views were made from the ledger {frontier.ledger_id}, and this is"
            f" {ledger.ledger_id}",
            hint="Point ledger.url and view_store.url at databases that belong together, or rebuild"
            " the views from this ledger.",
        )
    head = await ledger.head()
    if head.received_at < frontier.received_at:
        raise LedgerRewound(
            f"the views hold {frontier.ingress_sequence} events, and the ledger ends at"
            f" {head.last_sequence}",
            hint="The ledger was restored from an old backup. Restore the newer ledger, or views of"
            " the same age, or rebuild the views from this ledger.",
        )
    commits = await ledger.read_commits(frontier.received_at - 1, 1)
    found = commits[0] if commits else None
    if (
        found is None
        or found.received_at != frontier.received_at
        or found.chain != frontier.chain
        or found.last_sequence != frontier.ingress_sequence
    ):
        raise LedgerRewound(
            f"the commit at which the views stand ({frontier.ingress_sequence} events) is another"
            " one in this ledger",
            hint="The ledger was restored from a backup and went on differently. Rebuild the views"
            " from it, or restore the ledger they were made from.",
        )


def _stop_query(query: StreamingQuery) -> None:
    try:
        query.stop()
    except PySparkException:
        # It had failed already, and that is being raised.
        return
