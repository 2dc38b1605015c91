"""Transactions that are open in the topics of the mirror when none should be."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.contract.events import draft
from tests.contract.mirrored import assert_mirrored, compared, fill, ledger_and_world, told_of
from tests.contract.stores import LedgerHome, append
from tests.services.kafka import KafkaBroker
from tests.services.mirroring import MirrorWorld, wait_until
from tidemark.mirror import hanging, sending
from tidemark.mirror.ahead import Ahead
from tidemark.mirror.errors import MirrorFenced, MirrorRefused, MirrorUnavailable
from tidemark.mirror.messages import encode_commit
from tidemark.mirror.position import ends_of, last_commit, reading

ANSWER_WITHIN_S: Final = 30.0
PROMPT: Final = {
    # One that was killed is taken back when this has passed.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # How often it looks for transactions that take too long.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def forgetful() -> Iterator[KafkaBroker]:
    with KafkaBroker(settings=PROMPT) as broker:
        yield broker


def settings(broker: KafkaBroker, name: str) -> dict[str, Any]:
    """Of somebody whose transactions may last longer than a test."""
    return {
        "bootstrap.servers": broker.address,
        "transactional.id": name,
        "transaction.timeout.ms": 600_000,
        "log_level": 0,
        "error_cb": lambda error: None,
    }


@contextmanager
def somebody_else(broker: KafkaBroker, *messages: tuple[str, bytes]) -> Iterator[None]:
    """While it lasts, their transaction is open in the first partition of topics."""
    producer = Producer(settings(broker, "somebody else"))
    producer.init_transactions(ANSWER_WITHIN_S)
    producer.begin_transaction()
    for topic, value in messages:
        producer.produce(topic, value, partition=0)
    assert producer.flush(ANSWER_WITHIN_S) == 0
    try:
        yield
    finally:
        producer.abort_transaction(ANSWER_WITHIN_S)


class HalfSeen:
    """A producer whose transaction is never ended, and that sends what goes to some topics beside
    it. Somebody else may write to one of them just before."""

    def __init__(self, broker: KafkaBroker, name: str, seen: str, disturbed: str) -> None:
        self._producer: Any = Producer(settings(broker, name))
        self._beside: Any = Producer({"bootstrap.servers": broker.address})
        self._seen = seen
        self._disturbed = disturbed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer) + len(self._beside)

    def produce(self, topic: str, *message: Any) -> None:
        if self._disturbed and topic.endswith(self._disturbed):
            self._disturbed = ""
            for partition in range(3):
                self._beside.produce(topic, b"{}", partition=partition)
            self._beside.flush()
        is_seen = self._seen and topic.endswith(self._seen)
        (self._beside if is_seen else self._producer).produce(topic, *message)

    def flush(self, timeout: float) -> int:
        return int(self._beside.flush(timeout) + self._producer.flush(timeout))

    def commit_transaction(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def abort_transaction(self, timeout: float) -> None:
        """As who is gone does."""


class Coordinator:
    """What a broker knows of transactions, which is not what is in the partitions of topics."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._written_down = broker.directory_of("__transaction_state", 0)

    def take_over(self, name: str) -> None:
        """As a producer of this name does. All that it had ended before is written down then."""
        Producer(settings(self._broker, name)).init_transactions(ANSWER_WITHIN_S)

    def knows(self) -> int:
        return self._log.stat().st_size

    def forget(self, known: int) -> None:
        """What came after. The broker must not run."""
        os.truncate(self._log, known)
        # It makes them anew.
        for index in self._written_down.glob("*index"):
            index.unlink()

    @property
    def _log(self) -> Path:
        return max(self._written_down.glob("*.log"))


