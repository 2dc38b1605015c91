"""Topics that stand in the way of the mirror: told, never written past, and gone on when mended."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from pathlib import Path

import pytest

from tests.contract.events import HOUR, ManualClock, draft
from tests.contract.mirrored import (
    all_places,
    assert_mirrored,
    fill,
    ledger_and_world,
    told_of,
)
from tests.contract.stores import LedgerHome, append
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld
from tidemark.clock import SystemClock
from tidemark.ingress.drafts import Draft
from tidemark.ledger.port import CopyState
from tidemark.mirror import following, position, topics
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.messages import CommitRecord
from tidemark.mirror.places import UNKNOWN
from tidemark.mirror.position import last_commits, reading


def said_by(told: CopyState) -> str:
    return "" if told.error is None else told.error.message


def commits_in(world: MirrorWorld) -> list[CommitRecord]:
    with reading(world.config) as consumer:
        return last_commits(consumer, world.commits_topic, 1)


async def refused(world: MirrorWorld) -> str:
    with pytest.raises(MirrorRefused) as raised:
        await world.mirror()
    assert raised.value.hint
    return raised.value.message


async def test_topics_that_lose_messages_are_refused_and_named(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [20])
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "retention.ms", "60000")
    assert f"{usage} does not keep its messages: it has retention.ms=60000" in await refused(world)
    world.configure(mirror__allow_short_retention=True)
    await world.mirror()
    world.configure()
    await asyncio.to_thread(world.set_option, usage, "retention.ms", "-1")
    await asyncio.to_thread(world.set_option, usage, "cleanup.policy", "compact")
    assert "cleanup.policy=compact" in await refused(world)
    await asyncio.to_thread(world.set_option, usage, "cleanup.policy", "delete")
    await world.mirror()
    await asyncio.to_thread(world.remove_topics, usage)
    assert f"the topic {usage} held" in await refused(world)
    # All of them gone, it begins anew.
    await asyncio.to_thread(world.remove_topics, *world.topics())
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_topics_of_another_history_are_refused_and_left_alone(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    other = LedgerHome(f"sqlite:///{tmp_path / 'other.db'}")
    another = await other.open()
    try:
        await fill(another, "events", [3])
        world.configure(ledger__url=other.url)
        assert f"is of the ledger {ledger.ledger_id}" in await refused(world)
        # The same ledger, as it was before.
        await other.sql("UPDATE ledger SET ledger_id = '" + ledger.ledger_id + "'")
        assert "the topics hold 3 events" in await refused(world)
    finally:
        await other.close()
    world.configure()
    await asyncio.to_thread(world.remove_topics, world.commits_topic)
    assert "is in Kafka, and no commit in" in await refused(world)


async def test_an_event_too_large_for_its_topic_is_named_and_nothing_is_skipped(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [2])
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "2000")
    # Packed, it is no smaller.
    content = random.Random(1).randbytes(4000).hex()
    await append(ledger, draft("large", data=f'"{content}"'), draft("small"))
    with pytest.raises(MirrorUnavailable, match=rf"the event 3 is too large for the topic {usage}"):
        await world.mirror()
    assert len(await asyncio.to_thread(world.read)) == 1
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "1000000")
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_a_topic_may_take_less_at_once_than_the_client_would_send(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Brokers hold max.message.bytes against all messages that they are sent together."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.make_topic, usage, 1)
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", str(128 * 1024))
    source = random.Random(1)

    def large(key: str, size: int) -> Draft:
        # Packed, it is no smaller.
        content = base64.b64encode(source.randbytes(size)).decode()
        return draft(key, data=f'"{content}"')

    await append(ledger, *(large(f"{n}", source.randrange(100, 40_000)) for n in range(100)))
    await world.mirror()
    await assert_mirrored(world, ledger)
    await append(ledger, draft("small"), large("large", 140_000), draft("small as well"))
    said = rf"the event 102 is too large for the topic {usage}"
    with pytest.raises(MirrorUnavailable, match=said):
        await world.mirror()


@pytest.mark.parametrize("keeps_running", [True, False])
async def test_a_topic_that_takes_less_at_once_may_be_one_that_is_met_late(
    keeps_running: bool, sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """The configuration does not name it any more, and the ledger has its events."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    old = f"{world.prefix}old"
    await asyncio.to_thread(world.make_topic, old, 1)
    await asyncio.to_thread(world.set_option, old, "max.message.bytes", str(128 * 1024))
    # Packed, they are no smaller.
    contents = [base64.b64encode(random.Random(n).randbytes(20_000)).decode() for n in range(30)]
    events = (draft(f"{n}", stream="old", data=f'"{text}"') for n, text in enumerate(contents))
    await append(ledger, *events)
    if keeps_running:
        with world.mirroring() as failures:
            await told_of(ledger, lambda told: told.last_sequence == 30)
        assert not failures
    else:
        await world.mirror()
    await assert_mirrored(world, ledger)


