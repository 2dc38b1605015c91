"""Landing into Parquet: what the ledger holds, in its order, once, whatever happened before."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.events import ManualClock
from tests.contract.ledger_growth import append_commits
from tests.contract.stores import Ledger, LedgerHome, all_events
from tests.generated.ledgers import Shape, random_ledger
from tests.services.parquet_blocks import rewrite
from tests.services.spark import shared_session
from tidemark.pipeline.files import UNFINISHED_SUFFIX
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.comparing import Compared, compare_blocks
from tidemark.pipeline.landing.following import Lander
from tidemark.pipeline.landing.parquet import (
    LandingError,
    LandingRunning,
    LandingUnavailable,
    ParquetDirectory,
)
from tidemark.pipeline.landing.rows import LANDED_SCHEMA, ContentHash
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.source.datasource import open_database

T = TypeVar("T")
BLOCK = 7
SHAPE = Shape(max_commits=14, max_entries=6, streams=("usage", "trades", "notes"))


async def off_loop(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Reading a ledger has an event loop of its own."""
    return await asyncio.to_thread(work, *arguments, **options)


class Landing:
    """A directory beside a ledger."""

    def __init__(self, ledger: Ledger, url: str, path: Path, block_events: int = BLOCK) -> None:
        self.url = url
        self.path = path
        self.directory = ParquetDirectory(path, Schedule(block_events), ledger.ledger_id)

    async def catch_up(self, **options: Any) -> int:
        return await off_loop(self.land_now, options)

    def land_now(self, options: dict[str, Any]) -> int:
        with self.directory.held():
            return self.work(**options)

    def work(self, **options: Any) -> int:
        """For who holds the directory already."""
        with open_database(self.url) as database:
            lander = Lander(self.directory, database)
            lander.catch_up(**options)
            return lander.last_sequence

    async def compare(self, **options: Any) -> Compared:
        def work() -> Compared | None:
            with open_database(self.url) as database:
                return compare_blocks(self.directory, database, **options)

        compared = await off_loop(work)
        assert compared is not None
        return compared

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.path.glob("*.parquet"))}

    def rows(self) -> list[dict[str, Any]]:
        tables = [pq.read_table(path) for path in sorted(self.path.glob("*.parquet"))]
        return pa.concat_tables(tables).to_pylist() if tables else []


@pytest.fixture
def landing(home: LedgerHome, ledger: Ledger, tmp_path: Path) -> Landing:
    return Landing(ledger, home.url, tmp_path / "landed")


