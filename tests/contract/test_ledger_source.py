"""The ledger as a source of Spark: every record once, in batches that end at commits."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from itertools import chain, pairwise, product, repeat
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.contract.events import START, ManualClock, draft, request
from tests.contract.ledger_growth import append_commits, append_ticks
from tests.contract.source_records import (
    Record,
    commits_only,
    events_only,
    expected_records,
    in_order,
    read_at_rest,
    read_stream,
    records_of,
    rows_of,
)
from tests.contract.stores import Ledger, LedgerHome, append_all
from tests.generated.ledgers import CUSTOMERS, METRICS, TENANTS, Shape, random_ledger
from tests.services.spark import shared_session
from tidemark.config import Config
from tidemark.errors import ConfigError, LedgerUnavailable
from tidemark.ingress.drafts import no_corrections
from tidemark.ledger.port import HistoryCommit
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.source import (
    BEGINNING,
    Offset,
    failure_of,
    ledger_address,
    ledger_rows,
    ledger_stream,
    planning,
)
from tidemark.pipeline.source import partitions as reading_of_parts
from tidemark.pipeline.source.datasource import open_database

T = TypeVar("T")

SHAPE = Shape(max_commits=25, max_entries=6, streams=("usage", "usage", "trades", "notes"))
OWNERS = tuple(product(sorted(set(TENANTS)), sorted(set(METRICS)), sorted(set(CUSTOMERS))))
STREAMS = tuple(product(("usage", "trades", "absent"), sorted(set(TENANTS))))


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return shared_session()


async def off_loop(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """The source has event loops of its own."""
    return await asyncio.to_thread(work, *arguments, **options)


def run_stream(stream: DataFrame, checkpoint: Path) -> list[list[Record]]:
    """The records of each micro-batch, until everything that was there is read."""
    batches: list[list[Record]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append(records_of([batch.toArrow()]))

    query: StreamingQuery = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return batches


def assert_ends_at_commits(batches: list[list[Record]]) -> None:
    """Each batch has whole commits, and begins where the one before it ended."""
    reached = 0
    for batch in batches:
        commits = commits_only(batch)
        assert commits, "a batch has at least one commit"
        assert commits[0]["first_sequence"] == reached + 1
        for before, after in pairwise(commits):
            assert after["first_sequence"] == before["last_sequence"] + 1
            assert after["previous_received_at"] == before["received_at"]
            assert after["previous_chain"] == before["chain"]
        sequences = [event["ingress_sequence"] for event in events_only(batch)]
        assert sequences == list(range(reached + 1, commits[-1]["last_sequence"] + 1))
        reached = commits[-1]["last_sequence"]


@pytest.mark.parametrize("max_rows", [1, 7, None])
async def test_a_stream_gives_every_record_once_however_it_is_cut(
    home: LedgerHome,
    ledger: Ledger,
    clock: ManualClock,
    spark: SparkSession,
    tmp_path: Path,
    max_rows: int | None,
) -> None:
    commits = random_ledger(3, Shape(max_commits=10, max_entries=5))
    await append_commits(ledger, clock, commits)
    stream = ledger_stream(spark, home.url, max_rows=max_rows)
    batches = await off_loop(run_stream, stream, tmp_path / "checkpoint")
    assert in_order(chain.from_iterable(batches)) == await expected_records(ledger)
    assert_ends_at_commits(batches)
    if max_rows is None:
        assert len(batches) == 1
    else:
        assert len(batches) > 1
        assert all(rows_of(b) <= max_rows or len(commits_only(b)) == 1 for b in batches)


@pytest.mark.parametrize("seed", range(6))
async def test_any_cut_of_any_ledger_into_any_parts_gives_the_same_records(
    home: LedgerHome,
    ledger: Ledger,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(planning, "MIN_ROWS_PER_PARTITION", 2)
    monkeypatch.setattr(planning, "FIRST_PAGE", 3)
    monkeypatch.setattr(planning, "LAST_PAGE", 5)
    monkeypatch.setattr(reading_of_parts, "COMMITS_PER_PAGE", 3)
    monkeypatch.setattr(reading_of_parts, "FIRST_CHUNK_ROWS", 1)
    monkeypatch.setattr(reading_of_parts, "MAX_CHUNK_ROWS", 5)
    source = random.Random(seed)
    await append_commits(ledger, clock, random_ledger(seed, SHAPE))
    expected = await expected_records(ledger)
    ways: list[Iterator[int | None]] = [
        repeat(1),
        repeat(7),
        repeat(None),
        iter(lambda: source.choice((1, 2, 3, 5, 8, 13, None)), 0),
    ]
    for limits in ways:
        parts = source.choice((1, 2, 3, 8))
        batches = [
            batch
            for _, batch in await off_loop(
                lambda limits=limits, parts=parts: list(
                    read_stream(home.url, limits, partitions=parts)
                )
            )
        ]
        assert in_order(chain.from_iterable(batches)) == expected
        assert_ends_at_commits(batches)
    assert await off_loop(read_at_rest, home.url, partitions=3) == expected


@pytest.mark.parametrize("seed", range(6))
async def test_a_range_at_rest_has_the_records_of_its_commits(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, seed: int
) -> None:
    await append_commits(ledger, clock, random_ledger(seed, SHAPE))
    expected = await expected_records(ledger)
    times = [0, *(commit["received_at"] for commit in commits_only(expected))]
    source = random.Random(seed)
    for _ in range(5):
        after, upto = sorted(source.sample(times, 2))
        found = await off_loop(read_at_rest, home.url, after=after, upto=upto)
        assert found == [r for r in expected if after < r["received_at"] <= upto]


@pytest.mark.parametrize("seed", range(4))
async def test_reading_some_owners_or_streams_is_reading_everything_and_keeping_theirs(
    home: LedgerHome,
    ledger: Ledger,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(planning, "MIN_ROWS_PER_PARTITION", 5)
    monkeypatch.setattr(reading_of_parts, "FIRST_CHUNK_ROWS", 4)
    monkeypatch.setattr(reading_of_parts, "MAX_CHUNK_ROWS", 4)
    await append_commits(ledger, clock, random_ledger(seed, SHAPE))
    events = events_only(await expected_records(ledger))
    times = [0, *sorted({event["received_at"] for event in events})]
    source = random.Random(seed)
    for _ in range(4):
        after, upto = sorted(source.sample(times, 2)) if len(times) > 2 else (0, times[-1])
        within = [event for event in events if after < event["received_at"] <= upto]
        owners = source.sample(OWNERS, source.randint(0, 4))
        found = await off_loop(
            read_at_rest, home.url, after=after, upto=upto, owners=json.dumps(owners), partitions=3
        )
        names = ("tenant_id", "metric", "customer_ref")
        assert found == [e for e in within if tuple(e[n] for n in names) in owners]
        streams = source.sample(STREAMS, source.randint(0, 4))
        found = await off_loop(
            read_at_rest,
            home.url,
            after=after,
            upto=upto,
            streams=json.dumps(streams),
            partitions=3,
        )
        assert found == [e for e in within if (e["stream"], e["tenant_id"]) in streams]


async def test_spark_reads_owners_and_streams_and_ranges(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, spark: SparkSession
) -> None:
    await append_commits(ledger, clock, random_ledger(5, SHAPE))
    expected = await expected_records(ledger)
    events = events_only(expected)

    def read(**options: Any) -> list[Record]:
        return records_of([ledger_rows(spark, home.url, **options).toArrow()])

    assert await off_loop(read) == expected
    owner = OWNERS[0]
    assert await off_loop(read, owners=[owner]) == [
        e for e in events if (e["tenant_id"], e["metric"], e["customer_ref"]) == owner
    ]
    assert await off_loop(read, streams=[("trades", "t1")]) == [
        e for e in events if (e["stream"], e["tenant_id"]) == ("trades", "t1")
    ]
    middle = commits_only(expected)[7]["received_at"]
    assert await off_loop(read, after=middle) == [r for r in expected if r["received_at"] > middle]
    assert await off_loop(read, upto=middle) == [r for r in expected if r["received_at"] <= middle]


async def test_owners_are_found_by_the_index_of_usage(
    home: LedgerHome, ledger: Ledger, clock: ManualClock
) -> None:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))

    def plan() -> str:
        with open_database(home.url) as database:
            return database.explain(0, 200_000, OWNERS)

    explained = await off_loop(plan)
    assert "events_usage" in explained
    assert "customer_ref" in explained
    assert "events_pkey" not in explained


async def test_a_silence_is_read_in_bounded_batches(
    home: LedgerHome, ledger: Ledger, clock: ManualClock
) -> None:
    await append_ticks(ledger, clock, 50)
    batches = [b for _, b in await off_loop(lambda: list(read_stream(home.url, repeat(7))))]
    assert [len(batch) for batch in batches] == [7] * 7 + [1]
    assert in_order(chain.from_iterable(batches)) == await expected_records(ledger)


async def test_a_commit_larger_than_the_bound_is_read_whole(
    home: LedgerHome, ledger: Ledger
) -> None:
    await append_all(ledger, request(*(draft(f"k{i}", str(i)) for i in range(30))))
    await append_all(ledger, request(draft("last")))
    batches = [b for _, b in await off_loop(lambda: list(read_stream(home.url, repeat(10))))]
    assert [rows_of(batch) for batch in batches] == [30, 1]


async def test_an_empty_ledger_has_nothing_to_read(
    home: LedgerHome, ledger: Ledger, spark: SparkSession, tmp_path: Path
) -> None:
    assert ledger.ledger_id
    assert await off_loop(run_stream, ledger_stream(spark, home.url), tmp_path / "cp") == [[]]
    assert await off_loop(ledger_rows(spark, home.url).count) == 0
    assert await off_loop(read_at_rest, home.url, owners="[]") == []


async def test_a_stream_begins_at_the_offset_it_is_given(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, spark: SparkSession, tmp_path: Path
) -> None:
    await append_commits(ledger, clock, random_ledger(2, SHAPE))
    expected = await expected_records(ledger)
    commit = commits_only(expected)[6]
    start = Offset(commit["received_at"], commit["last_sequence"])
    stream = ledger_stream(spark, home.url, start=start)
    [batch] = await off_loop(run_stream, stream, tmp_path / "checkpoint")
    assert batch == [r for r in expected if r["received_at"] > start.received_at]


async def test_a_large_batch_is_shared_out_among_tasks(
    home: LedgerHome, ledger: Ledger, spark: SparkSession
) -> None:
    entries = [draft(f"k{i}", str(i), quantity=f"{i}.25") for i in range(45_000)]
    history = [
        HistoryCommit(START + at, request(*entries[at : at + 7_000]))
        for at in range(0, len(entries), 7_000)
    ]
    await ledger.append_history(history, no_corrections)
    rows = ledger_rows(spark, home.url, partitions=4)

    def read() -> tuple[int, pa.Table]:
        return rows.rdd.getNumPartitions(), rows.toArrow()

    parts, table = await off_loop(read)
    assert parts == 2
    sequences = table["ingress_sequence"].drop_null().to_pylist()
    assert sorted(sequences) == list(range(1, 45_001))
    assert table["first_sequence"].drop_null().length() == len(history)


async def test_events_of_any_size_are_read_in_chunks_of_bounded_bytes(
    home: LedgerHome, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_of_parts, "FIRST_CHUNK_ROWS", 2)
    monkeypatch.setattr(reading_of_parts, "CHUNK_BYTES", 100_000)
    sizes = [10, 200_000, 10, 10, 10, 200_000, 200_000, *[10] * 20]
    await append_all(
        ledger, request(*(draft(f"k{i}", str(i), data="ü" * n) for i, n in enumerate(sizes)))
    )
    assert await off_loop(read_at_rest, home.url) == await expected_records(ledger)


@pytest.mark.parametrize("wrong", ["sequence", "time", "future"])
async def test_a_ledger_without_the_commit_to_begin_at_is_noticed(
    home: LedgerHome,
    ledger: Ledger,
    clock: ManualClock,
    spark: SparkSession,
    tmp_path: Path,
    wrong: str,
) -> None:
    await append_commits(ledger, clock, random_ledger(2, SHAPE))
    commit = commits_only(await expected_records(ledger))[6]
    time, sequence = commit["received_at"], commit["last_sequence"]
    start = {
        "sequence": Offset(time, sequence + 1),
        "time": Offset(time - 1, sequence),
        "future": Offset(time * 2, sequence * 9),
    }[wrong]
    with pytest.raises(Exception, match="ledger") as caught:
        await off_loop(run_stream, ledger_stream(spark, home.url, start=start), tmp_path / "cp")
    failure = failure_of(caught.value)
    assert isinstance(failure, LedgerRewound)
    assert failure.code == "ledger_rewound"
    assert str(start.received_at) in failure.message
    assert "backup" in failure.hint


async def test_a_ledger_that_was_set_back_under_a_checkpoint_is_noticed(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, spark: SparkSession, tmp_path: Path
) -> None:
    commits = random_ledger(2, SHAPE)
    await append_commits(ledger, clock, commits)
    stream = ledger_stream(spark, home.url)
    await off_loop(run_stream, stream, tmp_path / "checkpoint")
    if home.kind == "sqlite":
        await home.close()
        for file in home.place.parent.glob("ledger.db*"):
            file.unlink()
    else:
        await home.sql("DROP SCHEMA tidemark CASCADE")
    earlier = ManualClock()
    await append_commits(await home.reopen(earlier), earlier, commits[:4])
    with pytest.raises(Exception, match="ledger") as caught:
        await off_loop(run_stream, stream, tmp_path / "checkpoint")
    assert isinstance(failure_of(caught.value), LedgerRewound)


async def test_a_range_that_names_no_commit_is_refused(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, spark: SparkSession
) -> None:
    await append_commits(ledger, clock, random_ledger(2, SHAPE))
    for options in ({"after": 5}, {"upto": 5}):
        with pytest.raises(Exception, match="ledger") as caught:
            await off_loop(ledger_rows(spark, home.url, **options).count)
        assert isinstance(failure_of(caught.value), LedgerRewound)


async def test_no_reader_sees_an_event_before_the_one_before_it(
    home: LedgerHome, ledger: Ledger, spark: SparkSession, tmp_path: Path
) -> None:
    """Commits keep coming while the stream runs, in as many batches as it can make."""
    batches: list[list[Record]] = []
    written = 0
    total = 60

    def keep(batch: DataFrame, _: int) -> None:
        batches.append(records_of([batch.toArrow()]))

    stream = ledger_stream(spark, home.url, max_rows=40)
    query = (
        stream.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while written < total or not batches:
            entries = [draft(f"k{written}-{i}", f"{written}-{i}") for i in range(written % 5 + 1)]
            await append_all(ledger, request(*entries))
            written += 1
            await asyncio.sleep(0.02)
        await off_loop(query.processAllAvailable)
    finally:
        await off_loop(query.stop)
    assert in_order(chain.from_iterable(batches)) == await expected_records(ledger)
    assert_ends_at_commits(batches)


async def test_a_ledger_that_is_not_there_is_unavailable(
    spark: SparkSession, tmp_path: Path
) -> None:
    for address in (
        f"sqlite:///{tmp_path / 'absent.db'}",
        "postgresql://nobody@127.0.0.1:1/absent",
    ):
        with pytest.raises(Exception, match="ledger_unavailable") as caught:
            await off_loop(ledger_rows(spark, address).count)
        assert isinstance(failure_of(caught.value), LedgerUnavailable)
    assert not (tmp_path / "absent.db").exists()


def test_what_did_not_come_from_us_is_no_failure_of_ours() -> None:
    assert failure_of(ValueError("something else")) is None
    mine = LedgerRewound("gone")
    assert failure_of(mine) is mine


def test_an_offset_that_cannot_be_read_is_refused() -> None:
    for text in ("nonsense", "[]", '{"received_at": 1}'):
        with pytest.raises(ConfigError, match="not an offset"):
            Offset.from_option(text)
    assert Offset.from_option("") == BEGINNING


def test_the_address_is_that_of_the_configured_ledger(tmp_path: Path) -> None:
    config = Config.model_validate({"state_dir": str(tmp_path)})
    assert ledger_address(config) == f"sqlite:///{tmp_path}/ledger.db"
    url = "postgresql://user@host/name"
    config = Config.model_validate({"state_dir": str(tmp_path), "ledger": {"url": url}})
    assert ledger_address(config) == url
