"""Every event of a ledger in Kafka, once and in order, whatever happens to the broker.

A real broker, and the consumer that the documentation gives to everyone.
"""

from __future__ import annotations

import asyncio
import threading
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.events import SECOND, draft
from tests.contract.mirrored import (
    STREAMS,
    all_places,
    assert_mirrored,
    compared,
    fill,
    ledger_and_world,
    told_of,
)
from tests.contract.stores import LedgerHome, all_events, append
from tests.services.kafka import KafkaBroker
from tests.services.mirroring import MirrorWorld, wait_until
from tidemark.app import landing
from tidemark.app.landing import Landing, run_landing
from tidemark.app.mirror import MirrorRunning
from tidemark.mirror import ahead, following, position, sending, telling, topics
from tidemark.mirror.errors import MirrorFenced, MirrorUnavailable
from tidemark.mirror.messages import Messages
from tidemark.mirror.places import place_in
from tidemark.pipeline.landing.errors import LandingUnavailable

FORGETS_PRODUCERS: Final = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
FORGOTTEN_AFTER_S: Final = 4.0


async def test_all_events_are_there_in_order_and_where_the_ledger_says(
    home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(home, tmp_path)
    await fill(ledger, "first", [3, 0, 1, 40, 0])
    mirrored = await world.mirror()
    assert mirrored is not None
    assert mirrored.last_sequence == 44
    await assert_mirrored(world, ledger)
    await fill(ledger, "second", [5, 0, 2])
    for _ in range(2):
        # The second time there is nothing to do.
        await world.mirror()
        await assert_mirrored(world, ledger)
    told = (await ledger.copies())["mirror"]
    head = await ledger.head()
    assert (told.last_sequence, told.received_at) == (head.last_sequence, head.received_at)
    assert told.error is None
    found = {}
    for commit, events in await asyncio.to_thread(world.read):
        for event in events:
            found[int(event["ingressSequence"])] = (commit, event)
    for sequence, (commit, event) in found.items():
        placed = await ledger.places_of(sequence)
        assert placed is not None
        place = place_in(placed, sequence)
        runs = commit["offsets"][world.prefix + event["stream"]][str(place.partition)]
        assert any(int(first) <= place.offset <= int(last) for first, last in runs)
    places = [place_in(await ledger.places_of(n), n) for n in found]  # type: ignore[arg-type]
    streams = [event["stream"] for _, event in found.values()]
    assert len({*zip(streams, places, strict=True)}) == len(found)
    wanted = {world.prefix + name for name in (*STREAMS, "quiet", "tidemark.commits")}
    assert {*world.topics()} == wanted


async def test_those_who_watch_are_told_how_far_it_is_and_how_far_the_ledger_is(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ahead, following):
        monkeypatch.setattr(module, "MOST_EVENTS", 5)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [4, 3, 5])
    told: list[tuple[int, int]] = []
    await world.mirror(lambda done, total: told.append((done, total)))
    assert told == [(4, 12), (7, 12), (12, 12)]


async def test_runs_keep_to_a_partition_and_others_are_spread(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"r{n}", causality_key=f"run-{n % 4}") for n in range(40)))
    await append(ledger, *(draft(f"s{n}") for n in range(40)))
    await world.mirror()
    partitions: dict[str | None, set[int]] = {}
    for row in await all_events(ledger):
        placed = await ledger.places_of(row.ingress_sequence)
        assert placed is not None
        place = place_in(placed, row.ingress_sequence)
        partitions.setdefault(row.causality_key, set()).add(place.partition)
    assert partitions.pop(None) == {0, 1, 2}
    assert all(len(found) == 1 for found in partitions.values())


@pytest.mark.parametrize("at_once", [3, 2_000])
async def test_places_that_were_not_written_down_are_read_from_the_topics(
    at_once: int, home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position, "COMMITS_AT_ONCE", at_once)
    ledger, world = await ledger_and_world(home, tmp_path)
    await fill(ledger, "some", [3, 100, 0, 7])
    await world.mirror()
    await fill(ledger, "more", [0, 2, *[1] * 70, 0])
    await world.mirror()
    before = await all_places(ledger)
    assert len(before) == 182
    for known in (0, 3, 110, 180):
        await ledger.forget_places(known)
        await world.mirror()
        assert await all_places(ledger) == before


