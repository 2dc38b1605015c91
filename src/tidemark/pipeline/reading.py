"""What the pipeline reads from, and how: the ledger does it one way, Kafka another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import TidemarkError
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.source.failures import failure_of
from tidemark.pipeline.source.frames import ledger_stream
from tidemark.pipeline.source.offsets import BEGINNING, Offset

Fold: TypeAlias = Callable[[DataFrame], DataFrame]
"""What the tasks make of rows of the ledger."""


class FoldedBatch(NamedTuple):
    """What is to be worked out and committed."""

    folded: DataFrame
    check: Callable[[], FoldedBatch | None]
    """Asked once it was worked out and before it is committed: what to take in its place. Raises
    if it must not be committed at all."""
    died: Callable[[], FoldedBatch | None] = lambda: None
    """Asked if working it out failed: what to take in its place, where that may be better. Raises
    if what was read is at fault."""


class EventSource(Protocol):
    """Gives a query its stream, and the folded batches that come of what the query takes."""

    def stream(
        self,
        spark: SparkSession,
        start: Frontier | None,
        fold: Fold,
        *,
        max_rows: int,
        partitions: int | None,
    ) -> DataFrame: ...

    def batches(
        self, taken: DataFrame, frontier: Callable[[], Frontier | None]
    ) -> Iterator[FoldedBatch]:
        """`frontier` is where the views stand when a batch is asked for."""

    def failure(self, error: BaseException) -> TidemarkError | None:
        """What the query died of, if it was what it reads from."""


class ReadStream(Protocol):
    """Reads a ledger as it grows; `ledger_stream` does."""

    def __call__(
        self,
        spark: SparkSession,
        address: str,
        *,
        start: Offset,
        max_rows: int | None,
        partitions: int | None,
    ) -> DataFrame: ...


class FromLedger:
    """The ledger. Folding is part of the stream, so that most of its planning is done once."""

    def __init__(self, address: str, read_stream: ReadStream = ledger_stream) -> None:
        self._address = address
        self._read_stream = read_stream

    def stream(
        self,
        spark: SparkSession,
        start: Frontier | None,
        fold: Fold,
        *,
        max_rows: int,
        partitions: int | None,
    ) -> DataFrame:
        offset = BEGINNING if start is None else Offset(start.received_at, start.ingress_sequence)
        return fold(
            self._read_stream(
                spark, self._address, start=offset, max_rows=max_rows, partitions=partitions
            )
        )

    def batches(
        self, taken: DataFrame, frontier: Callable[[], Frontier | None]
    ) -> Iterator[FoldedBatch]:
        yield FoldedBatch(taken, no_check)

    def failure(self, error: BaseException) -> TidemarkError | None:
        return failure_of(error)


def no_check() -> None:
    """What the ledger holds is what it is."""
