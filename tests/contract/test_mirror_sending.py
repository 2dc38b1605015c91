"""A transaction of the mirror that fails: nothing counted twice, and nothing held on to."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.contract.events import draft
from tests.contract.mirrored import (
    STREAMS,
    allow_changes,
    assert_mirrored,
    fill,
    ledger_and_world,
    told_of,
)
from tests.contract.stores import LedgerHome, append
from tests.services.mirroring import MirrorWorld, wait_until
from tidemark.app import mirror as app_mirror
from tidemark.clock import SystemClock
from tidemark.errors import ConfigError, LedgerDamaged, LedgerUnavailable, TidemarkError
from tidemark.ingress.drafts import Draft
from tidemark.ledger.sequencer import Head
from tidemark.mirror import following, kafka, sending
from tidemark.mirror.ahead import CommitReader, Read
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.following import Mirror
from tidemark.mirror.known import Known
from tidemark.mirror.messages import Messages
from tidemark.mirror.position import last_commit, reading


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
    _, world = await ledger_and_world(sqlite_home, tmp_path)
    monkeypatch.setattr(sending, "ANSWER_WITHIN_S", 0.0)
    # A client of its own, whose threads would be counted.
    no_topics: Any = SimpleNamespace(batch_bytes=1_000_000, commits="commits")

    def work(held: set[int]) -> None:
        sender = sending.Sender(
            world.config, "ledger", no_topics, Known(), SystemClock(), lambda: False
        )
        try:
            assert threads_of_kafka() > before
            if fails == "begin":
                sender.begin()
            else:
                values: Any = (broken() for _ in held)
                sender._produce(["topic"], [0], Messages(values, [b""], [0], [[]]), [None], str)
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


def assert_mirrored_upto(world: MirrorWorld, sequence: int) -> None:
    with reading(world.config) as consumer:
        last = last_commit(consumer, world.commits_topic)
    assert last is not None
    assert last.last_sequence == sequence


def large() -> Draft:
    """Packed, it is no smaller."""
    return draft("large", data=f'"{random.Random(1).randbytes(4000).hex()}"')


@pytest.mark.parametrize("away", ["brokers", "ledger"])
async def test_of_attempts_that_failed_nothing_is_left(
    away: str, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read ahead and has a client, and while there is trouble there are many."""
    monkeypatch.setattr(app_mirror, "LONGEST_PAUSE_S", 0.01)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("small"))
    await world.mirror()
    await asyncio.to_thread(world.set_option, f"{world.prefix}usage", "max.message.bytes", "2000")
    await append(ledger, large())
    if away == "ledger":

        async def gone(self: CommitReader, before: Head) -> Read:
            raise LedgerUnavailable("away")

        monkeypatch.setattr(CommitReader, "behind", gone)
    made: list[weakref.ref[Mirror]] = []
    honest = Mirror.__init__

    def noted(self: Mirror, *arguments: Any, **options: Any) -> None:
        made.append(weakref.ref(self))
        honest(self, *arguments, **options)

    monkeypatch.setattr(Mirror, "__init__", noted)
    gc.disable()
    try:
        with world.mirroring() as failures:
            await asyncio.to_thread(wait_until, lambda: len(made) >= 5)
            # The one at work, and the one before it.
            assert sum(mirror() is not None for mirror in made) <= 2
    finally:
        gc.enable()
    assert not failures


