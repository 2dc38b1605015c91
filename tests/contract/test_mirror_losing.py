"""What brokers have lost, or somebody has taken away, is never written over."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from confluent_kafka import Message

from tests.contract.events import draft
from tests.contract.mirrored import (
    STREAMS,
    assert_mirrored,
    fill,
    ledger_and_world,
    rewind,
    told_of,
)
from tests.contract.stores import LedgerHome, all_commits, append
from tests.services.mirroring import MirrorWorld, wait_until
from tidemark.app import mirror as app_mirror
from tidemark.errors import TidemarkError
from tidemark.ledger.port import CopyState
from tidemark.mirror import following, kafka, position
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.following import Mirror
from tidemark.mirror.messages import SEQUENCE_HEADER
from tidemark.mirror.position import ends, last_commits, messages, reading, sequence_of


def lasts(world: MirrorWorld) -> list[int]:
    """How far the commits go that are in Kafka."""
    with reading(world.config) as consumer:
        return [each.last_sequence for each in last_commits(consumer, world.commits_topic, 100)]


def said(told: CopyState) -> TidemarkError:
    return told.error or TidemarkError("", hint="", code="")


def all_in(world: MirrorWorld, topic: str) -> list[Message]:
    found: list[Message] = []
    with reading(world.config) as consumer:
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            found += messages(consumer, topic, number, *ends(consumer, topic, number))
    return found


async def test_a_topic_that_is_made_anew_under_a_mirror_is_not_gone_on_with(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Strangers that write to a topic push offsets up, and never down."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{number}", causality_key="run") for number in range(30)))
    usage = f"{world.prefix}usage"
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 30)
        [place] = {message.partition() for message in await asyncio.to_thread(all_in, world, usage)}
        await asyncio.to_thread(world.remove_topics, usage)
        await asyncio.to_thread(world.make_topic, usage, 3)
        await append(ledger, *(draft(f"more-{number}", causality_key="run") for number in range(2)))
        told = await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        # It may not reach the topic at first, and then finds it when it begins anew.
        gone = f"the message at offset 29 of partition {place} of the topic {usage} was the last"
        begun_anew = f"the topic {usage} held 30 messages, and was made anew since"
        assert re.match(f"{gone}|{begun_anew}", said(told).message)
    assert not failures
    assert await asyncio.to_thread(lasts, world) == [30]
    assert await asyncio.to_thread(all_in, world, usage) == []
    with pytest.raises(MirrorRefused, match="made anew"):
        await world.mirror()


async def test_a_topic_that_somebody_has_filled_again_is_noticed_while_nothing_is_sent(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{number}", causality_key="run") for number in range(30)))
    usage = f"{world.prefix}usage"
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 30)
        [place] = {message.partition() for message in await asyncio.to_thread(all_in, world, usage)}
        await asyncio.to_thread(world.remove_topics, usage)
        await asyncio.to_thread(world.make_topic, usage, 3)
        for _ in range(40):
            await asyncio.to_thread(world.write, "usage", b"{}", partition=0 if place else 1)
        monkeypatch.setattr(following, "CHECK_EVERY_US", 0)
        told = await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        assert "had come to offset 31, and goes on at 0" in said(told).message
    assert not failures
    with pytest.raises(MirrorRefused, match=r"of the last 30 events .*, 0 are in Kafka"):
        await world.mirror()


@pytest.mark.parametrize("is_idle", [True, False])
async def test_what_is_lost_further_back_is_never_forgotten_by_who_knew_it(
    is_idle: bool, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins anew looks only at what was told last. And what is given up takes offsets too:
    soon the partition ends behind what was lost."""
    monkeypatch.setattr(following, "MOST_COMMITS", 1)
    monkeypatch.setattr(following, "MOST_EVENTS", 1)
    monkeypatch.setattr(app_mirror, "LONGEST_PAUSE_S", 0.5)
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 2.0)
    begun: list[Mirror] = []
    begin = Mirror.begin

    def noted(self: Mirror) -> None:
        begun.append(self)
        begin(self)

    monkeypatch.setattr(Mirror, "begin", noted)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    usage = f"{world.prefix}usage"

    def lose_the_last(lost: int) -> None:
        there = all_in(world, usage)
        world.remove_topics(usage)
        world.make_topic(usage, 3)
        for message in there[:-lost]:
            options = {"headers": message.headers(), "partition": message.partition()}
            world.write("usage", message.value(), key=message.key(), **options)
        elsewhere = 0 if there[0].partition() else 1
        for _ in range(10):
            world.write("usage", b"{}", partition=elsewhere)

    async def append_run(name: str) -> None:
        await append(ledger, *(draft(f"{name}-{n}", causality_key="run") for n in range(3)))

    with world.mirroring() as failures:
        await append_run("first")
        await append(ledger, draft("a trade", stream="trades"))
        await told_of(ledger, lambda told: told.last_sequence == 4)
        await asyncio.to_thread(lose_the_last, 2)
        if is_idle:
            monkeypatch.setattr(following, "CHECK_EVERY_US", 0)
            await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        await append_run("second")
        before = len(begun)
        await asyncio.to_thread(wait_until, lambda: len(begun) >= before + 3)
        told = await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        gone = rf"the message at offset 2 of partition \d of the topic {usage} was the last"
        assert re.match(gone, said(told).message)
        assert await asyncio.to_thread(lasts, world) == [3, 4]
        # All of them gone, it begins anew by itself.
        await asyncio.to_thread(world.remove_topics, *world.topics())
        await told_of(ledger, lambda told: told.error is None and told.last_sequence == 7)
    assert not failures
    await assert_mirrored(world, ledger)


