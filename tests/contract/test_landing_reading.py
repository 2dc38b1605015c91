"""Events that are landed are read from their blocks, and are what the ledger has."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from pathlib import Path

import pytest

from tests.contract.events import ManualClock
from tests.contract.landings import BLOCK, SHAPE, ParquetLanding
from tests.contract.ledger_growth import append_commits
from tests.contract.source_records import expected_records, in_order, read_stream
from tests.contract.stores import Ledger, LedgerHome
from tests.generated.ledgers import random_ledger
from tidemark.pipeline.landing.blocks import Schedule
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.reading import LandedBlocks
from tidemark.pipeline.source import partitions, planning
from tidemark.pipeline.source.failures import RaisedInSpark
from tidemark.pipeline.source.postgres import PostgresLedgerDatabase
from tidemark.pipeline.source.sqlite import SqliteLedgerDatabase


@pytest.fixture
async def landing(
    home: LedgerHome, ledger: Ledger, clock: ManualClock, tmp_path: Path
) -> ParquetLanding:
    """Some whole blocks, one that is not, and events that are not landed at all."""
    commits = random_ledger(2, SHAPE)
    landing = ParquetLanding(tmp_path / "landed", ledger, home.url)
    await append_commits(ledger, clock, commits[: len(commits) * 2 // 3])
    await landing.catch_up()
    await append_commits(ledger, clock, commits[len(commits) * 2 // 3 :])
    return landing


def whole_blocks(landing: ParquetLanding, ledger: Ledger) -> LandedBlocks | None:
    directory = ParquetDirectory(landing.path, Schedule(BLOCK), ledger.ledger_id)
    return LandedBlocks.in_directory(directory)


async def read(home: LedgerHome, blocks: LandedBlocks, max_rows: int | None) -> list[dict]:
    def work() -> list[dict]:
        batches = read_stream(home.url, repeat(max_rows), partitions=3, blocks=blocks.as_option())
        return in_order(chain.from_iterable(records for _, records in batches))

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("max_rows", [1, 7, None])
async def test_the_records_are_the_same_and_the_ledger_is_not_asked_for_what_is_landed(
    landing: ParquetLanding,
    home: LedgerHome,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    max_rows: int | None,
) -> None:
    monkeypatch.setattr(planning, "MIN_ROWS_PER_PARTITION", 2)
    monkeypatch.setattr(partitions, "FIRST_CHUNK_ROWS", 2)
    monkeypatch.setattr(partitions, "MAX_CHUNK_ROWS", BLOCK + 3)
    blocks = whole_blocks(landing, ledger)
    assert blocks is not None
    assert blocks.upto >= 2 * BLOCK
    asked: list[int] = []
    for kind in (SqliteLedgerDatabase, PostgresLedgerDatabase):
        events = kind.events

        def told(self, after, upto, streams, events=events):  # type: ignore[no-untyped-def]
            asked.append(upto)
            return events(self, after, upto, streams)

        monkeypatch.setattr(kind, "events", told)
    assert await read(home, blocks, max_rows) == await expected_records(ledger)
    assert asked, "all was landed"
    assert min(asked) > blocks.upto


async def test_a_block_that_has_lost_events_is_noticed(
    landing: ParquetLanding, home: LedgerHome, ledger: Ledger
) -> None:
    blocks = whole_blocks(landing, ledger)
    assert blocks is not None
    landing.spoil(0, lambda events: events.slice(1))
    with pytest.raises(RaisedInSpark, match="is no whole block: it holds 6 events"):
        await read(home, blocks, None)


async def test_without_a_whole_block_there_is_nothing_to_read(
    home: LedgerHome, ledger: Ledger, tmp_path: Path
) -> None:
    landing = ParquetLanding(tmp_path / "landed", ledger, home.url)
    await landing.catch_up()
    assert whole_blocks(landing, ledger) is None
