"""However Spark cuts the work, the views are the same, and they are what the reference says.

Every run is a real streaming query over a real ledger into a real store.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.events import ManualClock
from tests.contract.stores import KINDS, Ledger, LedgerHome, all_commits
from tests.contract.views_home import ViewsHome
from tests.folding.cut_source import cut_stream
from tests.folding.mixed import (
    BY_ALL,
    BY_PLACE,
    DELETING,
    METERS,
    MixedLedger,
    config_of,
    fill,
    mixed_ledger,
    settings_of,
)
from tests.folding.outcomes import (
    Outcome,
    assert_as_the_meter_reference,
    assert_as_the_table_reference,
    outcome_of,
)
from tests.folding.planted import ClosesByTheBatch, JudgesLateByTheBatch, let_spark_have_them
from tests.folding.runs import run_pipeline
from tests.generated.meters import random_meter
from tests.generated.streams import STREAM
from tests.reference.definitions import Meter
from tests.reference.tables import Table
from tests.services.postgres import PostgresServer
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.pipeline import batches
from tidemark.pipeline.fold.task import FoldTask
from tidemark.pipeline.running import Pipeline
from tidemark.pipeline.source.offsets import Offset
from tidemark.views.opening import views_at
from tidemark.views.port import ViewsStore

Store = Literal["sqlite", "postgres"]
Cut = Callable[[Sequence[Offset]], Sequence[Offset]]
BY_NAME = {meter.name: meter for meter in METERS}
# Always the fold that takes facts one by one; never.
ONE_BY_ONE, TOGETHER = 10**9, 0


def whole(ends: Sequence[Offset]) -> Sequence[Offset]:
    return ()


def each(ends: Sequence[Offset]) -> Sequence[Offset]:
    return ends


def sevens(ends: Sequence[Offset]) -> Sequence[Offset]:
    return ends[6::7]


def anywhere(ends: Sequence[Offset]) -> Sequence[Offset]:
    source = random.Random(len(ends))
    return sorted(source.sample(list(ends), min(len(ends), 4)))


@dataclass(frozen=True)
class Run:
    """One way to do the work. `shuffles` is into how many parts Spark shares it out."""

    cut: Cut
    shuffles: int
    ledger: Store
    views: Store
    plain_limit: int


@dataclass(frozen=True)
class History:
    """A ledger, and what is made of it."""

    ledger: MixedLedger
    meters: Sequence[Meter]
    tables: Sequence[Table]

    def config(self, state_dir: Path, ledger_url: str, views_url: str) -> Config:
        settings = settings_of(self.meters, self.tables)
        return config_of(settings, state_dir, ledger_url, views_url)

    async def assert_right(self, views: ViewsStore) -> None:
        await assert_as_the_meter_reference(views, self.ledger.usage, self.meters)
        await assert_as_the_table_reference(views, self.ledger.stream, self.tables)


def named(*names: str) -> list[Meter]:
    return [BY_NAME[name] for name in names]


CORRECTED = History(
    mixed_ledger(3, commits=9, entries=4), named("m_sum", "m_unique", "m_avg"), [DELETING]
)
UNCORRECTED = History(
    mixed_ledger(5, commits=28, entries=8, controls=False),
    named("m_max", "m_min", "m_count", "m_last", "m_unique"),
    [BY_ALL],
)
LARGE = History(
    mixed_ledger(7, commits=60, entries=40), named("m_max", "m_avg", "m_last", "m_sum"), [BY_PLACE]
)
SMALL = History(mixed_ledger(11, commits=21, entries=6, controls=False), named("m_sum"), [DELETING])

# Not every way with every other, but each setting with each kind of cut and of ledger.
WAYS = {
    "corrected": (
        CORRECTED,
        [
            Run(each, 1, "sqlite", "sqlite", TOGETHER),
            Run(anywhere, 8, "postgres", "sqlite", ONE_BY_ONE),
            Run(whole, 2, "sqlite", "postgres", ONE_BY_ONE),
        ],
    ),
    "uncorrected": (
        UNCORRECTED,
        [
            Run(each, 2, "postgres", "postgres", ONE_BY_ONE),
            Run(sevens, 8, "sqlite", "sqlite", TOGETHER),
            Run(anywhere, 1, "sqlite", "postgres", TOGETHER),
            Run(whole, 8, "sqlite", "sqlite", ONE_BY_ONE),
        ],
    ),
    "large": (
        LARGE,
        [
            Run(whole, 1, "sqlite", "sqlite", TOGETHER),
            Run(whole, 8, "postgres", "postgres", ONE_BY_ONE),
            Run(anywhere, 2, "sqlite", "sqlite", TOGETHER),
        ],
    ),
}


@contextmanager
def shuffled_into(parts: int) -> Iterator[None]:
    spark = shared_session()
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(parts))
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(name, before)


class Places:
    """Ledgers and views of one test, on either store."""

    def __init__(self, directory: Path, postgres: PostgresServer | None) -> None:
        self._directory = directory
        self._postgres = postgres
        self._databases: list[str] = []
        self._homes: list[LedgerHome | ViewsHome] = []

    def url(self, store: Store, name: str) -> str:
        if store == "sqlite":
            return f"sqlite:///{self._directory / name}.db"
        assert self._postgres is not None
        self._databases.append(self._postgres.create_database())
        return self._databases[-1]

    async def ledger(self, store: Store, history: MixedLedger | None = None) -> Place:
        home = LedgerHome(self.url(store, "ledger"))
        self._homes.append(home)
        clock = ManualClock()
        place = Place(home.url, await home.open(clock), clock)
        if history is not None:
            await fill(place.ledger, clock, history.drafts())
        return place

    async def views(self, store: Store, name: str) -> tuple[ViewsHome, ViewsStore]:
        home = ViewsHome(self.url(store, name))
        self._homes.append(home)
        return home, await home.open()

    async def close(self) -> None:
        for home in self._homes:
            await home.close()
        if self._postgres is not None:
            for url in self._databases:
                await asyncio.to_thread(self._postgres.drop_database, url)


@dataclass(frozen=True)
class Place:
    url: str
    ledger: Ledger
    clock: ManualClock

    async def ends(self) -> list[Offset]:
        """The end of each commit but the last."""
        commits = await all_commits(self.ledger)
        return [Offset(commit.received_at, commit.last_sequence) for commit in commits[:-1]]


@asynccontextmanager
async def places(directory: Path, postgres: PostgresServer | None = None) -> AsyncIterator[Places]:
    made = Places(directory, postgres)
    try:
        yield made
    finally:
        await made.close()


def ordered_at(state_dir: Path) -> Path:
    return state_dir / "ordered" / STREAM


@pytest.mark.parametrize(("history", "runs"), WAYS.values(), ids=WAYS)
async def test_a_ledger_gives_one_result_however_it_is_cut_shared_out_and_kept(
    history: History, runs: Sequence[Run], tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.start()
    outcomes: list[Outcome] = []
    async with places(tmp_path, postgres) as made:
        ledgers = {store: await made.ledger(store, history.ledger) for store in KINDS}
        for number, run in enumerate(runs):
            ledger = ledgers[run.ledger]
            home, views = await made.views(run.views, f"views-{number}")
            state_dir = tmp_path / f"state-{number}"
            config = history.config(state_dir, ledger.url, home.url)
            with shuffled_into(run.shuffles):
                await run_pipeline(
                    config,
                    ledger.ledger,
                    views,
                    home.place,
                    read_stream=cut_stream(run.cut(await ledger.ends())),
                    plain_limit=run.plain_limit,
                )
            outcomes.append(await outcome_of(views, ordered_at(state_dir)))
            if number == 0:
                await history.assert_right(views)
    assert set(outcomes) == {outcomes[0]}
