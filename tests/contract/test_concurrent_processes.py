"""Several processes append to one ledger at once, and a reader sees 1, 2, 3, … and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg
import msgspec
import pytest

from tests.contract.appender import SENDERS, Plan
from tests.contract.events import drafts
from tests.contract.stores import LedgerHome, all_commits, all_events, append
from tests.contract.watcher import Sighting, postgres_poll, watch
from tests.contract.workers import Worker
from tidemark.ledger.sequencer import GENESIS_CHAIN, extend_chain

PROCESSES = {"sqlite": 3, "postgres": 8}
PLAN = Plan(keys=2_000, batches=8, batch_events=60)


async def test_overlapping_batches_from_many_processes_are_one_gapless_order(
    home: LedgerHome,
) -> None:
    ledger = await home.open()
    watcher = await Worker.start("tests.contract.watcher", home.url)
    plan = msgspec.json.encode(PLAN).decode()
    appenders = await asyncio.gather(
        *(
            Worker.start("tests.contract.appender", home.url, str(seed), plan)
            for seed in range(PROCESSES[home.kind])
        )
    )
    said = await asyncio.gather(*(appender.finish() for appender in appenders))
    seen = msgspec.convert(await watcher.finish(), Sighting)
    results = [tuple(result) for of_process in said for result in of_process]

    assert len(results) == len(appenders) * SENDERS * PLAN.batches * PLAN.batch_events
    assert {status for status, _, _ in results} == {"accepted", "duplicate"}
    keys = {key for _, key, _ in results}
    accepted = Counter(key for status, key, _ in results if status == "accepted")
    assert accepted == Counter(keys), "each key is accepted exactly once"
    numbers = {key: {number for _, other, number in results if other == key} for key in keys}
    assert all(len(of_key) == 1 for of_key in numbers.values())

    events = await all_events(ledger)
    assert [event.ingress_sequence for event in events] == list(range(1, len(keys) + 1))
    assert {event.idempotency_key: {event.ingress_sequence} for event in events} == numbers

    assert seen.faults == []
    assert seen.last == len(keys)
    assert seen.steps > 1, "the reader looked only when all was over"

    chain = GENESIS_CHAIN
    for commit in await all_commits(ledger):
        of_commit = events[commit.first_sequence - 1 : commit.last_sequence]
        assert {event.received_at for event in of_commit} == {commit.received_at}
        chain = extend_chain(chain, (event.content_hash for event in of_commit))
        assert commit.chain == chain
    assert (await ledger.head()).last_sequence == len(keys)


async def test_a_database_that_is_stricter_by_default_changes_nothing(postgres_url: str) -> None:
    """Under `serializable` whoever waited for the sequencer's lock would fail."""
    home = LedgerHome(postgres_url)
    name = postgres_url.rpartition("/")[2]
    await home.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    one, other = await home.open(), await home.open()
    outcomes = await asyncio.gather(
        *(
            append(store, *drafts(*(f"{number}-{i}" for i in range(3))))
            for number in range(10)
            for store in (one, other)
        )
    )
    numbers = {outcome.ingress_sequence for of_request in outcomes for outcome in of_request}
    assert numbers == set(range(1, 31))
    await home.close()


@pytest.mark.parametrize(
    ("numbered_by", "fault"),
    [
        # Numbers that a database sequence gives become visible in the order of the commits.
        ("CREATE SEQUENCE numbers", "2 after 0"),
        # And one that every session takes 128 of at a time has gaps besides.
        ("CREATE SEQUENCE numbers CACHE 128", "129 after 0"),
    ],
)
async def test_the_reader_would_see_numbers_that_are_taken_before_the_commit(
    postgres_url: str, numbered_by: str, fault: str
) -> None:
    """The planted bug: what most event tables do."""
    sessions = [await asyncpg.connect(postgres_url) for _ in range(3)]
    slow, quick, reader = sessions
    await slow.execute(numbered_by)
    await slow.execute("CREATE TABLE numbered (ingress_sequence bigint DEFAULT nextval('numbers'))")
    await slow.execute("BEGIN; INSERT INTO numbered DEFAULT VALUES")
    await quick.execute("INSERT INTO numbered DEFAULT VALUES")
    polls = iter([False, False, True])
    watching = asyncio.create_task(watch(postgres_poll(reader, "numbered"), lambda: next(polls)))
    await asyncio.sleep(0)
    sighting = await watching
    await slow.execute("COMMIT")
    assert sighting.faults == [fault]
    for session in sessions:
        await session.close()
