"""Landing in Parquet and in ClickHouse, each beside the same rows written by Arrow alone.

The limits have the rows in memory as they are landed. One writes them to one file with the same
compression, the other inserts them into a plain table of the same engine, chDB: no ledger is read,
nothing is hashed or counted, no block takes the place of another, none is made durable.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import clickhouse_connect
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.rig import Rig, Store
from benchmarks.pipeline.trades import commits
from benchmarks.pipeline.workload import append_commits
from tidemark.config import Config
from tidemark.config.urls import CHDB_PREFIX
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.clickhouse import COLUMN_TYPES, ORDER, ClickHouseTable
from tidemark.pipeline.landing.comparing import compare_blocks
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.rows import LANDED_SCHEMA
from tidemark.pipeline.landing.target import LandingTarget
from tidemark.pipeline.source.datasource import open_database
from tidemark.pipeline.source.frames import ledger_address

LANDING_STORE: Final[Store] = "sqlite"
BLOCK_EVENTS: Final = 100_000
# As landing reads them from the ledger, and as it hands them to ClickHouse.
_FILE_ROWS: Final = 32_768
_INSERT_ROWS: Final = 131_072


class Landed(msgspec.Struct, frozen=True):
    """Seconds for all events: landed, compared with the ledger, and written by Arrow alone."""

    events: int
    landed_s: list[float]
    compared_s: list[float]
    arrow_s: list[float]

    @property
    def landed_per_s(self) -> float:
        return self.events / median(self.landed_s)

    @property
    def compared_per_s(self) -> float:
        return self.events / median(self.compared_s)

    @property
    def arrow_per_s(self) -> float:
        return self.events / median(self.arrow_s)


class Landings(msgspec.Struct, frozen=True):
    """The same events, in the same run."""

    events: int
    parquet: Landed
    clickhouse: Landed


async def measure_landing(rig: Rig) -> Landings:
    """All in one run, by turns."""
    scale = rig.scale
    state_dir = Path(tempfile.mkdtemp(dir=rig.home))
    config = Config.model_validate(
        {
            "state_dir": str(state_dir),
            "streams": {"trades": {"fields": {"symbol": "string"}, "identity": ["symbol"]}},
        }
    )
    async with rig.stores(config) as (ledger, _):
        await append_commits(ledger, commits(scale.events))
        ledger_id = ledger.ledger_id
    schedule = Schedule(BLOCK_EVENTS)
    files, chdb = state_dir / "parquet", state_dir / "chdb"
    directory = ParquetDirectory(files, schedule, ledger_id)
    table = ClickHouseTable(
        f"{CHDB_PREFIX}{chdb}", "landed", "events", schedule, ledger_id, lock=state_dir / "lock"
    )
    found = Landings(
        scale.events,
        parquet=Landed(scale.events, [], [], []),
        clickhouse=Landed(scale.events, [], [], []),
    )
    for _ in range(scale.repetitions):
        for path in (files, chdb):
            shutil.rmtree(path, ignore_errors=True)
        _land(directory, config, found.parquet)
        _land(table, config, found.clickhouse)
        rows = pa.concat_tables(pq.read_table(file) for file in sorted(files.glob("*.parquet")))
        rows = rows.cast(LANDED_SCHEMA).combine_chunks()
        found.parquet.arrow_s.append(_seconds(partial(_written, state_dir, rows)))
        found.clickhouse.arrow_s.append(_inserted(chdb, rows))
    return found


def _land(target: LandingTarget, config: Config, found: Landed) -> None:
    with open_database(ledger_address(config)) as database:

        def land() -> None:
            with target.held():
                Lander(target, database).catch_up()

        found.landed_s.append(_seconds(land))
        began = time.monotonic()
        compared = compare_blocks(target, database)
        found.compared_s.append(time.monotonic() - began)
    assert compared is not None
    assert (compared.events, compared.difference) == (found.events, None)


def _written(directory: Path, rows: pa.Table) -> None:
    path = directory / "plain.parquet"
    with pq.ParquetWriter(path, LANDED_SCHEMA, compression="zstd") as writer:
        writer.write_table(rows, row_group_size=_FILE_ROWS)


def _inserted(path: Path, rows: pa.Table) -> float:
    client = clickhouse_connect.get_client(interface="chdb", path=str(path))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
    client.command("CREATE DATABASE plain")
    client.command(f"CREATE TABLE plain.events ({columns}) ENGINE = MergeTree ORDER BY ({ORDER})")

    def insert() -> None:
        for start in range(0, rows.num_rows, _INSERT_ROWS):
            part = rows.slice(start, _INSERT_ROWS)
            client.insert_arrow("events", part, database="plain", settings={"async_insert": 0})

    try:
        return _seconds(insert)
    finally:
        client.close()


def _seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