async def expected_rows(ledger: Ledger) -> list[dict[str, Any]]:
    rows = []
    for event in await all_events(ledger):
        row = {name: getattr(event, name, -1) for name in LANDED_SCHEMA.names}
        for name in ("received_at", "occurred_at"):
            row[name] = None if row[name] is None else pd.Timestamp(row[name], unit="us", tz="UTC")
        if row["quantity"] is not None:
            row["quantity"] = Decimal(row["quantity"])
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(4))
async def test_however_often_it_stops_the_files_hold_the_ledger_in_its_order(
    landing: Landing, ledger: Ledger, clock: ManualClock, tmp_path: Path, seed: int
) -> None:
    source = random.Random(seed)
    commits = list(random_ledger(seed, SHAPE))
    while commits:
        count = source.randint(1, 4)
        await append_commits(ledger, clock, commits[:count])
        del commits[:count]
        reached = await landing.catch_up(only_whole=source.random() < 0.5)
        assert reached == len(landing.rows())
    head = (await ledger.head()).last_sequence
    assert await landing.catch_up() == head
    assert landing.rows() == await expected_rows(ledger)
    at_once = Landing(ledger, landing.url, tmp_path / "at-once")
    await at_once.catch_up()
    assert at_once.files() == landing.files()
    assert await landing.compare() == Compared(-(-head // BLOCK), head)


async def test_only_blocks_that_cannot_grow_any_more_are_landed_if_only_those_are_wanted(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    head = (await ledger.head()).last_sequence
    assert head % BLOCK
    assert await landing.catch_up(only_whole=True) == head - head % BLOCK
    before = landing.files()
    assert await landing.catch_up(only_whole=True) == head - head % BLOCK
    assert landing.files() == before
    assert await landing.catch_up() == head
    assert len(landing.files()) == len(before) + 1


async def test_analysts_read_the_files_with_numbers_times_and_order_intact(
    landing: Landing, ledger: Ledger, clock: ManualClock
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
    frame = pd.concat(map(pd.read_parquet, sorted(landing.path.glob("*.parquet"))))
    assert list(frame["ingress_sequence"]) == sequences
    assert str(frame["occurred_at"].dtype) == "datetime64[us, UTC]"
    by_spark = await off_loop(shared_session().read.parquet(str(landing.path)).toArrow)
    assert sorted(by_spark.column("ingress_sequence").to_pylist()) == sequences
    assert by_spark.schema.field("quantity").type == pa.decimal128(28, 9)


async def test_the_hash_of_events_does_not_depend_on_how_they_are_cut(
    landing: Landing, ledger: Ledger, clock: ManualClock
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


async def test_other_blocks_and_other_ledgers_are_refused(
    landing: Landing, ledger: Ledger, clock: ManualClock, home: LedgerHome
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    before = landing.files()
    with pytest.raises(LandingError, match="blocks of 7 events, and 8 are configured"):
        await Landing(ledger, home.url, landing.path, block_events=8).catch_up()
    landing.directory = ParquetDirectory(landing.path, Schedule(BLOCK), "another")
    with pytest.raises(LandingError, match="and this is another"):
        await landing.catch_up()
    (landing.path / "_landing.json").unlink()
    with pytest.raises(LandingError, match=r"holds blocks and no _landing\.json"):
        await landing.catch_up()
    assert landing.files() == before


async def test_a_hole_and_a_torn_file_are_named(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    first, second, *_ = sorted(landing.path.glob("*.parquet"))
    kept = second.read_bytes()
    second.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(LandingError, match=f"{second.name} cannot be read"):
        await landing.catch_up()
    second.unlink()
    with pytest.raises(LandingError, match=f"where {second.name} should be"):
        await landing.catch_up()
    second.write_bytes(kept)
    await landing.catch_up()
    assert first.exists()


async def test_a_ledger_that_was_set_back_is_noticed_also_when_it_went_on_since(
    ledger: Ledger, clock: ManualClock, tmp_path: Path, home: LedgerHome
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits)
    landing = Landing(ledger, home.url, tmp_path / "landed")
    await landing.catch_up()
    before = landing.files()
    backup = LedgerHome(f"sqlite:///{tmp_path / 'backup.db'}")
    try:
        older, own = await backup.open(later := ManualClock()), ledger.ledger_id
        landing = Landing(older, backup.url, landing.path)
        landing.directory = ParquetDirectory(landing.path, Schedule(BLOCK), own)
        await append_commits(older, later, commits[:4])
        with pytest.raises(LedgerRewound, match="and the ledger ends at"):
            await landing.catch_up()
        # The same events, and more of them, but at other times.
        later.pass_time(1_000_000)
        for received_at, events in commits[4:]:
            await append_commits(older, later, [(received_at + 10**12, events)])
        await append_commits(older, later, [(commits[-1][0] + 2 * 10**12, commits[-1][1])])
        with pytest.raises(LedgerRewound, match="is another one in this ledger"):
            await landing.catch_up()
        found = (await landing.compare()).difference
        assert found is not None
        assert found.column == "received_at"
    finally:
        await backup.close()
    assert landing.files() == before


async def test_a_full_disk_leaves_what_was_there_and_is_passed_when_there_is_room(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits[:7])
    await landing.catch_up()
    before = landing.files()
    await append_commits(ledger, clock, commits[7:])
    growing = sorted(before)[-1]
    aside = landing.path / f".{growing}{UNFINISHED_SUFFIX}"
    with landing.directory.held():
        aside.symlink_to("/dev/full")
        with pytest.raises(LandingUnavailable, match=os.strerror(errno.ENOSPC)):
            await off_loop(landing.work)
    assert landing.files() == before
    # The next to hold the directory removes what is aside.
    assert await landing.catch_up() == (await ledger.head()).last_sequence
    assert landing.rows() == await expected_rows(ledger)


async def test_a_block_that_grows_while_it_is_compared_is_no_difference(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits[:7])
    await landing.catch_up()
    await append_commits(ledger, clock, commits[7:])
    grown = []

    def grow(done: int, total: int) -> None:
        if not grown:
            grown.append(done)
            landing.land_now({})

    found = await landing.compare(on_progress=grow)
    assert grown
    assert found.difference is None


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_byte_is_wrong_it_is_named_and_nothing_worse(
    sqlite_home: LedgerHome, tmp_path: Path, seed: int
) -> None:
    ledger = await sqlite_home.open(clock := ManualClock())
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    landing = Landing(ledger, sqlite_home.url, tmp_path / "landed")
    await landing.catch_up()
    source = random.Random(seed)
    path = sorted(landing.path.glob("*.parquet"))[1]
    content, right = bytearray(path.read_bytes()), pq.read_table(path)
    for place in source.sample(range(len(content)), 3):
        content[place] ^= 1 << source.randrange(8)
    path.write_bytes(content)
    found = (await landing.compare()).difference
    # Some bytes say nothing of events: statistics, for one.
    assert found is not None or pq.read_table(path).equals(right)


async def test_two_do_not_land_into_one_directory(landing: Landing) -> None:
    with landing.directory.held(), pytest.raises(LandingRunning):
        await landing.catch_up()
    assert await landing.catch_up() == 0


# Each is something that may have happened to a file, and what is said of it.
def _altered(table: pa.Table) -> pa.Table:
    names = table.column_names
    tenants = ["somebody", *table.column("tenant_id").to_pylist()[1:]]
    return table.set_column(names.index("tenant_id"), table.schema.field("tenant_id"), [tenants])


def _turned_around(table: pa.Table) -> pa.Table:
    return table.take(list(reversed(range(table.num_rows))))


FAULTS = {
    "altered": (_altered, "an event differs", "tenant_id"),
    "out of order": (_turned_around, "an event differs", "ingress_sequence"),
    "one is missing": (lambda table: table.slice(0, BLOCK - 1), "an event is missing", None),
    "one is there twice": (
        lambda table: pa.concat_tables([table, table.slice(table.num_rows - 1)]),
        "an event should not be there",
        None,
    ),
}


@pytest.mark.parametrize(("spoil", "message", "column"), FAULTS.values(), ids=FAULTS)
async def test_the_first_difference_is_found_and_named(
    landing: Landing,
    ledger: Ledger,
    clock: ManualClock,
    spoil: Callable[[pa.Table], pa.Table],
    message: str,
    column: str | None,
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    _, path, *_ = sorted(landing.path.glob("*.parquet"))
    table = pq.read_table(path)
    rewrite(path, spoil(table).cast(LANDED_SCHEMA))
    found = (await landing.compare()).difference
    assert found is not None
    assert (found.block, found.message, found.column) == (path.name, message, column)
    assert found.sequence is not None


async def test_what_is_not_even_a_block_is_a_difference_too(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    sorted(landing.path.glob("*.parquet"))[1].unlink()
    found = (await landing.compare()).difference
    assert found is not None
    assert "should be" in found.message