async def test_places_are_those_in_the_topics_that_the_mirror_has_now(
    home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(home, tmp_path)
    # Many transactions, each of which takes an offset of its own where it ends.
    for number in range(4):
        await fill(ledger, f"one by one {number}", [3, 2])
        await world.mirror()
    before = await all_places(ledger)
    world.configure(mirror__topic_prefix=f"{world.prefix}other.", mirror__partitions=5)
    await world.mirror()
    beside = await all_places(ledger)
    assert beside != before
    assert max(place.partition for place in beside) > 2
    world.configure()
    await world.mirror()
    assert await all_places(ledger) == before
    # Also where those of the others go further.
    world.configure(mirror__topic_prefix=f"{world.prefix}other.")
    await fill(ledger, "there only", [3])
    await world.mirror()
    world.configure()
    await world.mirror()
    assert (await all_places(ledger))[: len(before)] == before
    await asyncio.to_thread(world.remove_topics, *world.topics())
    await world.mirror()
    await assert_mirrored(world, ledger)
    assert (await all_places(ledger))[: len(before)] != before


async def test_places_are_right_also_when_somebody_else_writes_between(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then messages of a partition do not follow one another."""
    send = sending.Sender._produce
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)

    def disturbed(
        self: Any, topics: Any, partitions: Any, messages: Messages, callbacks: Any, named: Any
    ) -> None:
        before = messages.keys.index(b"7") + 1 if b"7" in messages.keys else 0
        rest = [iter(column) for column in (topics, partitions, *messages, callbacks)]
        for count in (before, len(topics) - before):
            [some, of, *columns, arrived] = ([*islice(column, count)] for column in rest)
            send(self, some, of, Messages(*columns), arrived, named)
            if before:
                before = 0
                self._producer.flush(10)
                for partition in range(3):
                    world.write("usage", b"{}", partition=partition)

    await append(ledger, draft("first"))
    await world.mirror()
    monkeypatch.setattr(sending.Sender, "_produce", disturbed)
    await append(ledger, *(draft(f"{n}") for n in range(19)))
    await world.mirror()
    places = [place_in(await ledger.places_of(n), n) for n in range(1, 21)]  # type: ignore[arg-type]
    assert len({*places}) == 20
    # The consumer of the page would not find the right messages otherwise.
    with pytest.raises(SystemExit, match="not written by the mirror"):
        await asyncio.to_thread(world.read)
    monkeypatch.undo()
    found = await compared(world, ledger)
    assert found.difference is not None
    assert found.difference.message == "the mirror has not written this message"


@pytest.mark.parametrize("events", [0, 2, 20_000])
async def test_a_second_mirror_takes_over_and_the_first_is_fenced(
    events: int, sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Also one that is told so while it is still busy with sending, or has only a tick to send."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "before", [3])
    with world.mirroring() as failures:
        # Its topics are there before it has taken over, and whoever does so last is the second.
        await told_of(ledger, lambda told: told.last_sequence == 3)
        with pytest.raises(MirrorRunning):
            await world.mirror()
        # One on another machine has another state directory.
        world.configure(state_dir=tmp_path / "elsewhere")
        await world.mirror()
        await fill(ledger, "after", [events])
        await asyncio.to_thread(wait_until, lambda: failures)
        [failure] = failures
        assert isinstance(failure, MirrorFenced)
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_a_mirror_is_fenced_also_when_brokers_had_forgotten_it(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """As they do after a week without a message: then its record of a commit just does not arrive,
    and only who ends the transaction is told why."""
    with KafkaBroker(settings=FORGETS_PRODUCERS) as broker:
        ledger = await sqlite_home.open()
        world = MirrorWorld(tmp_path, sqlite_home.url, broker)
        await fill(ledger, "before", [3])
        with world.mirroring() as failures:
            await told_of(ledger, lambda told: told.last_sequence == 3)
            await asyncio.sleep(FORGOTTEN_AFTER_S)
            world.configure(state_dir=tmp_path / "elsewhere")
            await world.mirror()
            await fill(ledger, "after", [0])
            await asyncio.to_thread(wait_until, lambda: failures)
            [failure] = failures
            assert isinstance(failure, MirrorFenced)
        await world.mirror()
        await assert_mirrored(world, ledger)


@pytest.mark.parametrize("trouble", ["kill", "stop"])
async def test_a_broker_that_comes_back_is_gone_on_with(
    trouble: str, sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "before", [30, 2])
    with world.mirroring() as failures:
        await asyncio.to_thread(wait_until, lambda: f"{world.prefix}usage" in world.topics())
        getattr(world.broker, trouble)()
        await fill(ledger, "meanwhile", [5, 1, 0, 9])
        told = await told_of(ledger, lambda told: told.error is not None)
        assert told.error is not None
        assert told.error.code == "mirror_unavailable"
        await asyncio.to_thread(world.broker.start)
        await fill(ledger, "after", [4])
        last = (await ledger.head()).last_sequence

        await told_of(ledger, lambda told: told.error is None and told.last_sequence == last)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_what_takes_long_is_told_while_a_broker_hangs_and_is_gone_on_with(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its connections, and answers nobody: nothing fails for half a minute."""
    monkeypatch.setattr(telling, "SLOW_AFTER_US", SECOND)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "before", [30, 2])
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 32)
        world.broker.pause()
        try:
            await fill(ledger, "meanwhile", [5, 1])
            told = await told_of(ledger, lambda told: told.error is not None)
            assert told.error is not None
            assert told.error.code == "mirror_unavailable"
            assert "sending what comes up to " in told.error.message
            assert told.last_sequence == 32
            # It goes on telling, so that nobody takes it for dead.
            later = await told_of(ledger, lambda now: now.told_at > told.told_at)
            assert later.last_sequence == 32
        finally:
            world.broker.resume()
        await told_of(ledger, lambda told: told.error is None and told.last_sequence == 38)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_a_broker_that_is_away_is_an_error_for_who_wants_to_be_done(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It need not be away for long here.
    monkeypatch.setattr(topics, "ANSWER_WITHIN_S", 0.5)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [1])
    world.configure(mirror__bootstrap_servers="127.0.0.1:1")
    with pytest.raises(MirrorUnavailable) as raised:
        await world.mirror()
    assert raised.value.field == "mirror.bootstrap_servers"


async def test_landing_that_is_to_end_waits_for_a_mirror_that_is_behind(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    world.configure(landing__parquet__enabled=True)
    await fill(ledger, "first", [3])
    await world.mirror()
    await fill(ledger, "second", [4])

    def land() -> list[Landing] | None:
        stop = threading.Event()
        return run_landing(
            world.config, until_caught_up=True, on_progress=lambda *_: None, stop=stop
        )

    with monkeypatch.context() as patched:
        patched.setattr(landing, "WAIT_FOR_MIRROR_US", 0)
        with pytest.raises(LandingUnavailable, match=r"are landed up to 3, .* the ledger has 7"):
            await asyncio.to_thread(land)
    landed = asyncio.create_task(asyncio.to_thread(land))
    await asyncio.sleep(0.5)
    assert not landed.done()
    await world.mirror()
    [found] = await landed or []
    assert found.last_sequence == 7
