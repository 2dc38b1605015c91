"""Landing, wherever it goes: the ledger in its order, once, whatever happened before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from tests.contract.events import ManualClock
from tests.contract.landings import (
    BLOCK,
    SHAPE,
    ClickHouseLanding,
    Landing,
    ParquetLanding,
    expected_rows,
)
from tests.contract.ledger_growth import append_commits
from tests.contract.stores import Ledger, LedgerHome
from tests.generated.ledgers import random_ledger
from tests.services.clickhouse import Engine, chdb_engine
from tests.services.clickhouse_server import ClickHouseServer
from tests.services.ports import free_port
from tidemark.ledger.port import PlacedEvents
from tidemark.mirror.places import Place, PlaceColumns
from tidemark.pipeline.landing.comparing import Compared
from tidemark.pipeline.landing.errors import LandingError, LandingRunning
from tidemark.pipeline.output.errors import LedgerRewound

MakeLanding: TypeAlias = Callable[[Ledger, str], Landing]


# From which store of the ledger into which place.
WAYS = (
    ("sqlite", "parquet"),
    ("postgres", "parquet"),
    ("sqlite", "chdb"),
    ("postgres", "chdb"),
    ("sqlite", "server"),
)


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def home(request: pytest.FixtureRequest, way: tuple[str, str]) -> LedgerHome:
    place = request.getfixturevalue(f"{way[0]}_home")
    assert isinstance(place, LedgerHome)
    return place


@pytest.fixture(scope="module")
def chdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with chdb_engine(tmp_path_factory.mktemp("chdb")) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    server = ClickHouseServer(tmp_path_factory.mktemp("server"), free_port())
    try:
        server.start()
        engine = Engine(server.url)
        yield engine
        engine.close()
    finally:
        server.kill()


@pytest.fixture
def make_landing(
    request: pytest.FixtureRequest, way: tuple[str, str], tmp_path: Path
) -> MakeLanding:
    """Makes places that are new and empty."""
    if way[1] == "parquet":
        numbers = iter(range(9))
        return lambda ledger, url: ParquetLanding(tmp_path / f"p{next(numbers)}", ledger, url)
    engine = request.getfixturevalue(way[1])
    return lambda ledger, url: ClickHouseLanding(tmp_path / "lock", engine, ledger, url)


@pytest.fixture
def landing(make_landing: MakeLanding, ledger: Ledger, home: LedgerHome) -> Landing:
    return make_landing(ledger, home.url)


@pytest.mark.parametrize("seed", range(2))
async def test_however_often_it_stops_a_place_holds_the_ledger_in_its_order(
    make_landing: MakeLanding, ledger: Ledger, clock: ManualClock, home: LedgerHome, seed: int
) -> None:
    landing = make_landing(ledger, home.url)
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
    at_once = make_landing(ledger, home.url)
    await at_once.catch_up()
    assert at_once.state() == landing.state()
    assert await landing.compare() == Compared(landing.target.name, -(-head // BLOCK), head)


def placed(first: int, last: int, further: int = 0) -> PlacedEvents:
    """As the mirror tells of them, each so much further on."""
    columns = PlaceColumns.unknown(last - first + 1)
    for index, sequence in enumerate(range(first, last + 1)):
        columns.put(index, Place(sequence % 3, offset_of(sequence) + further))
    return PlacedEvents(first, last, columns.packed())


def offset_of(sequence: int) -> int:
    return 2**40 + sequence


async def test_events_are_landed_with_their_places_in_kafka_once_the_mirror_has_them(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(3, SHAPE))
    head = (await ledger.head()).last_sequence
    known = BLOCK + 2
    assert await landing.catch_up(after_mirror=True) == 0
    # As transactions of the mirror cut them, which are not as blocks do.
    for first, last in ((1, 3), (4, 4), (5, known)):
        await ledger.place_events(placed(first, last))
    assert await landing.catch_up(after_mirror=True) == known
    places = [(row["kafka_partition"], row["kafka_offset"]) for row in landing.rows()]
    assert places == [(n % 3, offset_of(n)) for n in range(1, known + 1)]
    # Without a mirror the rest is landed too, and where it is in Kafka is no part of what it says.
    assert await landing.catch_up() == head
    rows = landing.rows()
    assert [row["kafka_offset"] for row in rows[known:]] == [-1] * (head - known)
    assert [row["kafka_offset"] for row in rows[:known]] == [place[1] for place in places]
    compared = await landing.compare()
    assert (compared.events, compared.difference, compared.elsewhere) == (head, None, 0)
    # Everything but the first is mirrored anew, and is then elsewhere; what was landed without a
    # place has one now.
    await ledger.forget_places(0)
    await ledger.place_events(placed(1, 1))
    await ledger.place_events(placed(2, head, further=7))
    compared = await landing.compare()
    assert (compared.difference, compared.elsewhere) == (None, known - 1)


async def test_what_is_mirrored_anew_while_it_is_landed_waits_until_it_has_a_place_again(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    commits = list(random_ledger(3, SHAPE))
    await append_commits(ledger, clock, commits[:4])
    # Landed before there was a mirror, and some of it forgotten before places were written down.
    assert 0 < await landing.catch_up() < BLOCK
    await append_commits(ledger, clock, commits[4:])
    forgotten, last, loop = 2, 3 * BLOCK, asyncio.get_running_loop()
    await ledger.place_events(placed(forgotten + 1, last))

    def mirror_anew(done: int, total: int) -> None:
        asyncio.run_coroutine_threadsafe(ledger.forget_places(0), loop).result()

    def offsets() -> list[int]:
        return [row["kafka_offset"] for row in landing.rows()]

    assert await landing.catch_up(after_mirror=True, on_progress=mirror_anew) == BLOCK
    before = [-1] * forgotten + [offset_of(n) for n in range(forgotten + 1, BLOCK + 1)]
    assert offsets() == before
    assert await landing.catch_up(after_mirror=True) == BLOCK
    for first, reach in ((1, BLOCK + 2), (BLOCK + 3, last)):
        await ledger.place_events(placed(first, reach, further=7))
        assert await landing.catch_up(after_mirror=True) == reach
        anew = [offset_of(n) + 7 for n in range(BLOCK + 1, reach + 1)]
        assert offsets() == before + anew
    compared = await landing.compare()
    assert (compared.difference, compared.elsewhere) == (None, BLOCK - forgotten)


async def test_a_place_where_nothing_was_landed_yet_has_no_difference(landing: Landing) -> None:
    assert await landing.compare() == Compared(landing.target.name, 0, 0)


async def test_only_blocks_that_cannot_grow_any_more_are_landed_if_only_those_are_wanted(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    head = (await ledger.head()).last_sequence
    assert head % BLOCK
    assert await landing.catch_up(only_whole=True) == head - head % BLOCK
    before = landing.state()
    assert await landing.catch_up(only_whole=True) == head - head % BLOCK
    assert landing.state() == before
    assert await landing.catch_up() == head
    assert len(landing.rows()) == head


async def test_other_blocks_and_other_ledgers_are_refused(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    before = landing.state()
    landing.target = landing.made(ledger.ledger_id, 8)
    with pytest.raises(LandingError, match="blocks of 7 events, and 8 are configured"):
        await landing.catch_up()
    landing.target = landing.made("another", BLOCK)
    with pytest.raises(LandingError, match="and this is another"):
        await landing.catch_up()
    landing.forget_origin()
    with pytest.raises(LandingError, match=r"holds (blocks|events)"):
        await landing.catch_up()
    assert landing.state() == before


async def test_a_hole_is_named(landing: Landing, ledger: Ledger, clock: ManualClock) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    missing = landing.name_of(1)
    landing.remove(1)
    with pytest.raises(LandingError, match=f"where {missing} should be"):
        await landing.catch_up()
    found = (await landing.compare()).difference
    assert found is not None
    assert f"where {missing} should be" in found.message


async def test_a_ledger_that_was_set_back_is_noticed_also_when_it_went_on_since(
    landing: Landing, ledger: Ledger, clock: ManualClock, tmp_path: Path
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits)
    await landing.catch_up()
    before = landing.state()
    backup = LedgerHome(f"sqlite:///{tmp_path / 'backup.db'}")
    try:
        older = await backup.open(later := ManualClock())
        landing.url = backup.url
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
    assert landing.state() == before


async def test_two_do_not_land_in_one_place(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    with landing.target.held(), pytest.raises(LandingRunning):
        landing.made(ledger.ledger_id, BLOCK).held().__enter__()
    assert await landing.catch_up() == 0


# Each is something that may have happened to a block, and what is said of it.
def _altered(table: pa.Table) -> pa.Table:
    place = table.column_names.index("tenant_id")
    tenants = ["somebody", *table.column(place).to_pylist()[1:]]
    return table.set_column(place, table.schema.field(place), [tenants])


FAULTS = {
    "altered": (_altered, "an event differs", "tenant_id"),
    "one is missing": (lambda table: table.slice(0, BLOCK - 1), "an event is missing", None),
    "one is there twice": (
        lambda table: pa.concat_tables([table, table.slice(table.num_rows - 1)]),
        "an event should not be there",
        None,
    ),
}


@pytest.mark.parametrize(("change", "message", "column"), FAULTS.values(), ids=FAULTS)
async def test_the_first_difference_is_found_and_named(
    landing: Landing,
    ledger: Ledger,
    clock: ManualClock,
    change: Callable[[pa.Table], pa.Table],
    message: str,
    column: str | None,
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    landing.spoil(1, change)
    compared = await landing.compare()
    found = compared.difference
    assert found is not None
    assert (compared.target, compared.events) == (landing.target.name, BLOCK)
    assert (found.block, found.message, found.column) == (landing.name_of(1), message, column)
    assert found.sequence == str(BLOCK + 1 if column else 2 * BLOCK)


async def test_a_block_that_grows_while_it_is_compared_is_no_difference(
    landing: Landing, ledger: Ledger, clock: ManualClock, way: tuple[str, str]
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits[:7])
    await landing.catch_up()
    await append_commits(ledger, clock, commits[7:])
    grower = landing.again()
    grown = []

    def grow(done: int, total: int) -> None:
        if not grown:
            grown.append(done)
            if way[1] == "chdb":
                # Who compares has the directory, and nobody else can.
                with pytest.raises(LandingRunning):
                    grower.land_now({})
            else:
                grower.land_now({})

    found = await landing.compare(on_progress=grow)
    assert grown
    assert found.difference is None


async def test_where_the_mirror_has_put_an_event_is_no_difference(
    landing: Landing, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()

    def mirrored(table: pa.Table) -> pa.Table:
        place = table.column_names.index("kafka_offset")
        offsets = pa.array(range(table.num_rows), pa.int64())
        return table.set_column(place, table.schema.field(place), [offsets])

    landing.spoil(1, mirrored)
    compared = await landing.compare()
    assert (compared.difference, compared.elsewhere) == (None, BLOCK)
