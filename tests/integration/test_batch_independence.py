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
from typing import Literal

import pytest
from hypothesis import settings

from tests.contract.events import ManualClock
from tests.contract.stores import KINDS, Ledger, LedgerHome, all_commits
from tests.contract.views_home import ViewsHome
from tests.folding.cut_source import cut_stream
from tests.folding.mixed import (
    BY_ALL,
    BY_PLACE,
    DELETING,
    METERS,
    TIME,
    DraftCommit,
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
    assert_as_the_window_reference,
    outcome_of,
)
from tests.folding.planted import DependsOnTheBatch, let_spark_have_it
from tests.folding.runs import meter_results, run_pipeline
from tests.generated.ledgers import HOUR
from tests.generated.meters import random_meter
from tests.generated.streams import STREAM
from tests.generated.windows import AT, random_window, windows_of
from tests.reference.definitions import Meter
from tests.reference.fingerprint import MeterResult, fingerprint
from tests.reference.tables import Table
from tests.reference.window_definitions import Window
from tests.services.postgres import PostgresServer
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.pipeline import batches
from tidemark.pipeline.running import Pipeline
from tidemark.pipeline.source.offsets import Offset
from tidemark.views.opening import views_at
from tidemark.views.port import ViewsStore

Store = Literal["sqlite", "postgres"]
Cut = Callable[[Sequence[Offset]], Sequence[Offset]]
BY_NAME = {meter.name: meter for meter in METERS}
WINDOWS = {window.name: window for window in windows_of(AT)}
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
    return sorted(source.sample(list(ends), 1 + len(ends) // 8))


def at_random(ends: Sequence[Offset], seed: int) -> Sequence[Offset]:
    source = random.Random(seed)
    return sorted(source.sample(list(ends), source.randint(0, min(len(ends), 4))))


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
    windows: Sequence[Window] = ()

    def config(self, state_dir: Path, ledger_url: str, views_url: str) -> Config:
        wanted = settings_of(self.meters, self.tables, self.windows)
        return config_of(wanted, state_dir, ledger_url, views_url)

    async def assert_right(self, views: ViewsStore) -> None:
        await assert_as_the_meter_reference(views, self.ledger.usage, self.meters)
        await assert_as_the_table_reference(views, self.ledger.stream, self.tables)
        await assert_as_the_window_reference(views, self.ledger.stream, self.windows, TIME)


def named(*names: str) -> list[Meter]:
    return [BY_NAME[name] for name in names]


def windows(*names: str) -> list[Window]:
    return [WINDOWS[name] for name in names]


CORRECTED = History(
    mixed_ledger(98, commits=7, entries=3),
    named("m_sum", "m_unique", "m_avg"),
    [],
    windows("greatest", "means"),
)
UNCORRECTED = History(
    mixed_ledger(10, commits=9, entries=20, controls=False),
    named("m_max", "m_min", "m_count", "m_last", "m_unique"),
    [],
    windows("kinds", "numbers"),
)
LARGE = History(
    mixed_ledger(7, commits=20, entries=25),
    named("m_max", "m_avg", "m_last", "m_sum"),
    [BY_PLACE],
    windows("lasts", "again"),
)
GROWING = History(
    mixed_ledger(11, commits=15, entries=6, controls=False),
    named("m_sum"),
    [BY_ALL],
    windows("sums"),
)

# Not every way with every other, but each setting with each kind of cut and of ledger.
WAYS = {
    "corrected": (
        CORRECTED,
        [
            Run(each, 1, "sqlite", "sqlite", TOGETHER),
            Run(anywhere, 8, "postgres", "postgres", ONE_BY_ONE),
        ],
    ),
    "uncorrected": (
        UNCORRECTED,
        [
            Run(whole, 8, "sqlite", "sqlite", ONE_BY_ONE),
            Run(each, 2, "postgres", "sqlite", ONE_BY_ONE),
            Run(sevens, 1, "sqlite", "postgres", TOGETHER),
        ],
    ),
    "large": (
        LARGE,
        [
            Run(whole, 2, "sqlite", "sqlite", TOGETHER),
            Run(whole, 8, "postgres", "postgres", ONE_BY_ONE),
        ],
    ),
}
# One in an ordinary run, fifty in a thorough one.
SEEDS = range(settings().max_examples // 100)


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


async def outcome(
    history: History, run: Run, ledger: Place, made: Places, directory: Path
) -> Outcome:
    """What comes of one way to do the work, held against the reference."""
    home, views = await made.views(run.views, f"{directory.name}-views")
    config = history.config(directory, ledger.url, home.url)
    cut = cut_stream(run.cut(await ledger.ends()))
    with shuffled_into(run.shuffles):
        await run_pipeline(
            config,
            ledger.ledger,
            views,
            home.place,
            read_stream=cut,
            plain_limit=run.plain_limit,
        )
    await history.assert_right(views)
    return await outcome_of(views, ordered_at(directory))


@pytest.mark.parametrize(("history", "runs"), WAYS.values(), ids=WAYS)
async def test_a_ledger_gives_one_result_however_it_is_cut_shared_out_and_kept(
    history: History, runs: Sequence[Run], tmp_path: Path, postgres: PostgresServer
) -> None:
    postgres.start()
    async with places(tmp_path, postgres) as made:
        ledgers = {store: await made.ledger(store, history.ledger) for store in KINDS}
        outcomes = [
            await outcome(history, run, ledgers[run.ledger], made, tmp_path / f"state-{number}")
            for number, run in enumerate(runs)
        ]
    assert set(outcomes) == {outcomes[0]}


async def test_windows_without_event_time_are_corrected_as_the_reference_says(
    tmp_path: Path,
) -> None:
    history = mixed_ledger(98, commits=7, entries=3)
    untimed = [w for w in windows_of(None) if w.name in ("greatest", "means")]
    wanted = settings_of([], [], untimed)
    wanted["streams"][STREAM].pop("eventtime")
    wanted["streams"][STREAM].pop("idleAfter")
    wanted["pipeline"]["eventtime"]["enabled"] = False
    async with places(tmp_path) as made:
        ledger = await made.ledger("sqlite", history)
        home, views = await made.views("sqlite", "views")
        config = config_of(wanted, tmp_path / "state", ledger.url, home.url)
        cut = cut_stream(anywhere(await ledger.ends()))
        await run_pipeline(config, ledger.ledger, views, home.place, read_stream=cut)
        await assert_as_the_window_reference(views, history.stream, untimed, TIME)


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_ledger_cut_anywhere_gives_what_the_reference_gives(
    seed: int, tmp_path: Path
) -> None:
    source = random.Random(seed)
    history = History(
        mixed_ledger(1000 + seed, commits=source.randint(1, 12), entries=source.randint(1, 9)),
        [random_meter(100 * seed + number) for number in range(2)],
        source.choice([[], [BY_ALL], [BY_PLACE], [DELETING]]),
        [random_window(seed, time=AT)],
    )
    run = Run(
        partial(at_random, seed=seed),
        source.choice([1, 2, 8]),
        "sqlite",
        "sqlite",
        source.choice([ONE_BY_ONE, TOGETHER]),
    )
    async with places(tmp_path) as made:
        ledger = await made.ledger("sqlite", history.ledger)
        await outcome(history, run, ledger, made, tmp_path / "state")


async def test_the_checkpoint_of_spark_may_be_lost_or_older_and_nothing_changes(
    tmp_path: Path,
) -> None:
    drafts = GROWING.ledger.drafts()
    checkpoint = tmp_path / "state" / "spark" / "checkpoint"
    async with places(tmp_path) as made:
        ledger = await made.ledger("sqlite")
        home, views = await made.views("sqlite", "views")
        config = GROWING.config(tmp_path / "state", ledger.url, home.url)

        async def go_on(commits: Sequence[DraftCommit]) -> None:
            await fill(ledger.ledger, ledger.clock, commits)
            await run_pipeline(config, ledger.ledger, views, home.place)

        await go_on(drafts[:5])
        shutil.copytree(checkpoint, tmp_path / "older")
        shutil.rmtree(checkpoint)
        await go_on(drafts[5:10])
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "older", checkpoint)
        await go_on(drafts[10:])
        await GROWING.assert_right(views)


async def test_events_that_arrive_while_the_query_runs_are_folded_as_if_they_had_been_there(
    tmp_path: Path,
) -> None:
    drafts = GROWING.ledger.drafts()
    source = random.Random(1)
    async with places(tmp_path) as made:
        ledger = await made.ledger("sqlite")
        home, views = await made.views("sqlite", "views")
        config = GROWING.config(tmp_path / "state", ledger.url, home.url)
        loop = asyncio.get_running_loop()
        pipeline = await asyncio.to_thread(
            Pipeline,
            shared_session(),
            config,
            ledger.ledger,
            views,
            partial(views_at, home.place),
            loop=loop,
        )
        await asyncio.to_thread(pipeline.prepare)
        running = asyncio.create_task(asyncio.to_thread(pipeline.run))
        try:
            for commit in drafts:
                await fill(ledger.ledger, ledger.clock, [commit])
                await asyncio.sleep(source.choice([0, 0, 0.2, 0.6]))
            head = await ledger.ledger.head()
            async with asyncio.timeout(60):
                while pipeline.frontier is None or pipeline.frontier.chain != head.chain:
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.05)
        finally:
            pipeline.stop()
            await running
        await GROWING.assert_right(views)


async def test_a_planted_fold_that_depends_on_the_batch_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_spark_have_it()
    monkeypatch.setattr(batches, "FoldTask", DependsOnTheBatch)
    history = History(
        mixed_ledger(3, commits=6, entries=12, controls=False),
        [
            Meter("late", "api_calls", lateness_us=HOUR),
            Meter("closed", "api_calls", close_after_us=0),
        ],
        [],
    )
    found: list[dict[str, MeterResult]] = []
    async with places(tmp_path) as made:
        ledger = await made.ledger("sqlite", history.ledger)
        for cut in (each, whole):
            home, views = await made.views("sqlite", cut.__name__)
            config = history.config(tmp_path / cut.__name__, ledger.url, home.url)
            await run_pipeline(
                config,
                ledger.ledger,
                views,
                home.place,
                read_stream=cut_stream(cut(await ledger.ends())),
                plain_limit=ONE_BY_ONE,
            )
            found.append(await meter_results(views, ["late", "closed"]))
            if cut is each:
                # Where a batch is a commit, to depend on the batch is to depend on the commit.
                await history.assert_right(views)
    for name in ("late", "closed"):
        one_by_one, at_once = (fingerprint({name: results[name]}) for results in found)
        assert one_by_one != at_once