@pytest.mark.parametrize(
    ("seen", "disturbed", "what_it_is_now"),
    [
        ("", "", "given up"),
        (".tidemark.commits", "", "committed"),
        (".usage", "", "committed"),
        # What says where its events are is wrong then, and is not even wanted.
        ("", ".usage", "given up"),
    ],
)
async def test_what_a_broker_forgot_to_end_is_ended_everywhere_in_the_same_way(
    seen: str,
    disturbed: str,
    what_it_is_now: str,
    forgetful: KafkaBroker,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It takes the transaction for ended, and has not told the partitions.

    KAFKA-20734 does that, when a broker is quicker in one thing than in another. Here it is made to
    forget.
    """
    ledger = await sqlite_home.open()
    world = MirrorWorld(tmp_path, sqlite_home.url, forgetful)
    name = ledger.ledger_id
    await fill(ledger, "first", [3, 2])
    await world.mirror()
    await fill(ledger, "second", [40, 0, 10])
    # The configuration does not name it, and no commit that is seen.
    await append(ledger, draft("of-old", stream="old"))
    admin, commits = world.admin(), [(world.commits_topic, 0)]
    ends = ends_of(admin, commits)
    coordinator = Coordinator(forgetful)
    coordinator.take_over(name)
    known = coordinator.knows()
    with monkeypatch.context() as patched:
        patched.setattr(sending, "producer", lambda *_: HalfSeen(forgetful, name, seen, disturbed))
        patched.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
        with pytest.raises(MirrorUnavailable, match=r"committing what was|given up is still open"):
            await world.mirror()
    await asyncio.to_thread(forgetful.kill)
    coordinator.forget(known)
    await asyncio.to_thread(forgetful.start)
    # As it does when it takes a transaction for ended: the next one is another's.
    coordinator.take_over(name)
    # Also for who knew the leaders from before.
    if not seen.endswith("commits"):
        assert await asyncio.to_thread(ends_of, admin, commits) == ends
    await fill(ledger, "third", [4, 1])
    await world.mirror()
    assert f"of the mirror everywhere (KAFKA-20734), it is {what_it_is_now} now: in" in caplog.text
    if disturbed:
        # Which it finds when it has found all else.
        with pytest.raises(SystemExit, match="not written by the mirror"):
            await assert_mirrored(world, ledger)
        return
    await assert_mirrored(world, ledger)
    assert (await compared(world, ledger)).difference is None
    # Nothing is left of it.
    caplog.clear()
    await fill(ledger, "fourth", [2])
    await world.mirror()
    assert not caplog.text
    await assert_mirrored(world, ledger)


async def test_while_somebody_else_hides_commits_the_mirror_does_not_go_on(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was mirrored behind their transaction would be mirrored again."""
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3, 2])
    await world.mirror()
    await fill(ledger, "second", [4])
    with somebody_else(world.broker, (world.commits_topic, b"{}")):
        with pytest.raises(MirrorUnavailable) as raised:
            await world.mirror()
        assert raised.value.message == (
            "a transaction is open that the mirror cannot end, in partition 0 of"
            f" {world.commits_topic} from offset 3 on"
        )
        with world.mirroring() as failures:
            told = await told_of(ledger, lambda state: state.error is not None)
            assert told.error is not None
            assert told.error.code == "mirror_unavailable"
            assert told.last_sequence == 5
    assert not failures
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_nothing_is_ended_in_topics_of_another_ledger(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    await world.mirror()
    other = LedgerHome(f"sqlite:///{tmp_path / 'other.db'}")
    await other.open()
    try:
        commits = [(world.commits_topic, 0)]
        with somebody_else(world.broker, (world.commits_topic, b"{}")):
            before = ends_of(world.admin(), commits, sees_all=True)
            world.configure(ledger__url=other.url)
            with pytest.raises(MirrorRefused, match=f"is of the ledger {ledger.ledger_id}"):
                await world.mirror()
            assert ends_of(world.admin(), commits, sees_all=True) == before
    finally:
        await other.close()


@pytest.mark.parametrize("topic", ["usage", "tidemark.commits"])
async def test_nothing_is_sent_again_before_what_was_given_up_has_ended(
    topic: str, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be committed with it. Here it is somebody else who keeps the mirror from knowing."""
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [40])
    with world.mirroring() as failures:
        await told_of(ledger, lambda state: state.last_sequence == 40 and state.error is None)
        with somebody_else(world.broker, (world.prefix + topic, b"{}")):
            await fill(ledger, "second", [40])
            told = await told_of(ledger, lambda state: state.error is not None)
            assert told.error is not None
            assert told.error.message == "a transaction that was given up is still open"
            await told_of(
                ledger,
                lambda state: state.error is not None and "cannot end" in state.error.message,
            )
            assert await ledger.placed_upto() == 40
        await told_of(ledger, lambda state: state.last_sequence == 80 and state.error is None)
    assert not failures
    await assert_mirrored(world, ledger)


async def test_what_is_committed_and_not_seen_is_waited_for(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction could still take it back."""
    monkeypatch.setattr(sending, "_SEEN_WITHIN_S", 1.0)
    seen, asked, is_hidden = sending.ends_of, [0], threading.Event()
    meanwhile: list[Any] = []

    def hardly_seen(*arguments: Any, **named: Any) -> dict[Any, int]:
        asked[0] += 1
        meanwhile.append(named.get("meanwhile"))
        found = seen(*arguments, **named)
        return dict.fromkeys(found, 0) if is_hidden.is_set() else found

    monkeypatch.setattr(sending, "ends_of", hardly_seen)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [40])
    with world.mirroring() as failures:
        await told_of(ledger, lambda state: state.last_sequence == 40 and state.error is None)
        is_hidden.set()
        asked[0] = 0
        await fill(ledger, "second", [40])
        told = await told_of(ledger, lambda state: state.error is not None)
        assert told.error is not None
        assert told.error.message == (
            f"what was committed in partition 0 of {world.commits_topic} is not seen after 1 s"
        )
        assert asked[0] > 1
        # And the next is made ready in the meantime.
        assert Ahead.make_ready in (getattr(it, "__func__", None) for it in meanwhile)
        is_hidden.clear()
        await told_of(ledger, lambda state: state.last_sequence == 80 and state.error is None)
    assert not failures
    assert await ledger.placed_upto() == 80
    await assert_mirrored(world, ledger)


async def test_a_commit_that_tells_of_what_is_not_there_is_not_gone_on_from(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """As if a broker had died a second time, while the mirror committed what the first had left."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    quiet = f"{world.prefix}quiet"
    await world.mirror()
    with reading(world.config) as consumer:
        last = last_commit(consumer, world.commits_topic)
    assert last is not None
    with somebody_else(world.broker, (quiet, b"{}")):
        pass
    # Two of its messages would be behind the end of the partition.
    told = msgspec.structs.replace(last, counts={quiet: 3}, offsets={quiet: {"0": [("0", "2")]}})
    world.write("tidemark.commits", encode_commit(told))
    with pytest.raises(MirrorRefused, match="of the last 6 events that commits tell of, 3 are in"):
        await world.mirror()


@pytest.mark.parametrize("other", [False, True], ids=["alone", "another"])
async def test_a_transaction_that_took_too_long_is_no_other_mirror_unless_there_is_one(
    other: bool,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    forgetful: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine was asleep, say. Brokers give it up, and have one word for both."""
    ledger = await sqlite_home.open()
    world = MirrorWorld(tmp_path, sqlite_home.url, forgetful)
    world.configure(mirror__options='{"transaction.timeout.ms": 1000}')
    await fill(ledger, "first", [30])
    await world.mirror()
    await fill(ledger, "second", [20])
    asleep, awake = ["mirror.before_commit"], threading.Event()

    def sleep_at(point: str) -> None:
        if point in asleep:
            asleep.clear()
            awake.wait(ANSWER_WITHIN_S if other else 3)

    monkeypatch.setattr(sending, "crash_point", sleep_at)
    with world.mirroring() as failures:
        if other:
            await asyncio.to_thread(wait_until, lambda: not asleep)
            world.configure(state_dir=tmp_path / "elsewhere")
            await world.mirror()
            await asyncio.sleep(1)
            awake.set()
            await asyncio.to_thread(wait_until, lambda: failures)
            assert isinstance(failures[0], MirrorFenced)
            assert "while this one was held up" in failures[0].message
            await assert_mirrored(world, ledger)
            return
        told = await told_of(ledger, lambda state: state.error is not None)
        assert told.error is not None
        assert told.error.code == "mirror_unavailable"
        assert "given up a transaction that took longer than 1 s" in told.error.message
        await told_of(ledger, lambda state: state.last_sequence == 50 and state.error is None)
        assert not failures
    await assert_mirrored(world, ledger)


async def test_brokers_that_allow_less_time_for_a_transaction_are_told_of(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    world.configure(mirror__options='{"transaction.timeout.ms": 2000000}')
    with pytest.raises(MirrorUnavailable, match="do not let a transaction take 2000 s") as raised:
        await world.mirror()
    assert raised.value.field == "mirror.options"
    assert "transaction.max.timeout.ms" in raised.value.hint


def test_nothing_hangs_where_somebody_writes_meanwhile() -> None:
    """Between the two questions a partition may have grown."""

    class Growing:
        ends = iter([7, 9])

        def list_offsets(self, asked: Any, **more: Any) -> Any:
            end = next(self.ends)

            class Answer:
                @staticmethod
                def result() -> Any:
                    class Found:
                        offset = end

                    return Found

            return dict.fromkeys(asked, Answer)

    admin: Any = Growing()
    assert hanging.hanging(admin, [("usage", 0)]) == {}
