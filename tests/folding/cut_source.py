"""The ledger as a stream that is cut where a test wants it: the product's own source otherwise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidemark.pipeline.reading import ReadStream
from tidemark.pipeline.source.datasource import LedgerSource, LedgerStreamReader
from tidemark.pipeline.source.offsets import Offset

_NAME = "tidemark_ledger_cut"


class CutLedgerSource(LedgerSource):
    @classmethod
    def name(cls) -> str:
        return _NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return CutStreamReader(self.options)


class CutStreamReader(LedgerStreamReader):
    """Batches end at the times in the option `cuts`, and at the end of the ledger."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._cuts = [Offset.from_json(cut) for cut in json.loads(options["cuts"])]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        end = Offset.from_json(super().latestOffset(start, limit))
        begin = Offset.from_json(start)
        later = [cut for cut in self._cuts if begin < cut < end]
        return {**min(later, default=end).as_json()}


def cut_stream(cuts: Sequence[Offset]) -> ReadStream:
    """A way to read a ledger whose batches end at these commits, each a batch of its own."""
    import tests.folding.cut_source as module

    # The processes that Spark runs cannot import tests.
    cloudpickle.register_pickle_by_value(module)

    def read(
        spark: SparkSession,
        address: str,
        *,
        start: Offset,
        max_rows: int | None,
        partitions: int | None,
    ) -> DataFrame:
        spark.dataSource.register(CutLedgerSource)
        return (
            spark.readStream.format(_NAME)
            .option("ledger", address)
            .option("start", json.dumps(start.as_json()))
            .option("cuts", json.dumps([cut.as_json() for cut in cuts]))
            .option("partitions", partitions or 2)
            .load()
        )

    return read
