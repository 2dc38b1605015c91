"""Landing into Parquet: files that analysts can read, and what may be wrong with a file."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.events import ManualClock
from tests.contract.landings import SHAPE, ParquetLanding, expected_rows, off_loop
from tests.contract.ledger_growth import append_commits
from tests.contract.stores import Ledger, LedgerHome, all_events
from tests.generated.ledgers import random_ledger
from tests.services.spark import shared_session
from tidemark.pipeline.files import UNFINISHED_SUFFIX
from tidemark.pipeline.landing.errors import LandingError, LandingUnavailable
from tidemark.pipeline.landing.rows import LANDED_SCHEMA, ContentHash


@pytest.fixture
def landing(home: LedgerHome, ledger: Ledger, tmp_path: Path) -> ParquetLanding:
    return ParquetLanding(tmp_path / "landed", ledger, home.url)


async def test_analysts_read_the_files_with_numbers_times_and_order_intact(
    landing: ParquetLanding, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(2, SHAPE))
    await landing.catch_up()
    sequences = [event.ingress_sequence for event in await all_events(ledger)]
    place = str(landing.path / "*.parquet")
    by_duckdb = duckdb.sql(f"SELECT * FROM read_parquet('{place}')")
    assert [row[0] for row in by_duckdb.fetchall()] == sequences
    types = dict(zip(by_duckdb.columns, map(str, by_duckdb.types), strict=True))
    assert types["received_at"] == "TIMESTAMP WITH TIME ZONE"
    assert (types["quantity"], types["kafka_offset"]) == ("DECIMAL(28,9)", "BIGINT")
    frame = pd.concat(map(pd.read_parquet, landing.paths()))
    assert list(frame["ingress_sequence"]) == sequences
    assert str(frame["occurred_at"].dtype) == "datetime64[us, UTC]"
    by_spark = await off_loop(shared_session().read.parquet(str(landing.path)).toArrow)
    assert sorted(by_spark.column("ingress_sequence").to_pylist()) == sequences
    assert by_spark.schema.field("quantity").type == pa.decimal128(28, 9)


async def test_the_hash_of_events_does_not_depend_on_how_they_are_cut(
    landing: ParquetLanding, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(3, SHAPE))
    await landing.catch_up()
    table = pa.Table.from_pylist(landing.rows(), LANDED_SCHEMA)
    hashes = set()
    for size in (1, 3, 1_000):
        hashed = ContentHash()
        for batch in table.to_batches(max_chunksize=size):
            hashed.add(batch)
        hashes.add((hashed.hexdigest(), hashed.count))
    assert len(hashes) == 1
    other = ContentHash()
    for batch in table.slice(1).to_batches():
        other.add(batch)
    assert other.hexdigest() not in {found for found, _ in hashes}


async def test_a_torn_file_is_named(
    landing: ParquetLanding, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    _, second, *_ = landing.paths()
    kept = second.read_bytes()
    second.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(LandingError, match=f"{second.name} cannot be read"):
        await landing.catch_up()
    second.write_bytes(kept)
    await landing.catch_up()


async def test_a_full_disk_leaves_what_was_there_and_is_passed_when_there_is_room(
    landing: ParquetLanding, ledger: Ledger, clock: ManualClock
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits[:7])
    await landing.catch_up()
    before = landing.state()
    await append_commits(ledger, clock, commits[7:])
    growing = sorted(before)[-1]
    aside = landing.path / f".{growing}{UNFINISHED_SUFFIX}"
    with landing.target.held():
        aside.symlink_to("/dev/full")
        with pytest.raises(LandingUnavailable, match=os.strerror(errno.ENOSPC)):
            await off_loop(landing.work)
    assert landing.state() == before
    # The next to hold the directory removes what is aside.
    assert await landing.catch_up() == (await ledger.head()).last_sequence
    assert landing.rows() == await expected_rows(ledger)


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_byte_is_wrong_it_is_named_and_nothing_worse(
    sqlite_home: LedgerHome, tmp_path: Path, seed: int
) -> None:
    ledger = await sqlite_home.open(clock := ManualClock())
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    landing = ParquetLanding(tmp_path / "landed", ledger, sqlite_home.url)
    await landing.catch_up()
    source = random.Random(seed)
    path = landing.paths()[1]
    content, right = bytearray(path.read_bytes()), pq.read_table(path)
    for place in source.sample(range(len(content)), 3):
        content[place] ^= 1 << source.randrange(8)
    path.write_bytes(content)
    found = (await landing.compare()).difference
    # Some bytes say nothing of events: statistics, for one.
    assert found is not None or pq.read_table(path).equals(right)


async def test_events_that_are_out_of_order_are_named(
    landing: ParquetLanding, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    landing.spoil(1, lambda table: table.take(list(reversed(range(table.num_rows)))))
    found = (await landing.compare()).difference
    assert found is not None
    assert (found.block, found.column) == (landing.name_of(1), "ingress_sequence")
