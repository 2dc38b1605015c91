"""The Python Data Source `tidemark_ledger`. Its options:

`ledger`      the address of `ledger_address`
`partitions`  into how many parts a batch is shared out at most
`max_rows`    stream: the most rows of a micro-batch, unless one commit has more
`start`       stream: the offset to begin at, where Spark has no checkpoint
`end`         stream: the offset to end at; without it there is no end
`blocks`      stream: what is landed, as `LandedBlocks` has it; read from there, not from the ledger
`after`, `upto`       at rest: the times of two commits; the first is left out, the last is read
`owners`, `streams`   at rest: read only these, as JSON lists, and no commits
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidemark.pipeline.source.database import LedgerDatabase
from tidemark.pipeline.source.failures import brought_home
from tidemark.pipeline.source.offsets import Offset
from tidemark.pipeline.source.partitions import read_partition
from tidemark.pipeline.source.planning import (
    LedgerPartition,
    Selection,
    as_owners,
    as_streams,
    batch_end,
    named_range,
    shared_out,
)
from tidemark.pipeline.source.schema import SOURCE_NAME, SPARK_SCHEMA

SQLITE_SCHEME: Final = "sqlite:///"


def open_database(address: str, blocks: str | None = None) -> LedgerDatabase:
    """The database of a ledger, to be read by this process only; its events from `blocks`."""
    if blocks:
        from tidemark.pipeline.landing.reading import DatabaseWithBlocks, LandedBlocks

        return DatabaseWithBlocks(open_database(address), LandedBlocks.from_option(blocks))
    if address.startswith(SQLITE_SCHEME):
        from tidemark.pipeline.source.sqlite import SqliteLedgerDatabase

        return SqliteLedgerDatabase(Path(address.removeprefix(SQLITE_SCHEME)))
    from tidemark.pipeline.source.postgres import PostgresLedgerDatabase

    return PostgresLedgerDatabase(address)


class LedgerSource(DataSource):
    """The ledger, as Spark knows it."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return LedgerReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LedgerStreamReader(self.options)


class LedgerReader(DataSourceReader):
    """A range of the ledger at rest."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._address = options["ledger"]
        self._partitions = int(options.get("partitions", "1"))
        self._after = int(options.get("after") or 0)
        self._upto = int(options["upto"]) if options.get("upto") else None
        owners, streams = options.get("owners"), options.get("streams")
        self._selection = Selection(
            owners=as_owners(json.loads(owners)) if owners else None,
            streams=as_streams(json.loads(streams)) if streams else None,
        )

    def partitions(self) -> Sequence[InputPartition]:
        with brought_home(), open_database(self._address) as database:
            start, end = named_range(database, self._after, self._upto)
            return shared_out(database, start, end, self._selection, self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._address, partition)


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The ledger as it grows. An offset is a commit that is durable."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._address = options["ledger"]
        self._partitions = int(options.get("partitions", "1"))
        self._max_rows = int(options["max_rows"]) if options.get("max_rows") else None
        self._start = options.get("start", "")
        self._target = Offset.from_option(options["end"]) if options.get("end") else None
        self._blocks = options.get("blocks")
        # Made when it is needed: this object also travels to the tasks.
        self._database: LedgerDatabase | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with brought_home():
            return {**Offset.from_option(self._start).as_json()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with brought_home():
            head = self._opened().head()
            self._target = head if self._target is None else min(head, self._target)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with brought_home():
            database, begin = self._opened(), Offset.from_json(start)
            database.require(begin)
            end = database.head()
            if self._target is not None:
                end = max(begin, min(end, self._target))
            if isinstance(limit, ReadMaxRows):
                end = batch_end(database, begin, end, limit.max_rows)
            return {**end.as_json()}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        with brought_home():
            return {**self._opened().head().as_json()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with brought_home():
            database = self._opened()
            after, upto = Offset.from_json(start), Offset.from_json(end)
            database.require(after)
            database.require(upto)
            return shared_out(database, after, upto, Selection(), self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._address, partition, self._blocks)

    def stop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> LedgerDatabase:
        if self._database is None:
            self._database = open_database(self._address)
        return self._database


def _read(
    address: str, partition: InputPartition, blocks: str | None = None
) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, LedgerPartition)
    with brought_home(), open_database(address, blocks) as database:
        yield from read_partition(database, partition)
