"""Kafka as what is read: batches of whole commits, each held against what the mirror wrote."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.pipeline.kafka import checking
from tidemark.pipeline.kafka.asking import AskedLedger
from tidemark.pipeline.kafka.failures import spark_failure
from tidemark.pipeline.kafka.finishing import Finished
from tidemark.pipeline.kafka.history import require_same_commits
from tidemark.pipeline.kafka.planning import BatchPlan, Told, commits_after, plans
from tidemark.pipeline.kafka.resuming import Reached, reached_before, where_to_begin
from tidemark.pipeline.kafka.topics import commits_stream, messages, source_rows
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.reading import Fold, FoldedBatch, no_check
from tidemark.pipeline.source.failures import failure_of
from tidemark.pipeline.source.frames import parts_at_once
from tidemark.pipeline.source.planning import MIN_ROWS_PER_PARTITION

log = logging.getLogger(__name__)


class FromKafka:
    """The mirror's topics. The ledger is asked for its commits, and for events only when something
    is wrong."""

    def __init__(self, config: Config, ledger: AskedLedger, stopping: threading.Event) -> None:
        self._config = config
        self._ledger = ledger
        self._stopping = stopping
        self._finished = Finished(config, stopping)
        self._frontier: Callable[[], Frontier | None] = lambda: None
        self._reached: Reached | None = None
        self._latest = 0

    def stream(
        self,
        spark: SparkSession,
        start: Frontier | None,
        fold: Fold,
        *,
        max_rows: int,
        partitions: int | None,
    ) -> DataFrame:
        self._fold, self._max_rows, self._partitions = fold, max_rows, partitions
        self._frontier = lambda: start
        # Behind a frontier, that is found out when it is known which commits come next.
        self._reached = Reached({}, elsewhere=0) if start is None else None
        self._latest = 0
        begin = where_to_begin(self._config, start)
        try:
            return commits_stream(spark, self._config, begin, max_rows)
        except (PySparkException, Py4JError) as error:
            failure = self.failure(error)
            if failure is None:
                raise
            raise failure from error

    def batches(
        self, taken: DataFrame, frontier: Callable[[], Frontier | None]
    ) -> Iterator[FoldedBatch]:
        self._frontier = frontier
        # Not kept by a name: as they are read, they are far larger than what is kept of them.
        new = commits_after(
            sorted((row["offset"], bytes(row["value"])) for row in taken.collect()),
            frontier(),
            self._ledger.ledger_id,
            self._latest,
        )
        self._latest = new.latest
        _tell_belated(new.belated)
        if not new.told:
            return
        if self._reached is None:
            first = new.told[0].offset
            self._reached = reached_before(self._config, self._ledger.ledger_id, first)
        unread = iter(new.told)
        for plan in plans(new.commits, self._max_rows, *self._reached):
            if self._stopping.is_set():
                return
            told = [*islice(unread, len(plan.commits))]
            require_same_commits(told, frontier(), self._ledger.commits_after)
            yield self._batch(taken.sparkSession, plan, frontier())

    def failure(self, error: BaseException) -> TidemarkError | None:
        if (ours := failure_of(error)) is not None:
            return ours
        frontier = self._frontier()
        return spark_failure(error, 0 if frontier is None else frontier.ingress_sequence)

    def _batch(self, spark: SparkSession, plan: BatchPlan, before: Frontier | None) -> FoldedBatch:
        if not plan.ranges:
            # Only time has passed.
            nothing = messages(spark, self._config, {})
            return FoldedBatch(self._fold(source_rows(nothing, plan, before)), no_check)
        there = self._finished.wait_for(plan.ranges)
        worth = min(parts_at_once(spark), plan.event_count // MIN_ROWS_PER_PARTITION)
        found = messages(spark, self._config, there, self._partitions or worth)
        if not plan.is_within(there):
            self._require_right(found, plan)
        return self._folded(found, found, plan, before)

    def _folded(
        self, taken: DataFrame, found: DataFrame, plan: BatchPlan, before: Frontier | None
    ) -> FoldedBatch:
        """What was taken of all that was found."""
        ours, observation = checking.observed(taken, plan)

        def without_others() -> FoldedBatch:
            """All of the mirror's must be there: there is only too much."""
            if taken is found:
                _tell_foreign(*checking.foreign(found, plan))
            return self._folded(checking.exact(found, plan), found, plan, before)

        def check() -> FoldedBatch | None:
            if checking.seen(observation).is_right(plan):
                return None
            self._require_right(found, plan)
            return without_others()

        def died() -> FoldedBatch | None:
            """What the mirror has not written may be nothing that can be folded."""
            self._require_right(found, plan)
            return without_others() if taken is found else None

        return FoldedBatch(self._fold(source_rows(ours, plan, before)), check, died)

    def _require_right(self, found: DataFrame, plan: BatchPlan) -> None:
        checking.require_right(found, plan, self._ledger.events_of, self._config)


def _tell_foreign(named: Sequence[checking.Foreign], count: int) -> None:
    _tell(
        [
            f"{place}: this message was not written by the mirror, and names"
            f" {'no event' if claimed is None else f'event {claimed}'}"
            for place, claimed in named
        ],
        count,
    )


def _tell_belated(belated: Sequence[Told]) -> None:
    _tell(
        [
            f"the record at offset {offset} of the topic of commits tells of a commit up to event"
            f" {commit.last} that is no later than the one before, and was not written by the"
            " mirror"
            for offset, commit in belated[: checking.NAMED]
        ],
        len(belated),
    )


def _tell(lines: Sequence[str], count: int) -> None:
    """What there is too much of, the first of so many by name."""
    for line in lines:
        log.warning("%s; it is passed over", line)
    if count > len(lines):
        log.warning("and %d more like these; they are passed over", count - len(lines))