async def test_a_mirror_that_refuses_to_go_on_leaves_one_alone_that_has_taken_over(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries again, and would end the other each time."""
    monkeypatch.setattr(following, "MOST_COMMITS", 1)
    monkeypatch.setattr(following, "MOST_EVENTS", 1)
    monkeypatch.setattr(app_mirror, "LONGEST_PAUSE_S", 0.5)
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 2.0)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    usage = f"{world.prefix}usage"
    attempts: list[Path] = []
    begin = Mirror.begin

    def noted(self: Mirror) -> None:
        attempts.append(self._config.state_dir)
        begin(self)

    monkeypatch.setattr(Mirror, "begin", noted)
    first = world.config.state_dir

    def wait_for_more_attempts() -> None:
        before = attempts.count(first)
        wait_until(lambda: attempts.count(first) >= before + 3)

    def lose_all_of_usage() -> None:
        elsewhere = 0 if all_in(world, usage)[0].partition() else 1
        world.remove_topics(usage)
        world.make_topic(usage, 3)
        for _ in range(40):
            world.write("usage", b"{}", partition=elsewhere)

    with world.mirroring() as failures:
        await append(ledger, *(draft(f"{number}", causality_key="run") for number in range(30)))
        await append(ledger, draft("a trade", stream="trades"))
        await told_of(ledger, lambda told: told.last_sequence == 31)
        await asyncio.to_thread(lose_all_of_usage)
        await append(ledger, draft("more", causality_key="run"))
        await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        # One on another machine does not know what is lost.
        world.configure(state_dir=tmp_path / "elsewhere")
        with world.mirroring() as failures_elsewhere:
            await told_of(ledger, lambda told: told.last_sequence == 32)
            await asyncio.to_thread(wait_for_more_attempts)
            await append(ledger, draft("a second trade", stream="trades"))
            await told_of(ledger, lambda told: told.last_sequence == 33)
        assert not failures_elsewhere
    assert not failures


@pytest.mark.parametrize("also_lost", [(), ("usage",), ("trades",)])
async def test_commits_that_are_gone_from_the_end_do_not_have_their_events_mirrored_twice(
    also_lost: tuple[str, ...], home: LedgerHome, tmp_path: Path
) -> None:
    """Whatever is gone besides: one that is there and that no commit tells of is enough."""
    ledger, world = await ledger_and_world(home, tmp_path)
    for number in range(3):
        await fill(ledger, f"{number}", [12])
        await world.mirror()
    kept, *_ = await asyncio.to_thread(all_in, world, world.commits_topic)

    def lose_the_tail_of(stream: str, partitions: int, kept: list[Message]) -> None:
        topic = f"{world.prefix}{stream}"
        world.remove_topics(topic)
        world.make_topic(topic, partitions)
        for message in kept:
            world.write(
                stream,
                message.value(),
                key=message.key(),
                partition=message.partition(),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )

    def lose_the_tail() -> None:
        lose_the_tail_of("tidemark.commits", 1, [kept])
        for stream in also_lost:
            there = all_in(world, f"{world.prefix}{stream}")
            lose_the_tail_of(stream, 3, [m for m in there if (sequence_of(m) or 0) <= 12])

    def events() -> list[tuple[str | None, bytes | None]]:
        topics = (f"{world.prefix}{stream}" for stream in STREAMS)
        return [(m.topic(), m.value()) for topic in topics for m in all_in(world, topic)]

    await asyncio.to_thread(lose_the_tail)
    before = await asyncio.to_thread(events)
    for _ in range(2):
        with pytest.raises(MirrorRefused, match=r"is in Kafka, and no commit in .* tells of it"):
            await world.mirror()
    assert await asyncio.to_thread(events) == before
    await asyncio.to_thread(world.remove_topics, *world.topics())
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_what_a_stranger_calls_the_next_event_is_passed_over(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [4])
    await world.mirror()
    for sequence in (b"5", b"6", b"9" * 5_000):
        headers = [(SEQUENCE_HEADER, sequence)]
        await asyncio.to_thread(world.write, "usage", b"{}", headers=headers, timestamp=2**42)
    await fill(ledger, "second", [4])
    await world.mirror()
    assert await asyncio.to_thread(lasts, world) == [4, 8]


async def test_a_commit_that_somebody_has_written_again_is_not_taken_for_lost_events(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [4, 3])
    await world.mirror()
    *_, last = await asyncio.to_thread(all_in, world, world.commits_topic)
    for _ in range(2):
        await asyncio.to_thread(
            world.write,
            "tidemark.commits",
            last.value(),
            key=last.key(),
            timestamp=last.timestamp()[1],
        )
    await fill(ledger, "second", [4])
    await world.mirror()
    assert await asyncio.to_thread(lasts, world) == [4, 7, 7, 7, 11]


async def test_what_is_no_commit_among_the_commits_stops_the_mirror(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """As it does those who read them."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [4])
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 4)
        await asyncio.to_thread(world.write, "tidemark.commits", b"{}")
        await fill(ledger, "second", [2])
        told = await told_of(ledger, lambda told: said(told).code == "mirror_refused")
        assert (
            f"the message at offset 2 of {world.commits_topic} is no commit" in said(told).message
        )
        assert told.last_sequence == 4
    assert not failures
    with pytest.raises(MirrorRefused, match="is no commit"):
        await world.mirror()


