"""A transaction of the mirror that fails: nothing counted twice, and nothing held on to."""

from __future__ import annotations

import contextlib
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.contract.mirrored import assert_mirrored, fill, ledger_and_world
from tests.contract.stores import LedgerHome
from tidemark.mirror import sending
from tidemark.mirror.errors import MirrorUnavailable
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
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
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
        last = last_commit(consumer, f"{world.prefix}tidemark.commits")
    assert last is not None
    assert sum(int(total) for total in last.totals.values()) == 5
    await fill(ledger, "second", [4])
    await world.mirror()
    await assert_mirrored(world, ledger)
