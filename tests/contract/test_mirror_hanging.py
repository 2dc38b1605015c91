"""Transactions that are open in the topics of the mirror when none should be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import Producer

from tests.contract.mirrored import assert_mirrored, fill, ledger_and_world, told_of
from tests.contract.stores import LedgerHome
from tests.services.kafka import KafkaBroker
from tests.services.mirroring import MirrorWorld
from tidemark.mirror import hanging, sending
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.messages import decode_commit, encode_commit
from tidemark.mirror.position import last_commit, reading, stable_ends

# It ends what took too long as soon as it is there again, before it can tell the partitions so.
FORGETFUL: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
TOO_LONG_S: Final = 1.0
ANSWER_WITHIN_S: Final = 30.0


def begun(
    broker: KafkaBroker, name: str, *messages: tuple[str, bytes], lasts_s: float = 600.0
) -> Any:
    """Somebody who has begun a transaction, and sent these to the first partition of topics."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": name,
            "transaction.timeout.ms": int(lasts_s * 1000),
            "log_level": 0,
            "error_cb": lambda error: None,
        }
    )
    producer.init_transactions(ANSWER_WITHIN_S)
    producer.begin_transaction()
    for topic, value in messages:
        producer.produce(topic, value, partition=0)
    assert producer.flush(ANSWER_WITHIN_S) == 0
    return producer


@contextmanager
def somebody_else(broker: KafkaBroker, *messages: tuple[str, bytes]) -> Iterator[None]:
    """While it lasts, their transaction is open."""
    producer = begun(broker, "somebody else", *messages)
    try:
        yield
    finally:
        producer.abort_transaction(ANSWER_WITHIN_S)


def last_record(world: MirrorWorld) -> bytes:
    with reading(world.config) as consumer:
        last = last_commit(consumer, world.commits_topic)
    assert last is not None
    return encode_commit(last)[0]


async def test_what_a_broker_forgot_to_end_is_neither_committed_nor_in_the_way(
    sqlite_home: LedgerHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-20734: it has given up the transaction, and not told the partitions."""
    ledger = await sqlite_home.open()
    with KafkaBroker(settings=FORGETFUL) as broker:
        world = MirrorWorld(tmp_path, sqlite_home.url, broker)
        await fill(ledger, "first", [3, 2])
        await world.mirror()
        topics = [world.commits_topic, f"{world.prefix}usage", f"{world.prefix}quiet"]
        sent = [(topic, b"given up") for topic in topics]
        admin, places = world.admin(), [(topic, 0) for topic in topics]
        ends = stable_ends(admin, places)
        gone = await asyncio.to_thread(
            partial(begun, broker, ledger.ledger_id, *sent, lasts_s=TOO_LONG_S)
        )
        await asyncio.to_thread(broker.kill)
        gone.purge()
        del gone
        await asyncio.sleep(TOO_LONG_S + 0.2)
        await asyncio.to_thread(broker.start)
        # Also for who knew the leaders from before.
        assert await asyncio.to_thread(stable_ends, admin, places) == ends
        await fill(ledger, "second", [4, 1])
        await world.mirror()
        assert "Kafka had not ended a transaction of the mirror" in caplog.text
        for topic in topics:
            assert f"partition 0 of {topic} from offset " in caplog.text
        await assert_mirrored(world, ledger)
        # Nothing is left of it.
        caplog.clear()
        await fill(ledger, "third", [2])
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
            "a transaction is open that the mirror did not begin or cannot end, in partition 0 of"
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


async def test_nothing_is_sent_again_before_what_was_given_up_has_ended(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be committed with it. Here it is somebody else who keeps the mirror from knowing."""
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [40])
    with world.mirroring() as failures:
        await told_of(ledger, lambda state: state.last_sequence == 40 and state.error is None)
        with somebody_else(world.broker, (f"{world.prefix}usage", b"{}")):
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
    seen, asked, is_hidden = sending.stable_ends, [0], threading.Event()

    def hardly_seen(*arguments: Any) -> dict[Any, int]:
        asked[0] += 1
        found = seen(*arguments)
        return dict.fromkeys(found, 0) if is_hidden.is_set() else found

    monkeypatch.setattr(sending, "stable_ends", hardly_seen)
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
        assert asked[0] > 5
        is_hidden.clear()
        await told_of(ledger, lambda state: state.last_sequence == 80 and state.error is None)
    assert not failures
    assert await ledger.placed_upto() == 80
    await assert_mirrored(world, ledger)


async def test_what_a_commit_tells_of_is_not_given_up(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All see the commit already: its events would be missing."""
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    given_up: list[Any] = []
    monkeypatch.setattr(sending.Sender, "give_up_in", lambda self, them: given_up.append(them))
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    await world.mirror()
    quiet = f"{world.prefix}quiet"
    with somebody_else(world.broker, (quiet, b"not seen")):
        told = decode_commit(last_record(world))
        told = msgspec.structs.replace(told, offsets={quiet: {"0": [("0", "0")]}})
        world.write("tidemark.commits", encode_commit(told)[0])
        with pytest.raises(MirrorUnavailable, match=f"in partition 0 of {quiet} from offset 0 on"):
            await world.mirror()
    assert not given_up


async def test_a_transaction_that_is_committed_in_some_partitions_only_is_refused(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To send it again would have some of its events there twice."""
    monkeypatch.setattr(hanging, "_SETTLES_WITHIN_S", 0.2)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3])
    await world.mirror()
    await fill(ledger, "second", [4])
    with somebody_else(world.broker, (world.commits_topic, last_record(world))):
        with pytest.raises(MirrorRefused) as raised:
            await world.mirror()
        assert raised.value.message.startswith("Kafka has committed a transaction of the mirror in")
        assert raised.value.message.endswith(
            f" and not in partition 0 of {world.commits_topic} from offset 2 on"
        )
    await world.mirror()
    await assert_mirrored(world, ledger)


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