async def test_more_than_the_client_holds_is_sent_all_the_same(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses a message then, which has to wait, and all behind it."""
    refused = []
    later = sending.Sender._produce_late

    def noted(self: Any, message: Any) -> None:
        refused.append(message)
        later(self, message)

    monkeypatch.setattr(sending.Sender, "_produce_late", noted)
    monkeypatch.setattr(kafka, "_MOST_QUEUED_KBYTES", 16)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [100, 0, 5_000, 1, 50])
    await world.mirror()
    assert refused
    await assert_mirrored(world, ledger)


class Reluctant:
    """A producer that fails when it is asked for something the first time: it wants its transaction
    ended, unless another error is given. It has done it or not, as `is_done` says."""

    def __init__(
        self, producer: Any, left: list[str], *, is_done: bool, error: KafkaError | None = None
    ) -> None:
        self._producer = producer
        self._left = left
        self._is_done = is_done
        self._error = error or KafkaError(
            KafkaError.CONCURRENT_TRANSACTIONS, txn_requires_abort=True
        )

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._producer, name)
        if name not in self._left:
            return asked

        def failing(*arguments: Any, **more: Any) -> None:
            self._left.remove(name)
            if self._is_done:
                asked(*arguments, **more)
            raise KafkaException(self._error)

        return failing

    def __len__(self) -> int:
        return len(self._producer)


def make_reluctant(monkeypatch: pytest.MonkeyPatch, at: str, **options: Any) -> list[str]:
    """What it has not yet been asked for."""
    made, left = sending.producer, [at]
    monkeypatch.setattr(sending, "producer", lambda *them: Reluctant(made(*them), left, **options))
    return left


async def test_a_transaction_that_is_sent_again_counts_its_messages_once(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3, 2])
    left = make_reluctant(monkeypatch, "flush", is_done=True)
    await world.mirror()
    assert not left
    monkeypatch.undo()
    with reading(world.config) as consumer:
        last = last_commit(consumer, f"{world.prefix}tidemark.commits")
    assert last is not None
    assert sum(int(total) for total in last.totals.values()) == 5
    await fill(ledger, "second", [4])
    await world.mirror()
    await assert_mirrored(world, ledger)


@pytest.mark.parametrize("is_done", [True, False])
async def test_what_was_perhaps_committed_is_looked_for_and_not_just_sent_again(
    is_done: bool, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "first", [3, 2])
    make_reluctant(monkeypatch, "commit_transaction", is_done=is_done)
    with pytest.raises(MirrorUnavailable, match="committing what was mirrored failed: "):
        await world.mirror()
    await fill(ledger, "second", [4])
    await world.mirror()
    await assert_mirrored(world, ledger)


async def test_what_cannot_be_sent_keeps_no_commit_before_it_and_is_not_sent_again_with_others(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given up stays in the topics for as long as anything does there."""
    monkeypatch.setattr(app_mirror, "LONGEST_PAUSE_S", 0.01)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"))
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "2000")
    for number in range(30):
        await append(ledger, draft(f"good-{number}"))
    await append(ledger, large())
    await fill(ledger, "behind", [1] * 30)
    sent: list[int] = []
    honest = sending.Sender._send

    def noted(self: Any, chunk: Chunk, *arguments: Any, **options: Any) -> Any:
        sent.append(len(chunk.commits))
        return honest(self, chunk, *arguments, **options)

    monkeypatch.setattr(sending.Sender, "_send", noted)
    with world.mirroring() as failures:
        told = await told_of(
            ledger, lambda told: told.last_sequence == 31 and told.error is not None
        )
        assert told.error is not None
        assert "the event 32 is too large" in told.error.message
        attempts = len(sent)
        await asyncio.to_thread(wait_until, lambda: len(sent) >= attempts + 6)
        assert {*sent[attempts + 2 : attempts + 6]} == {1}
        await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "1000000")
        await told_of(ledger, lambda told: told.last_sequence == 62 and told.error is None)
        # It sends more at once again.
        assert max(sent[attempts:]) >= 16
    assert not failures
    await assert_mirrored(world, ledger)


async def test_who_ends_when_it_has_caught_up_also_sends_what_comes_before_what_cannot_be_sent(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"))
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "2000")
    for number in range(30):
        await append(ledger, draft(f"good-{number}"))
    await append(ledger, large())
    await fill(ledger, "behind", [1] * 30)
    for _ in range(2):
        with pytest.raises(MirrorUnavailable, match="the event 32 is too large"):
            await world.mirror()
        assert_mirrored_upto(world, 31)


