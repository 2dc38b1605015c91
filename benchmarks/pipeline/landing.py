"""Landing in Parquet, beside the same rows written by Arrow alone.

The limit has the rows in memory as they are landed, and writes them to one file with the same
compression: no ledger is read, nothing is hashed, no block is made durable.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.rig import Rig, Store
from benchmarks.pipeline.trades import commits
from benchmarks.pipeline.workload import append_commits
from tidemark.config import Config
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.comparing import compare_blocks
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.rows import LANDED_SCHEMA
from tidemark.pipeline.source.datasource import open_database
from tidemark.pipeline.source.frames import ledger_address

LANDING_STORE: Final[Store] = "sqlite"
BLOCK_EVENTS: Final = 100_000


class Landings(msgspec.Struct, frozen=True):
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
    found = Landings(scale.events, [], [], [])
    path = state_dir / "landed"
    directory = ParquetDirectory(path, Schedule(BLOCK_EVENTS), ledger_id)
    for _ in range(scale.repetitions):
        shutil.rmtree(path, ignore_errors=True)
        with open_database(ledger_address(config)) as database:
            began = time.monotonic()
            with directory.held():
                Lander(directory, database).catch_up()
            found.landed_s.append(time.monotonic() - began)
            began = time.monotonic()
            compared = compare_blocks(directory, database)
            found.compared_s.append(time.monotonic() - began)
        assert compared is not None
        assert (compared.events, compared.difference) == (scale.events, None)
        rows = pa.concat_tables(pq.read_table(file) for file in sorted(path.glob("*.parquet")))
        began = time.monotonic()
        with pq.ParquetWriter(state_dir / "plain.parquet", LANDED_SCHEMA, compression="zstd") as to:
            to.write_table(rows.cast(LANDED_SCHEMA), row_group_size=32_768)
        found.arrow_s.append(time.monotonic() - began)
    return found
