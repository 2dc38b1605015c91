"""Every event of a ledger in Kafka, once and in order, whatever happens to broker and topics.

A real broker, and the consumer that the documentation gives to everyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import random
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.contract.events import START, draft
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld, as_mirrored, as_read, wait_until
from tidemark.app.mirror import MirrorRunning
from tidemark.errors import LedgerUnavailable
from tidemark.ingress.drafts import Draft
from tidemark.ledger import reading as ledger_reading
from tidemark.ledger.port import CommitRow, CopyState
from tidemark.mirror import following, sending, topics
from tidemark.mirror.errors import MirrorFenced, MirrorRefused, MirrorUnavailable
from tidemark.mirror.following import CommitReader
from tidemark.mirror.places import Place, place_in
from tidemark.mirror.position import last_commits, reading
from tidemark.mirror.sending import Chunk
from tidemark.pipeline.kafka.comparing import compare_topics
from tidemark.pipeline.landing.comparing import Compared

STREAMS = ("usage", "trades")


def world_of(home: LedgerHome, directory: Path) -> MirrorWorld:
    return MirrorWorld(directory, home.url, shared_broker())


def some(source: random.Random, name: str, count: int) -> list[Draft]:
    """Events of two streams, some of runs, with times in no order."""
    return [
        draft(
            f"{name}-{n}",
            stream=(stream := source.choice(STREAMS)),
            metric="calls" if stream == "usage" else None,
            quantity=str(source.randrange(100)) if stream == "usage" else None,
            data='{"a":"\\u00e4 \\"x\\"","b":1.10}' if source.random() < 0.5 else None,
            causality_key=source.choice([None, "run-1", "Lauf ä"]),
            occurred_at=START + source.randrange(10**9),
        )
        for n in range(count)
    ]


async def fill(ledger: Ledger, name: str, sizes: list[int]) -> None:
    source = random.Random(name)
    for number, size in enumerate(sizes):
        if size:
            await append(ledger, *some(source, f"{name}-{number}", size))
        else:
            await ledger.tick(0)


async def assert_mirrored(world: MirrorWorld, ledger: Ledger) -> None:
    expected = as_mirrored(await all_commits(ledger), await all_events(ledger))
    assert as_read(await asyncio.to_thread(world.read)) == expected


async def told_of(ledger: Ledger, is_so: Callable[[CopyState], bool]) -> CopyState:
    """What the mirror says of itself, as soon as it says this."""
    async with asyncio.timeout(90):
        while True:
            told = (await ledger.copies()).get("mirror")
            if told is not None and is_so(told):
                return told
            await asyncio.sleep(0.05)


async def test_all_events_are_there_in_order_and_where_the_ledger_says(
    home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await home.open()
    world = world_of(home, tmp_path)
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


async def test_runs_keep_to_a_partition_and_others_are_spread(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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


async def test_places_that_were_not_written_down_are_read_from_the_topics(
    home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await home.open()
    world = world_of(home, tmp_path)
    await fill(ledger, "events", [3, 100, 0, 7])
    await world.mirror()

    async def places() -> list[Place]:
        found = []
        for sequence in range(1, 111):
            placed = await ledger.places_of(sequence)
            assert placed is not None
            found.append(place_in(placed, sequence))
        return found

    before = await places()
    for known in (0, 3):
        await ledger.forget_places(known)
        await world.mirror()
        assert await places() == before


async def test_a_second_mirror_takes_over_and_the_first_is_fenced(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await fill(ledger, "before", [3])
    with world.mirroring() as failures:
        # Its topics are there before it has taken over, and whoever does so last is the second.
        await told_of(ledger, lambda told: told.last_sequence == 3)
        with pytest.raises(MirrorRunning):
            await world.mirror()
        # One on another machine has another state directory.
        world.configure(state_dir=tmp_path / "elsewhere")
        await world.mirror()
        await fill(ledger, "after", [2])
        await asyncio.to_thread(wait_until, lambda: failures)
        [failure] = failures
        assert isinstance(failure, MirrorFenced)
    await world.mirror()
    await assert_mirrored(world, ledger)


@pytest.mark.parametrize("trouble", ["kill", "stop"])
async def test_a_broker_that_comes_back_is_gone_on_with(
    trouble: str, sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await fill(ledger, "before", [30, 2])
    with world.mirroring() as failures:
        await asyncio.to_thread(wait_until, lambda: f"{world.prefix}usage" in world.topics())
        getattr(world.broker, trouble)()
        await fill(ledger, "meanwhile", [5, 1, 0, 9])
        await asyncio.to_thread(world.broker.start)
        await fill(ledger, "after", [4])
        last = (await ledger.head()).last_sequence

        await told_of(ledger, lambda told: told.error is None and told.last_sequence == last)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_a_broker_that_is_away_is_an_error_for_who_wants_to_be_done(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It need not be away for long here.
    monkeypatch.setattr(topics, "ANSWER_WITHIN_S", 0.5)
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await fill(ledger, "events", [1])
    world.configure(mirror__bootstrap_servers="127.0.0.1:1")
    with pytest.raises(MirrorUnavailable) as raised:
        await world.mirror()
    assert raised.value.field == "mirror.bootstrap_servers"


def threads_of_kafka() -> int:
    found = 0
    for task in Path("/proc/self/task").iterdir():
        # One may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "comm").read_text().startswith("rdk:")
    return found


@pytest.mark.parametrize("fails", ["begin", "produce"])
async def test_a_sender_that_is_closed_is_gone_at_once(
    fails: str, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that still waits for its turn would later take over from the one that came after it.

    It is closed while what made it fail is handled, as `app.mirror` does, and what that holds on to
    is gone too when it is done.
    """
    world = world_of(sqlite_home, tmp_path)
    monkeypatch.setattr(sending, "ANSWER_WITHIN_S", 0.0)
    # A client of its own, whose threads would be counted.
    no_topics: Any = None

    def work(held: set[int]) -> None:
        sender = sending.Sender(world.config, "ledger", no_topics, lambda: False)
        try:
            assert threads_of_kafka() > before
            if fails == "begin":
                sender.begin()
            else:
                sender._produce(broken() for _ in held)
        finally:
            sender.close()

    def broken() -> Any:
        raise MirrorUnavailable("broken", hint="")

    gc.disable()
    try:
        before = threads_of_kafka()
        held = {1}
        gone = weakref.ref(held)
        with contextlib.suppress(MirrorUnavailable):
            work(held)
        del held
        assert gone() is None
        assert threads_of_kafka() == before
    finally:
        gc.enable()


