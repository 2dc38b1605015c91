"""What is in Kafka held against the ledger, by `verify --deep` and by the consumer of the page."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.contract.events import draft
from tests.contract.mirrored import all_places, compared, fill, ledger_and_world
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append
from tests.services.mirroring import MirrorWorld, alter_message, wait_until
from tidemark.mirror import ahead, position
from tidemark.mirror.ahead import CommitReader
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.messages import commit_record, encode_commit
from tidemark.mirror.position import messages, reading
from tidemark.pipeline.kafka import comparing
from tidemark.pipeline.kafka.planning import Partition, Range
from tidemark.pipeline.landing.comparing import Compared

SIZES = [3, 0, 9, 1, 20, 0]
EVENT_COUNT = 33


class At(NamedTuple):
    """Where an event was mirrored to."""

    sequence: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there now does not come."""
    monkeypatch.setattr(position, "_TOLD_WITHIN_S", 0.5)


async def mirrored(world: MirrorWorld, ledger: Ledger) -> list[At]:
    """All events of the stream usage, in order."""
    await world.mirror()
    return [
        At(event.ingress_sequence, f"{world.prefix}usage", *place)
        for event, place in zip(await all_events(ledger), await all_places(ledger), strict=True)
        if event.stream == "usage"
    ]


def remove_before(world: MirrorWorld, at: At) -> None:
    """As retention does."""
    admin = world.admin()
    gone = [TopicPartition(at.topic, at.partition, at.offset)]
    for removed in admin.delete_records(gone).values():
        removed.result()


def add_partitions(world: MirrorWorld, topic: str, count: int) -> None:
    admin = world.admin()
    for added in admin.create_partitions([NewPartitions(topic, count)]).values():
        added.result()


async def difference(world: MirrorWorld, ledger: Ledger) -> tuple[str | None, str, str]:
    """Its sequence, its place and what it is."""
    found = await compared(world, ledger)
    assert found.difference is not None
    return found.difference.sequence, found.difference.block, found.difference.message


async def test_what_is_in_kafka_is_proven_from_the_ledger(
    home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 10)
    ledger, world = await ledger_and_world(home, tmp_path)
    await fill(ledger, "events", SIZES)
    await world.mirror()
    assert await compared(world, ledger) == Compared("kafka", 6, EVENT_COUNT)
    # What is not mirrored yet is no difference.
    await fill(ledger, "more", [2])
    assert await compared(world, ledger) == Compared("kafka", 6, EVENT_COUNT)
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    for events in (EVENT_COUNT, 0):
        # Behind all that was mirrored, and before more of it.
        found = await compared(world, ledger)
        assert found.difference is not None
        assert found.difference.message == "the mirror has not written this message"
        assert found.difference.block.startswith(f"{world.prefix}usage[")
        assert found.events >= events
        await fill(ledger, f"after-{events}", [30])
        await world.mirror()


async def test_a_stranger_before_the_first_message_of_a_partition_is_named(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first", causality_key="run"))
    [first] = await mirrored(world, ledger)
    other = 0 if first.partition else 1
    await asyncio.to_thread(world.write, "usage", b"{}", partition=other)
    for number in range(2):
        _, place, message = await difference(world, ledger)
        assert place == f"{world.prefix}usage[{other}]@0"
        assert message == "the mirror has not written this message"
        # Some of these go to the same partition, behind it.
        await append(ledger, *(draft(f"{number}-{n}") for n in range(3)))
        await world.mirror()


async def test_messages_may_be_looked_at_for_as_long_as_it_takes(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}", causality_key="run") for n in range(3)))
    [first, *_, last] = await mirrored(world, ledger)
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 1.0)

    def read() -> int:
        found = 0
        with reading(world.config) as consumer:
            end = last.offset + 1
            for _ in messages(consumer, last.topic, last.partition, first.offset, end):
                time.sleep(1.2)
                found += 1
        return found

    assert await asyncio.to_thread(read) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value.replace(b'"tenantId":"acme"', b'"tenantId":"zeta"'), "differs"),
        (lambda value: value[:-1] + b',"more":1}', "differs"),
    ],
)
async def test_a_message_that_differs_is_named(
    change: Callable[[bytes], bytes],
    said: str,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alter_message(monkeypatch, 5, change)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(8)))
    altered = (await mirrored(world, ledger))[4]
    sequence, place, message = await difference(world, ledger)
    assert (sequence, place) == ("5", str(altered))
    assert said in message