async def test_an_event_too_large_for_the_client_is_named_and_nothing_is_skipped(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """It came when larger ones were let in."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("small"), draft("large", data=f'"{"x" * 2_000_000}"'))
    with pytest.raises(MirrorUnavailable, match=r"the event 2 is too large for .* 2,000,\d+ bytes"):
        await world.mirror()
    assert await asyncio.to_thread(world.read) == []
    world.configure(ingest__max_event_bytes=3_000_000)
    for topic in world.topics():
        await asyncio.to_thread(world.set_option, topic, "max.message.bytes", "4000000")
    await world.mirror()
    await assert_mirrored(world, ledger)


@pytest.mark.parametrize("events", [1, 3])
async def test_times_ahead_of_the_brokers_are_taken_by_topics_that_the_mirror_makes(
    events: int, sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """The clock was once ahead by a day, and the ledger goes on from there."""
    ledger = await sqlite_home.open(ManualClock(SystemClock().wall_us() + 24 * HOUR))
    world = MirrorWorld(tmp_path, sqlite_home.url, shared_broker())
    await append(ledger, draft("first"))
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "message.timestamp.after.max.ms", "3600000")
    # Brokers say another thing of several.
    await append(ledger, *(draft(f"{n}", causality_key="run") for n in range(events)))
    said = rf"{usage} did not take the event 2: .* its time is too far from that of the brokers"
    with pytest.raises(MirrorUnavailable, match=said):
        await world.mirror()
    await asyncio.to_thread(world.set_option, usage, "message.timestamp.after.max.ms", "1" * 18)
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_brokers_that_do_not_know_of_a_bound_for_times_are_not_asked_for_it(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_ANY_TIME", {"message.timestamp.of.another.broker": "1"})
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_topics_that_give_messages_other_times_are_refused_and_named(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Readers find commits by their times."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [20])
    await world.mirror()
    option = "message.timestamp.type"
    await asyncio.to_thread(world.set_option, world.commits_topic, option, "LogAppendTime")
    world.configure(mirror__allow_short_retention=True)
    assert f"times of its own: it has {option}=LogAppendTime" in await refused(world)
    await asyncio.to_thread(world.set_option, world.commits_topic, option, "CreateTime")
    await world.mirror()


async def test_two_ledgers_that_begin_with_the_same_topics_do_not_mix(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """The first has looked at them when they were empty."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    other = LedgerHome(f"sqlite:///{tmp_path / 'other.db'}")
    another = await other.open()
    try:
        with world.mirroring() as failures:
            await told_of(ledger, lambda told: told.error is None)
            (tmp_path / "beside").mkdir()
            beside = MirrorWorld(tmp_path / "beside", other.url, world.broker)
            beside.configure(mirror__topic_prefix=world.prefix)
            await append(another, draft("a trade", stream="trades"))
            await beside.mirror()
            await append(ledger, draft("usage"))
            told = await told_of(ledger, lambda told: "is of the ledger" in said_by(told))
            assert told.last_sequence == 0
        assert not failures
        beside.prefix = world.prefix
        await assert_mirrored(beside, another)
    finally:
        await other.close()


@pytest.mark.parametrize("check_every_us", [0, following.CHECK_EVERY_US])
@pytest.mark.parametrize(
    ("topic", "why"), [("tidemark.commits", "tells of it"), ("usage", "usage held")]
)
async def test_a_topic_that_is_removed_while_it_runs_is_missed(
    topic: str,
    why: str,
    check_every_us: int,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it finds that only when there is something to send."""
    monkeypatch.setattr(following, "CHECK_EVERY_US", check_every_us)
    monkeypatch.setattr(position, "ANSWER_WITHIN_S", 2.0)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 3 and told.error is None)
        await asyncio.to_thread(world.remove_topics, world.prefix + topic)
        if check_every_us:
            await fill(ledger, "second", [2])
        else:
            await told_of(ledger, lambda told: told.error is not None)
        await fill(ledger, "third", [2])
        told = await told_of(ledger, lambda told: why in said_by(told))
    assert not failures
    assert told.last_sequence == 3
    left = [] if topic == "tidemark.commits" else [3]
    assert [each.last_sequence for each in await asyncio.to_thread(commits_in, world)] == left


async def test_topics_that_have_forgotten_all_commits_are_not_begun_anew(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    await world.mirror()
    world.configure(mirror__allow_short_retention=True)
    for topic in world.topics():
        await asyncio.to_thread(world.remove_messages, topic)
    assert "nobody knows where to go on" in await refused(world)


async def test_where_events_were_that_are_forgotten_is_not_known(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Whoever died had not written it down."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{number}") for number in range(9)))
    await world.mirror()
    await asyncio.to_thread(world.remove_messages, f"{world.prefix}usage")
    await ledger.forget_places(0)
    world.configure(mirror__allow_short_retention=True)
    for _ in range(2):
        await world.mirror()
        assert {*await all_places(ledger)} == {UNKNOWN}
    await append(ledger, draft("later"))
    await world.mirror()
    assert (await all_places(ledger))[-1].offset > 0


async def test_what_stands_in_the_way_is_told_and_mended_while_it_runs(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [5])
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "retention.ms", "60000")
    with world.mirroring() as failures:
        told = await told_of(ledger, lambda told: told.error is not None)
        assert told.error is not None
        assert (told.error.code, told.last_sequence) == ("mirror_refused", 5)
        await asyncio.to_thread(world.set_option, usage, "retention.ms", "-1")
        await fill(ledger, "more", [2])
        await told_of(ledger, lambda told: told.error is None and told.last_sequence == 7)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_a_topic_that_somebody_else_has_begun_is_refused_also_for_a_stream_of_old(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    # The configuration does not name it any more, and the ledger has its events.
    await asyncio.to_thread(world.write, "old", b"{}")
    await asyncio.to_thread(world.set_option, f"{world.prefix}old", "retention.ms", "-1")
    await append(ledger, draft("of-old", stream="old"))
    assert f"the topic {world.prefix}old has messages" in await refused(world)
    await asyncio.to_thread(world.remove_topics, f"{world.prefix}old")
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_a_topic_is_looked_at_before_its_first_event_however_late_that_comes(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("usage"))
    trades = f"{world.prefix}trades"
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 1)
        await asyncio.to_thread(world.set_option, trades, "retention.ms", "60000")
        await append(ledger, draft("a trade", stream="trades"))
        told = await told_of(ledger, lambda told: told.error is not None)
        assert f"{trades} does not keep its messages" in said_by(told)
        assert told.last_sequence == 1
        await asyncio.to_thread(world.set_option, trades, "retention.ms", "-1")
        await told_of(ledger, lambda told: told.last_sequence == 2)
    assert not failures
    await assert_mirrored(world, ledger)


async def test_topics_are_looked_at_while_events_come_in(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECK_EVERY_US", 0)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    said: list[CopyState] = []

    async def steadily() -> None:
        for number in itertools.count():
            await append(ledger, draft(f"{number}"))
            if "mirror" in (copies := await ledger.copies()):
                said.append(copies["mirror"])
            await asyncio.sleep(0.01)

    with world.mirroring():
        coming = asyncio.create_task(steadily())
        await told_of(ledger, lambda told: told.last_sequence > 50)
        # What was just committed is not taken for lost.
        assert [told.error for told in said if told.error is not None] == []
        usage = f"{world.prefix}usage"
        await asyncio.to_thread(world.set_option, usage, "retention.ms", "60000")
        told = await told_of(ledger, lambda told: told.error is not None)
        coming.cancel()
    assert told.error is not None
    assert told.error.code == "mirror_refused"
