"""The table of blocks in ClickHouse: one partition each, there whole or not at all.

A block is put together in a table aside and then takes the place of its partition in one step, so a
query finds either what it was or what it is, and landing a block again changes nothing. The table
`…_landing` says which ledger the events are of and how large a block is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidemark.config.urls import CHDB_PREFIX
from tidemark.crash import crash_point
from tidemark.pipeline.landing.blocks import Block, Schedule
from tidemark.pipeline.landing.clickhouse_connection import (
    ClickHouse,
    connected,
    locked,
    running,
    shown_place,
)
from tidemark.pipeline.landing.errors import LandingError
from tidemark.pipeline.landing.rows import LANDED_SCHEMA, rows_of
from tidemark.pipeline.landing.target import Landed, OpenBlock

_FORMAT: Final = 1
_MOMENT: Final = "DateTime64(6, 'UTC')"
_OF_FEW: Final = "LowCardinality(String)"
_OF_FEW_OR_NONE: Final = "LowCardinality(Nullable(String))"
_TEXT_OR_NONE: Final = "Nullable(String)"
# `data` is text: the type JSON would not give back what the event said, letter by letter.
COLUMN_TYPES: Final = {
    "ingress_sequence": "Int64",
    "received_at": _MOMENT,
    "occurred_at": f"Nullable({_MOMENT})",
    "tenant_id": _OF_FEW,
    "stream": _OF_FEW,
    "idempotency_key": "String",
    "metric": _OF_FEW_OR_NONE,
    "customer_ref": _TEXT_OR_NONE,
    "resource_id": _TEXT_OR_NONE,
    "quantity": "Nullable(Decimal(28, 9))",
    "data": _TEXT_OR_NONE,
    "causality_key": _TEXT_OR_NONE,
    "source": _OF_FEW_OR_NONE,
    "control": _OF_FEW_OR_NONE,
    "target_key": _TEXT_OR_NONE,
    "kafka_partition": "Int32",
    "kafka_offset": "Int64",
}
_DEFAULTS: Final = {"kafka_partition": " DEFAULT -1", "kafka_offset": " DEFAULT -1"}
ORDER: Final = "ingress_sequence, kafka_partition, kafka_offset"
# A part is durable when an insert has returned, and stays so when parts are merged.
_DURABLE: Final = (
    "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
)
_ROWS_AT_ONCE: Final = 131_072


class _Origin(NamedTuple):
    """What a table is of."""

    ledger_id: str
    block_events: int
    format: int


class ClickHouseTable:
    """The blocks of one ledger.

    `lock` is a file of this machine: it keeps a second process of it away from a server. One on
    another machine is noticed by what it does to the table aside.
    """

    name = "clickhouse"

    def __init__(
        self,
        url: str,
        database: str,
        table: str,
        schedule: Schedule,
        ledger_id: str,
        *,
        lock: Path,
    ) -> None:
        self._url = url
        self._database = database
        self._lock = lock
        self._table_name = table
        self._table = f"{database}.{table}"
        self._origin_table = f"{self._table}_landing"
        self._staging_table = f"{self._table}_staging"
        self._origin = _Origin(ledger_id, schedule.block_events, _FORMAT)
        self._connection: ClickHouse | None = None
        self.schedule = schedule
        self.place = f"{self._table} {shown_place(url)}"

    @contextmanager
    def held(self) -> Iterator[None]:
        # The directory of chDB has a lock of its own, which readers take too.
        alone = nullcontext() if self._is_embedded else locked(self._lock, f"in {self.place}")
        with alone, self._connected() as clickhouse:
            self._require_same()
            self._make_tables(clickhouse)
            self._require_whole(clickhouse)
            clickhouse.run(f"DROP TABLE IF EXISTS {self._staging_table} SYNC")
            yield

    @contextmanager
    def attached(self) -> Iterator[None]:
        if self._is_embedded and not Path(self._url.removeprefix(CHDB_PREFIX)).is_dir():
            # To open it would make it.
            yield
            return
        with self._connected():
            self._require_same()
            yield

    def name_of(self, block: Block) -> str:
        return f"partition {self._number(block)}"

    def blocks(self) -> list[Landed]:
        if self._connection is None or not self._exists(self._table_name):
            return []
        # Answered from what each part says of itself: no row is read.
        found = self._connection.rows(
            f"SELECT _partition_id, max(ingress_sequence) FROM {self._table} GROUP BY 1"
        )
        reached = sorted((int(number), last) for number, last in found)
        blocks: list[Landed] = []
        for expected, (number, last) in enumerate(reached):
            if number != expected:
                raise self._mismatch(
                    f"{self.place} has partition {number} where partition {expected} should be"
                )
            block = self.schedule.block_of(number * self.schedule.block_events + 1)
            # All but the last are to be whole; which of their events is missing is not known here.
            is_last = expected == len(reached) - 1
            blocks.append(Landed(block, last if is_last else block.last))
        return blocks

    def write(self, block: Block, batches: Iterable[pa.RecordBatch], last_sequence: int) -> None:
        clickhouse, number = self._clickhouse, self._number(block)
        clickhouse.run(f"DROP TABLE IF EXISTS {self._staging_table} SYNC")
        # With whatever columns, indexes and projections somebody has given the table.
        clickhouse.run(f"CREATE TABLE {self._staging_table} AS {self._table}")
        for rows in _gathered(batches):
            clickhouse.insert(self._database, f"{self._table_name}_staging", rows)
            crash_point("landing.partition_begun")
        self._require_staged(block, last_sequence)
        crash_point("landing.partition_staged")
        clickhouse.run(
            f"ALTER TABLE {self._table} REPLACE PARTITION ID '{number}' FROM {self._staging_table}"
        )
        crash_point("landing.partition_replaced")
        clickhouse.run(f"DROP TABLE {self._staging_table} SYNC")

    @contextmanager
    def opened(self, block: Block) -> Iterator[OpenBlock]:
        clickhouse = self._clickhouse
        own = clickhouse.rows(
            f"SELECT max(ingress_sequence) FROM {self._table}"
            f" WHERE _partition_id = '{self._number(block)}'"
        )[0][0]
        # Asked for last: a block that has another behind it is whole by now, or should be.
        furthest = clickhouse.rows(f"SELECT max(ingress_sequence) FROM {self._table}")[0][0]
        landed = Landed(block, block.last if furthest > block.last else own)
        try:
            yield _OpenPartition(
                landed,
                clickhouse,
                f"FROM {self._table} WHERE _partition_id = '{self._number(block)}'"
                f" AND ingress_sequence <= {landed.last_sequence}",
            )
        except pa.ArrowException as error:
            line = str(error).splitlines()[0]
            raise self._mismatch(
                f"{self.place}: {self.name_of(block)} cannot be read: {line}"
            ) from error

    @property
    def _is_embedded(self) -> bool:
        return self._url.startswith(CHDB_PREFIX)

    @property
    def _clickhouse(self) -> ClickHouse:
        assert self._connection is not None, "within `held` or `attached`"
        return self._connection

    @contextmanager
    def _connected(self) -> Iterator[ClickHouse]:
        with connected(self._url, self._database) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None

    def _number(self, block: Block) -> int:
        return (block.first - 1) // self.schedule.block_events

    def _exists(self, table: str) -> bool:
        return bool(
            self._clickhouse.rows(
                "SELECT 1 FROM system.tables WHERE database = {database:String}"
                " AND name = {table:String}",
                {"database": self._database, "table": table},
            )
        )

    def _require_same(self) -> None:
        """Raises `LandingError` if what is there is of another ledger or cut otherwise, or is no
        table of landed events at all."""
        clickhouse, is_there = self._clickhouse, self._exists(self._table_name)
        said = []
        if self._exists(f"{self._table_name}_landing"):
            said = clickhouse.rows(
                f"SELECT DISTINCT ledger_id, block_events, format FROM {self._origin_table}"
            )
        if not said and is_there and clickhouse.rows(f"SELECT 1 FROM {self._table} LIMIT 1"):
            raise self._mismatch(
                f"{self.place} holds events, and {self._origin_table} does not say of which ledger"
            )
        for found in (_Origin(*row) for row in said):
            if found.ledger_id != self._origin.ledger_id:
                raise self._mismatch(
                    f"{self.place} holds events of the ledger {found.ledger_id}, and this is"
                    f" {self._origin.ledger_id}"
                )
            if found.block_events != self._origin.block_events:
                raise self._mismatch(
                    f"{self.place} has blocks of {found.block_events:,} events, and"
                    f" {self._origin.block_events:,} are configured"
                )
            if found != self._origin:
                raise self._mismatch(
                    f"{self.place} has the format {found.format}, and this version of Tidemark"
                    f" writes {self._origin.format}"
                )
        if is_there:
            self._require_columns(clickhouse)

    def _make_tables(self, clickhouse: ClickHouse) -> None:
        clickhouse.run(
            f"CREATE TABLE IF NOT EXISTS {self._origin_table} (ledger_id String,"
            " block_events UInt64, format UInt32)"
            f" ENGINE = MergeTree ORDER BY ledger_id SETTINGS {_DURABLE}"
        )
        if not clickhouse.rows(f"SELECT 1 FROM {self._origin_table} LIMIT 1"):
            origin = pa.table({name: [value] for name, value in self._origin._asdict().items()})
            clickhouse.insert(self._database, f"{self._table_name}_landing", origin)
        columns = ", ".join(
            f"{name} {kind}{_DEFAULTS.get(name, '')}" for name, kind in COLUMN_TYPES.items()
        )
        clickhouse.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) ENGINE = MergeTree"
            f" PARTITION BY {self._partition_key} ORDER BY ({ORDER}) SETTINGS {_DURABLE}"
        )

    @property
    def _partition_key(self) -> str:
        return f"intDiv(ingress_sequence - 1, {self.schedule.block_events})"

    def _require_columns(self, clickhouse: ClickHouse) -> None:
        names = {"database": self._database, "table": self._table_name}
        of_table = "database = {database:String} AND table = {table:String}"
        types = dict(
            clickhouse.rows(f"SELECT name, type FROM system.columns WHERE {of_table}", names)
        )
        for name, kind in COLUMN_TYPES.items():
            if types.get(name) != kind:
                raise self._mismatch(
                    f"{self.place}: the column {name} is {types.get(name, 'missing')}, and should"
                    f" be {kind}"
                )
        [keys] = clickhouse.rows(
            "SELECT partition_key, sorting_key FROM system.tables"
            " WHERE database = {database:String} AND name = {table:String}",
            names,
        )
        if keys != (self._partition_key, ORDER):
            raise self._mismatch(
                f"{self.place} is partitioned by {keys[0] or 'nothing'} and ordered by {keys[1]},"
                f" and should be by {self._partition_key} and {ORDER}"
            )

    def _require_whole(self, clickhouse: ClickHouse) -> None:
        """Only the last block may still grow, and nothing is landed behind one with a hole."""
        found = clickhouse.rows(f"SELECT _partition_id, count() FROM {self._table} GROUP BY 1")
        *before_last, _ = sorted((int(number), count) for number, count in found) or [(0, 0)]
        for number, count in before_last:
            if count != self.schedule.block_events:
                raise self._mismatch(
                    f"{self.place}: partition {number} has {count:,} events, and should have"
                    f" {self.schedule.block_events:,}"
                )

    def _require_staged(self, block: Block, last_sequence: int) -> None:
        """Nothing but this block, and no less than is there: else somebody else is at work."""
        [staged] = self._clickhouse.rows(
            f"SELECT count(), min(ingress_sequence), max(ingress_sequence)"
            f" FROM {self._staging_table}"
        )
        [(landed,)] = self._clickhouse.rows(
            f"SELECT max(ingress_sequence) FROM {self._table}"
            f" WHERE _partition_id = '{self._number(block)}'"
        )
        expected = (last_sequence - block.first + 1, block.first, last_sequence)
        if staged != expected or landed > last_sequence:
            raise running(f"another process lands events in {self.place}")

    def _mismatch(self, message: str) -> LandingError:
        return LandingError(
            message,
            hint=f"Drop or rename the tables {self._table} and {self._origin_table}, or set"
            " landing.clickhouse.table to another one; all blocks are then landed anew from the"
            " ledger.",
            field="landing.clickhouse",
        )


class _OpenPartition:
    """A block that is being read. It may be replaced meanwhile by one that holds more: what was
    there of it is there then too."""

    def __init__(self, landed: Landed, clickhouse: ClickHouse, source: str) -> None:
        self.landed = landed
        self._clickhouse = clickhouse
        self._query = f"SELECT {', '.join(LANDED_SCHEMA.names)} {source}"

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._clickhouse.stream(f"{self._query} ORDER BY {ORDER}"):
            # What is no text would be found out only when it is looked at.
            batch.validate(full=True)
            yield batch

    def last_row(self) -> tuple[Any, ...] | None:
        last = f"{self._query} AND ingress_sequence = {self.landed.last_sequence}"
        rows = [row for batch in self._clickhouse.stream(last) for row in rows_of(batch)]
        return rows[-1] if rows else None


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Fewer and larger ones: each becomes a part, and many parts are many files."""
    gathered: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        if count >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(gathered, LANDED_SCHEMA)
            gathered, count = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered, LANDED_SCHEMA)