async def test_a_transaction_that_is_sent_again_counts_its_messages_once(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await fill(ledger, "first", [3, 2])
    made, left = sending.producer, [1]

    class Reluctant:
        """Its first commit asks for the end of the transaction."""

        def __init__(self, *arguments: Any) -> None:
            self._producer = made(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def __len__(self) -> int:
            return len(self._producer)

        def commit_transaction(self, timeout: float) -> None:
            if left:
                left.pop()
                error = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, txn_requires_abort=True)
                raise KafkaException(error)
            self._producer.commit_transaction(timeout)

    monkeypatch.setattr(sending, "producer", Reluctant)
    await world.mirror()
    assert not left
    monkeypatch.undo()
    with reading(world.config) as consumer:
        [*_, last] = last_commits(consumer, f"{world.prefix}tidemark.commits")
    assert sum(int(total) for total in last.totals.values()) == 5
    await fill(ledger, "second", [4])
    await world.mirror()
    await assert_mirrored(world, ledger)


async def refused(world: MirrorWorld) -> str:
    with pytest.raises(MirrorRefused) as raised:
        await world.mirror()
    assert raised.value.hint
    return raised.value.message


async def test_topics_that_lose_messages_are_refused_and_named(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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
    assert "tells of them" in await refused(world)


async def test_an_event_too_large_for_its_topic_is_named_and_nothing_is_skipped(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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


async def test_what_stands_in_the_way_is_told_and_mended_while_it_runs(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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


async def test_topics_are_looked_at_while_events_come_in(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "CHECK_EVERY_US", 0)
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
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


async def test_the_consumer_of_the_page_finds_what_is_wrong(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    with pytest.raises(SystemExit, match="not written by the mirror"):
        await asyncio.to_thread(world.read)


async def compared(world: MirrorWorld, ledger: Ledger) -> Compared:
    loop = asyncio.get_running_loop()

    reader = CommitReader(ledger)

    def next_chunk(received_at: int) -> Chunk:
        work = reader.after(received_at)
        return asyncio.run_coroutine_threadsafe(work, loop).result().chunk()

    found = await asyncio.to_thread(compare_topics, world.config, next_chunk)
    assert found is not None
    return found


async def test_what_is_in_kafka_is_proven_from_the_ledger(
    home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_EVENTS", 10)
    ledger = await home.open()
    world = world_of(home, tmp_path)
    await fill(ledger, "events", [3, 0, 9, 1, 20, 0])
    await world.mirror()
    assert await compared(world, ledger) == Compared("kafka", 6, 33)
    # What is not mirrored yet is no difference.
    await fill(ledger, "more", [2])
    assert await compared(world, ledger) == Compared("kafka", 6, 33)
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    for events in (33, 0):
        # Behind all that was mirrored, and before more of it.
        found = await compared(world, ledger)
        assert found.difference is not None
        assert found.difference.message == "the mirror has not written this message"
        assert found.difference.block.startswith(f"{world.prefix}usage[")
        assert found.events >= events
        await fill(ledger, f"after-{events}", [30])
        await world.mirror()


@pytest.mark.parametrize(
    ("most_events", "most_bytes", "most_text_bytes"),
    [(10, 1 << 20, 1 << 20), (1_000, 3_000, 1 << 20), (5, 100, 1 << 20), (1_000, 6_000, 5_000)],
)
async def test_commits_are_read_whole_and_no_more_at_once_than_is_wanted(
    most_events: int,
    most_bytes: int,
    most_text_bytes: int,
    home: LedgerHome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MOST_EVENTS", most_events)
    monkeypatch.setattr(following, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(following, "PAGE_BYTES", most_bytes // 2)
    monkeypatch.setattr(following, "FIRST_PAGE_EVENTS", 2)
    monkeypatch.setattr(following, "FIRST_COMMITS", 2)
    monkeypatch.setattr(ledger_reading, "MOST_TEXT_BYTES", most_text_bytes)
    ledger = await home.open()
    source = random.Random(most_bytes)
    for number in range(30):
        # Long ones and short ones, in commits of any size; ticks between.
        lengths = [source.choice([1, 1, 2_000]) for _ in range(source.choice([1, 2, 13]))]
        contents = [f'{{"a":"{"x" * length}"}}' for length in lengths]
        await append(
            ledger, *(draft(f"{number}-{n}", data=text) for n, text in enumerate(contents))
        )
        if source.random() < 0.2:
            await ledger.tick(0)
    commits = await ledger.read_commits(0, 1_000)
    rows = await all_events(ledger)
    reader, read, chunks = CommitReader(ledger), list[CommitRow](), 0
    while (found := await reader.after(read[-1].received_at if read else 0)).commits:
        chunk = found.chunk()
        first, last = chunk.commits[0].first_sequence, chunk.commits[-1].last_sequence
        # The last page was read while there was room for it, or the first commit was not whole.
        before = b"\n".join(text.csv.strip() for text in found.texts[:-1])
        end_of_first = chunk.commits[0].last_sequence - first + 1
        assert len(before) < most_bytes or len(before.split(b"\n")) < end_of_first
        assert all(len(text.csv) <= most_text_bytes for text in found.texts)
        assert chunk.events.first_sequence == first
        assert [json.loads(value)["idempotencyKey"] for value in chunk.events.values] == [
            row.idempotency_key for row in rows[first - 1 : last]
        ]
        # One commit is sent at once, however large it is.
        assert len(chunk.commits) == 1 or last - first < most_events
        chunks += 1
        read += chunk.commits
    assert read == commits
    assert chunks > 5


async def test_an_event_that_cannot_be_read_is_named(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await home.open()
    await append(ledger, draft("small"), draft("large", data=f'{{"a":"{"x" * 90_000}"}}'))
    monkeypatch.setattr(ledger_reading, "MOST_TEXT_BYTES", 80_000)
    with pytest.raises(LedgerUnavailable, match="the event 2 is too large"):
        await CommitReader(ledger).after(0)


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
    send = sending.Sender._produce

    def altering(self: Any, messages: Iterable[Any]) -> None:
        def altered() -> Iterator[Any]:
            for target, (value, key, *rest), arrived in messages:
                yield target, (change(value) if key == b"5" else value, key, *rest), arrived

        send(self, altered())

    monkeypatch.setattr(sending.Sender, "_produce", altering)
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(8)))
    await world.mirror()
    found = await compared(world, ledger)
    assert found.difference is not None
    assert (found.difference.sequence, found.difference.block) == ("5", "usage")
    assert said in found.difference.message


async def test_places_are_right_also_when_somebody_else_writes_between(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then messages of a partition do not follow one another."""
    send = sending.Sender._produce
    ledger = await sqlite_home.open()
    world = world_of(sqlite_home, tmp_path)

    def disturbed(self: Any, messages: Iterable[Any]) -> None:
        def with_others() -> Iterator[Any]:
            for sent in messages:
                yield sent
                if sent[1][1] == b"7":
                    self._producer.flush(10)
                    for partition in range(3):
                        world.write("usage", b"{}", partition=partition)

        send(self, with_others())

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