@pytest.mark.parametrize("count", [300, 9_000])
async def test_what_cannot_be_sent_is_named_among_many_that_are_given_up_with_it(
    count: int, sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client purges what is still to go to other partitions, and takes no more of it; and most
    is said of those first."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"))
    await world.mirror()
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.set_option, usage, "max.message.bytes", "2000")
    for number in range(5):
        await append(ledger, draft(f"good-{number}"))
    await append(ledger, large(), *(draft(f"with-it-{number}") for number in range(count)))
    with pytest.raises(MirrorUnavailable) as raised:
        await world.mirror()
    assert raised.value.message == f"the event 7 is too large for the topic {usage}"
    assert_mirrored_upto(world, 6)


@pytest.mark.parametrize(
    ("is_damaged", "expected"),
    [(False, (MirrorRefused, "retention.ms=60000")), (True, (LedgerDamaged, "fingerprint"))],
)
async def test_who_ends_when_it_has_caught_up_also_sends_what_comes_before_what_is_refused(
    is_damaged: bool,
    expected: tuple[type[TidemarkError], str],
    sqlite_home: LedgerHome,
    tmp_path: Path,
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    for number in range(30):
        await append(ledger, draft(f"good-{number}"))
    # Of a stream that is no more configured, and so looked at when its first event comes.
    await append(ledger, draft("bad", stream="usage" if is_damaged else "former"))
    await fill(ledger, "behind", [1] * 30)
    if is_damaged:
        await allow_changes(sqlite_home, "events")
        altered = f"UPDATE events SET content_hash = x'{1:064x}' WHERE ingress_sequence = 31"
        await sqlite_home.sql(altered)
    else:
        former = f"{world.prefix}former"
        await asyncio.to_thread(world.make_topic, former, 1)
        await asyncio.to_thread(world.set_option, former, "retention.ms", "60000")
    error, words = expected
    for _ in range(2):
        with pytest.raises(error, match=words):
            await world.mirror()
        assert_mirrored_upto(world, 30)


async def test_options_that_are_wrong_for_a_moment_do_not_end_a_mirror_that_has_worked(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a certificate is replaced, and its key a moment later."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"))
    made, refusals = kafka.Consumer, list[str]()

    def refused(settings: dict[str, Any]) -> Any:
        if len(refusals) < 3:
            refusals.append("refused")
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no such certificate"))
        return made(settings)

    monkeypatch.setattr(following, "CHECK_EVERY_US", 0)
    with world.mirroring() as failures:
        await told_of(ledger, lambda told: told.last_sequence == 1)
        monkeypatch.setattr(kafka, "Consumer", refused)
        told = await told_of(ledger, lambda told: told.error is not None)
        assert told.error is not None
        assert "no such certificate" in told.error.message
        await append(ledger, draft("second"))
        await told_of(ledger, lambda told: told.last_sequence == 2 and told.error is None)
    assert not failures
    # One that has never worked ends with it.
    refusals.clear()
    with world.mirroring() as failures:
        await asyncio.to_thread(wait_until, lambda: failures)
    assert [type(error) for error in failures] == [ConfigError]


async def test_the_record_of_a_commit_that_is_not_taken_is_named_too(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    """Where an administrator has made the topic of commits for less."""
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    for number in range(5):
        await append(ledger, draft(f"small-{number}"))
    # Of two streams, with messages in all partitions of both.
    await append(
        ledger,
        *(draft(f"{stream}-{n}", stream=stream) for n in range(6) for stream in STREAMS),
    )
    await fill(ledger, "behind", [1] * 600)
    await asyncio.to_thread(world.make_topic, world.commits_topic, 1)
    await asyncio.to_thread(world.set_option, world.commits_topic, "max.message.bytes", "440")
    with pytest.raises(MirrorUnavailable) as raised:
        await world.mirror()
    assert raised.value.message == f"a commit is too large for the topic {world.commits_topic}"
    assert_mirrored_upto(world, 5)