async def test_a_mirror_of_an_old_backup_does_not_end_the_one_at_work(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """It has the same configuration, and is started elsewhere."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    [first] = await all_commits(ledger)
    await fill(ledger, "second", [2])
    backup = LedgerHome(f"sqlite:///{tmp_path / 'backup.db'}")
    await sqlite_home.sql(f"VACUUM INTO '{backup.place}'")
    await rewind(backup, first)
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 5)
        world.configure(ledger__url=backup.url, state_dir=tmp_path / "elsewhere")
        with pytest.raises(MirrorRefused, match="the topics hold 5 events"):
            await world.mirror()
        world.configure()
        await fill(ledger, "third", [4])
        await told_of(ledger, lambda told: told.last_sequence == 9)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_nothing_is_committed_of_which_the_client_does_not_say_where_it_is(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that have that effect are refused; a new client may have more of them."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    await world.mirror()
    with monkeypatch.context() as patched:
        patched.setitem(kafka._QUICK, "delivery.report.only.error", True)
        for sizes, what in (([4], "the event 4"), ([0], "the event 4")):
            await fill(ledger, "second", sizes)
            with pytest.raises(MirrorUnavailable, match=f"has not said where {what} is"):
                await world.mirror()
    await world.mirror()
    await assert_mirrored(world, ledger)