async def test_nothing_is_missing_before_anything_is_mirrored(
    sqlite_home: LedgerHome, tmp_path: Path, impatient: None
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    assert await compared(world, ledger) == Compared("kafka", 0, 0)


async def test_all_that_was_mirrored_is_missing_with_all_topics(
    sqlite_home: LedgerHome, tmp_path: Path, impatient: None
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    await asyncio.to_thread(world.remove_topics, *world.topics())
    said = "it ends with event 0, and 3 were mirrored"
    assert await difference(world, ledger) == ("1", world.commits_topic, said)
    await world.mirror()
    assert await compared(world, ledger) == Compared("kafka", 1, 3)


@pytest.mark.parametrize("partitions", [3, 5])
async def test_messages_that_are_gone_from_the_beginning_are_named_or_counted(
    partitions: int, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the topic was given more partitions since."""
    monkeypatch.setattr(ahead, "MOST_EVENTS", 10)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "usage", SIZES)
    events = await mirrored(world, ledger)
    if partitions > 3:
        await asyncio.to_thread(add_partitions, world, events[0].topic, partitions)
    by_partition = [[at for at in events if at.partition == number] for number in range(3)]
    gone = 0
    # The one whose first event is the last, and so each time another is the first that is missing.
    for of_partition in sorted(by_partition, reverse=True):
        first, *_, last = of_partition
        await asyncio.to_thread(remove_before, world, last)
        said = f"a message is missing: all before offset {last.offset} are gone"
        assert await difference(world, ledger) == (str(first.sequence), str(first), said)
        gone += len(of_partition) - 1
        # Who lets the topics forget is told how much they have forgotten.
        world.configure(mirror__allow_short_retention=True)
        expected = Compared("kafka", 6, EVENT_COUNT, gone=gone)
        assert await compared(world, ledger) == expected
        world.configure()
    assert gone > 10
    await asyncio.to_thread(world.remove_messages, events[0].topic)
    assert (await difference(world, ledger))[:2] == (str(events[0].sequence), str(events[0]))
    world.configure(mirror__allow_short_retention=True)
    expected = Compared("kafka", 6, EVENT_COUNT, gone=len(events))
    assert await compared(world, ledger) == expected


async def test_what_is_left_of_topics_that_may_forget_is_compared(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_message(monkeypatch, 17, lambda value: value[:-1] + b',"more":1}')
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(20)))
    events = await mirrored(world, ledger)
    world.configure(mirror__allow_short_retention=True)
    for at in events[9:12]:
        await asyncio.to_thread(remove_before, world, at)
    assert await difference(world, ledger) == ("17", str(events[16]), "a message differs")


async def test_messages_that_are_removed_while_they_are_read_are_gone_too(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(20)))
    events = await mirrored(world, ledger)
    asked = itertools.count()

    def before_it_is_removed(topics: comparing._Topics, partition: Partition) -> Range:
        there = bounds(topics, partition)
        if next(asked) == 0:
            remove_before(world, events[9])
        return there

    bounds = comparing._Topics.bounds
    monkeypatch.setattr(comparing._Topics, "bounds", before_it_is_removed)
    world.configure(mirror__allow_short_retention=True)
    gone = sum(at < events[9] for at in events if at.partition == events[9].partition)
    assert await compared(world, ledger) == Compared("kafka", 1, 20, gone=gone)


async def test_messages_that_are_gone_in_the_middle_are_named_or_counted(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """A compacted topic keeps the last message of each run."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    of_run = {3, 4, 7, 9}
    await append(
        ledger, *(draft(f"{n}", causality_key="run" if n in of_run else None) for n in range(1, 13))
    )
    events = await mirrored(world, ledger)
    topic, number = events[2].topic, events[2].partition
    options = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}
    for name, value in options.items():
        await asyncio.to_thread(world.set_option, topic, name, value)
    # What is being written to is not compacted.
    await asyncio.to_thread(world.write, "usage", None, key=b"other", partition=number)

    def is_compacted() -> bool:
        with reading(world.config) as consumer:
            return next(messages(consumer, topic, number, events[2].offset, 1000)).offset() != (
                events[2].offset
            )

    await asyncio.to_thread(wait_until, is_compacted)
    expected = ("3", str(events[2]), "a message is missing")
    assert await difference(world, ledger) == expected
    world.configure(mirror__allow_short_retention=True)
    assert await compared(world, ledger) == Compared("kafka", 1, 12, gone=3)


@pytest.mark.parametrize("may_forget", [False, True])
async def test_messages_that_are_gone_with_their_topic_are_named(
    may_forget: bool, sqlite_home: LedgerHome, tmp_path: Path, impatient: None
) -> None:
    """No retention removes a topic."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", SIZES)
    first, *_ = await mirrored(world, ledger)
    # How many partitions it had, nobody knows.
    world.configure(mirror__allow_short_retention=may_forget, mirror__partitions=7)
    await asyncio.to_thread(world.remove_topics, first.topic)
    said = "a message is missing: its topic is gone"
    assert await difference(world, ledger) == (str(first.sequence), str(first), said)
    with pytest.raises(MirrorRefused):
        await world.mirror()
    said = "a message is missing: its topic was made anew"
    assert await difference(world, ledger) == (str(first.sequence), str(first), said)


async def test_commits_that_are_gone_are_told_or_counted(
    sqlite_home: LedgerHome, tmp_path: Path, impatient: None
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", SIZES)
    first, *_ = await mirrored(world, ledger)
    commits = world.commits_topic
    for removed, gone in [(2, 3), (5, EVENT_COUNT)]:
        await asyncio.to_thread(remove_before, world, At(gone + 1, commits, 0, removed))
        said = f"its records before offset {removed} are gone"
        assert await difference(world, ledger) == (None, commits, said)
        world.configure(mirror__allow_short_retention=True)
        expected = Compared("kafka", len(SIZES) - removed, EVENT_COUNT, gone=gone)
        assert await compared(world, ledger) == expected
        world.configure()
    # From none at all, the mirror does not go on either.
    world.configure(mirror__allow_short_retention=True)
    await asyncio.to_thread(world.remove_messages, commits)
    assert (await difference(world, ledger))[1] == commits
    await asyncio.to_thread(world.remove_topics, commits)
    said = f"no commit in {commits} tells of it"
    for _ in range(2):
        assert await difference(world, ledger) == (str(first.sequence), str(first), said)
        # It makes the topic anew.
        with pytest.raises(MirrorRefused):
            await world.mirror()


async def test_a_mirror_that_begins_meanwhile_is_no_difference(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    first_event = comparing._Topics.first_event

    def just_mirrored(topics: comparing._Topics) -> tuple[int, str] | None:
        asyncio.run(world.mirror())
        return first_event(topics)

    monkeypatch.setattr(comparing._Topics, "first_event", just_mirrored)
    assert await compared(world, ledger) == Compared("kafka", 0, 0)


async def test_what_nobody_sees_yet_is_not_taken_for_gone(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit may be read before its messages."""
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 2.0)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"))
    await world.mirror()
    await append(ledger, draft("second"))
    [before, commit] = await all_commits(ledger)
    chunk = (await CommitReader(ledger).after(before.received_at)).chunk({})
    target = f"{world.prefix}usage", 2
    record = commit_record(
        ledger.ledger_id, commit, {target: [(0, 0)]}, chunk.checksums[0], {target[0]: 2}
    )
    producer = Producer(
        {"bootstrap.servers": world.broker.address, "transactional.id": world.prefix}
    )

    def begin() -> None:
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(
            target[0], chunk.messages.values[0], partition=2, headers=chunk.messages.headers[0]
        )
        producer.flush(10)
        world.write("tidemark.commits", encode_commit(record), partition=0)

    await asyncio.to_thread(begin)
    world.configure(mirror__allow_short_retention=True)
    with pytest.raises(MirrorUnavailable, match="was not read to its end"):
        await compared(world, ledger)
    await asyncio.to_thread(producer.commit_transaction, 10)
    assert await compared(world, ledger) == Compared("kafka", 2, 2)


async def test_the_consumer_of_the_page_finds_what_is_wrong(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    with pytest.raises(SystemExit, match="not written by the mirror"):
        await asyncio.to_thread(world.read)
