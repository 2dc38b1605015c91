"""Kafka as what is read: batches of whole commits, each held against what the mirror wrote."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.pipeline.kafka import checking
from tidemark.pipeline.kafka.errors import KafkaDiffers, KafkaUnavailable
from tidemark.pipeline.kafka.finishing import Finished
from tidemark.pipeline.kafka.planning import BatchPlan, Partition, commits_after, plans
from tidemark.pipeline.kafka.topics import commits_stream, messages, source_rows
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.reading import Check, Fold, no_check
from tidemark.pipeline.source.failures import failure_of

log = logging.getLogger(__name__)

# What the errors of Kafka's client and of Spark's connector have in their texts.
_CLIENT: Final = "kafka"
_GONE: Final = "data may have been lost"


class FromKafka:
    """The mirror's topics. `checksum_of` is asked only when something is wrong."""

    def __init__(
        self,
        config: Config,
        ledger_id: str,
        checksum_of: checking.ValueOf,
        stopping: threading.Event,
    ) -> None:
        self._config = config
        self._ledger_id = ledger_id
        self._checksum_of = checksum_of
        self._stopping = stopping
        self._finished = Finished(config, stopping)
        self._read_to: dict[Partition, int] = {}

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
        self._read_to.clear()
        return commits_stream(spark, self._config, start, max_rows)

    def batches(
        self, taken: DataFrame, frontier: Callable[[], Frontier | None]
    ) -> Iterator[tuple[DataFrame, Check]]:
        records = [(row["offset"], bytes(row["value"])) for row in taken.collect()]
        commits = commits_after(sorted(records), frontier(), self._ledger_id)
        for plan in plans(commits, self._max_rows, self._read_to):
            if self._stopping.is_set():
                return
            yield self._batch(taken.sparkSession, plan, frontier())

    def failure(self, error: BaseException) -> TidemarkError | None:
        said = str(error).strip()
        if (ours := failure_of(error)) is not None:
            return ours
        if _GONE in said:
            return KafkaDiffers(
                "messages of the mirror are gone from Kafka",
                hint="Nothing behind them is folded. Have the topics mirrored anew"
                " (docs/howto/kafka.md), or set pipeline.source to ledger.",
            )
        if _CLIENT in said:
            return KafkaUnavailable(
                f"Kafka cannot be read: {said.splitlines()[0]}",
                hint="Look at the brokers in mirror.bootstrap_servers, and at spark/spark.log in"
                " the state directory; the pipeline goes on by itself.",
            )
        return None

    def _batch(
        self, spark: SparkSession, plan: BatchPlan, before: Frontier | None
    ) -> tuple[DataFrame, Check]:
        if not plan.ranges:
            # Only time has passed.
            nothing = messages(spark, self._config, {}).limit(0)
            return self._fold(source_rows(nothing, plan, before)), no_check
        self._finished.wait_for(plan.ranges)
        found = messages(spark, self._config, plan.ranges, self._partitions)
        ours, observation = checking.observed(found, plan)

        def check() -> DataFrame | None:
            if checking.seen(observation).is_right(plan):
                return None
            return self._looked_at(found, plan, before)

        return self._fold(source_rows(ours, plan, before)), check

    def _looked_at(self, found: DataFrame, plan: BatchPlan, before: Frontier | None) -> DataFrame:
        """What to fold instead, if there is only too much."""
        checking.require_right(found, plan, self._checksum_of)
        for other in checking.foreign(found, plan):
            log.warning(
                "%s[%d]@%d: this message was not written by the mirror; it is passed over",
                *other,
            )
        return self._fold(source_rows(checking.exact(found, plan), plan, before))
