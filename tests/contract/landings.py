"""The places that events are landed in, for the tests that all of them must pass."""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tests.contract.stores import Ledger, all_events
from tests.generated.ledgers import Shape
from tests.services.clickhouse import Engine
from tests.services.parquet_blocks import rewrite
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.clickhouse import ClickHouseTable
from tidemark.pipeline.landing.comparing import Compared, compare_blocks
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.rows import LANDED_SCHEMA
from tidemark.pipeline.landing.target import LandingTarget
from tidemark.pipeline.source.datasource import open_database

T = TypeVar("T")
Rows: TypeAlias = list[dict[str, Any]]

BLOCK: Final = 7
SHAPE: Final = Shape(max_commits=14, max_entries=6, streams=("usage", "trades", "notes"))


async def off_loop(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Reading a ledger has an event loop of its own."""
    return await asyncio.to_thread(work, *arguments, **options)


class Landing(ABC):
    """A place beside a ledger."""

    def __init__(self, ledger_id: str, url: str, block_events: int = BLOCK) -> None:
        self.url = url
        self._ledger_id = ledger_id
        self.target = self.made(ledger_id, block_events)

    @abstractmethod
    def made(self, ledger_id: str, block_events: int) -> LandingTarget:
        """The same place, as another configuration would have it."""

    @abstractmethod
    def rows(self) -> Rows:
        """Every event that is landed, in the order in which a reader finds them."""

    @abstractmethod
    def state(self) -> Any:
        """All that is there, for comparing."""

    @abstractmethod
    def spoil(self, number: int, change: Callable[[pa.Table], pa.Table]) -> None:
        """Changes the events of a block, as somebody might who has the means."""

    @abstractmethod
    def forget_origin(self) -> None:
        """Removes what says which ledger the events are of."""

    @abstractmethod
    def remove(self, number: int) -> None:
        """Removes a block."""

    def again(self) -> Self:
        """The same place, as another process would have it."""
        other = copy.copy(self)
        schedule = self.target.schedule
        other.target = self.made(self._ledger_id, schedule.block_events)
        return other

    async def catch_up(self, **options: Any) -> int:
        return await off_loop(self.land_now, options)

    def land_now(self, options: dict[str, Any]) -> int:
        with self.target.held():
            return self.work(**options)

    def work(self, *, after_mirror: bool = False, **options: Any) -> int:
        """For who holds the place already."""
        with open_database(self.url) as database:
            lander = Lander(self.target, database, after_mirror=after_mirror)
            lander.catch_up(**options)
            return lander.last_sequence

    async def compare(self, **options: Any) -> Compared:
        def work() -> Compared | None:
            with open_database(self.url) as database:
                return compare_blocks(self.target, database, **options)

        compared = await off_loop(work)
        assert compared is not None
        return compared

    def name_of(self, number: int) -> str:
        schedule = self.target.schedule
        return self.target.name_of(schedule.block_of(number * schedule.block_events + 1))


class ParquetLanding(Landing):
    def __init__(self, path: Path, ledger: Ledger, url: str, block_events: int = BLOCK) -> None:
        self.path = path
        super().__init__(ledger.ledger_id, url, block_events)

    def made(self, ledger_id: str, block_events: int) -> LandingTarget:
        return ParquetDirectory(self.path, Schedule(block_events), ledger_id)

    def rows(self) -> Rows:
        tables = [pq.read_table(path) for path in self.paths()]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def state(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.paths()}

    def spoil(self, number: int, change: Callable[[pa.Table], pa.Table]) -> None:
        path = self.paths()[number]
        rewrite(path, change(pq.read_table(path)).cast(LANDED_SCHEMA))

    def forget_origin(self) -> None:
        (self.path / "_landing.json").unlink()

    def remove(self, number: int) -> None:
        self.paths()[number].unlink()

    def paths(self) -> list[Path]:
        return sorted(self.path.glob("*.parquet"))


class ClickHouseLanding(Landing):
    """In a database of its own. `lock` is for what is no directory of this machine."""

    def __init__(
        self, lock: Path, engine: Engine, ledger: Ledger, url: str, block_events: int = BLOCK
    ) -> None:
        self.lock = lock
        self.engine = engine
        self.database = engine.new_database()
        self.table = f"{self.database}.events"
        super().__init__(ledger.ledger_id, url, block_events)

    def made(self, ledger_id: str, block_events: int) -> LandingTarget:
        return ClickHouseTable(
            self.engine.url,
            self.database,
            "events",
            Schedule(block_events),
            ledger_id,
            lock=self.lock,
        )

    def rows(self) -> Rows:
        query = "ORDER BY ingress_sequence, kafka_partition, kafka_offset"
        rows: Rows = self.engine.table(f"SELECT * FROM {self.table} {query}").to_pylist()
        return rows

    def state(self) -> Any:
        blocks = f"SELECT _partition_id, count() FROM {self.table} GROUP BY 1 ORDER BY 1"
        return self.engine.rows(blocks), self.rows()

    def spoil(self, number: int, change: Callable[[pa.Table], pa.Table]) -> None:
        rows = self.engine.table(f"SELECT * FROM {self.table} WHERE _partition_id = '{number}'")
        self.remove(number)
        self.engine.insert(self.database, "events", change(rows))

    def forget_origin(self) -> None:
        self.engine.run(f"DROP TABLE {self.table}_landing SYNC")

    def remove(self, number: int) -> None:
        self.engine.run(f"ALTER TABLE {self.table} DROP PARTITION ID '{number}'")


async def expected_rows(ledger: Ledger) -> Rows:
    """What a landing is to hold."""
    rows = []
    for event in await all_events(ledger):
        row = {name: getattr(event, name, -1) for name in LANDED_SCHEMA.names}
        for name in ("received_at", "occurred_at"):
            row[name] = None if row[name] is None else pd.Timestamp(row[name], unit="us", tz="UTC")
        if row["quantity"] is not None:
            row["quantity"] = Decimal(row["quantity"])
        rows.append(row)
    return rows
