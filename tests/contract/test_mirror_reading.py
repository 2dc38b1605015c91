"""What the mirror reads of a ledger at once: whole commits, and no more than fits."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.contract.events import draft
from tests.contract.mirrored import (
    allow_changes,
    assert_mirrored,
    ledger_and_world,
    rewind,
    told_of,
)
from tests.contract.stores import LedgerHome, all_commits, all_events, append
from tidemark.errors import LedgerDamaged, LedgerUnavailable
from tidemark.ledger import reading as ledger_reading
from tidemark.ledger.port import CommitRow, CopyState, LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.mirror import ahead
from tidemark.mirror.ahead import Ahead, CommitReader, Read
from tidemark.mirror.succession import BEGINNING, head_after


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
    monkeypatch.setattr(ahead, "MOST_EVENTS", most_events)
    monkeypatch.setattr(ahead, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(ahead, "PAGE_BYTES", most_bytes // 2)
    monkeypatch.setattr(ahead, "FIRST_PAGE_EVENTS", 2)
    monkeypatch.setattr(ahead, "FIRST_COMMITS", 2)
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
        chunk = found.chunk({})
        first, last = chunk.commits[0].first_sequence, chunk.commits[-1].last_sequence
        # The last page was read while there was room for it, or the first commit was not whole.
        before = found.texts[:-1]
        end_of_first = chunk.commits[0].last_sequence - first + 1
        has_room = sum(text.size for text in before) < most_bytes
        assert has_room or sum(text.event_count for text in before) < end_of_first
        assert all(len(text.columns["data"]) <= most_text_bytes for text in found.texts)
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
    with pytest.raises(LedgerDamaged, match="the event 2 is too large"):
        await CommitReader(ledger).after(0)


class FailsAfter(CommitReader):
    """Reads so often, and then the ledger is away."""

    def __init__(self, ledger: LedgerStore, reads: int) -> None:
        super().__init__(ledger)
        self._left = reads

    async def behind(self, before: Head) -> Read:
        if not self._left:
            raise LedgerUnavailable("away")
        self._left -= 1
        return await super().behind(before)


def begin_here() -> Callable[[Coroutine[Any, Any, Any]], Future[Any]]:
    loop = asyncio.get_running_loop()
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop)


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_ahead_is_the_same_whenever_it_is_made_ready(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 4)
    ledger = await home.open()
    for number in range(12):
        await append(ledger, *(draft(f"{number}-{n}") for n in range(3)))
    rows = await all_events(ledger)
    source = random.Random(seed)
    coming = Ahead(CommitReader(ledger), BEGINNING, {}, begin_here())
    keys: list[str] = []

    async def perhaps_make_ready() -> None:
        for _ in range(source.randrange(3)):
            await asyncio.sleep(source.choice([0, 0.02]))
            await asyncio.to_thread(coming.make_ready)

    await perhaps_make_ready()
    while (chunk := await asyncio.to_thread(coming.take)).commits:
        keys += [json.loads(value)["idempotencyKey"] for value in chunk.messages.values]
        await perhaps_make_ready()
    assert keys == [row.idempotency_key for row in rows]
    await perhaps_make_ready()
    assert not (await asyncio.to_thread(coming.take)).commits
    coming.close()


async def test_of_commits_that_are_large_by_themselves_only_the_next_is_read_ahead(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an imported history: each is read whole, and there may be room for few."""
    monkeypatch.setattr(ahead, "MOST_EVENTS", 2)
    ledger = await home.open()
    for number in range(6):
        await append(ledger, *(draft(f"{number}-{n}") for n in range(5)))
    reader = CommitReader(ledger)
    read: list[int] = []
    one_more = asyncio.Event()
    honest = reader.behind

    async def noted(before: Head) -> Read:
        found = await honest(before)
        read.extend(commit.last_sequence for commit in found.commits)
        one_more.set()
        return found

    monkeypatch.setattr(reader, "behind", noted)
    for most_bytes, ahead_of_it in ((1, 1), (1 << 20, 3)):
        monkeypatch.setattr(ahead, "MOST_BYTES", most_bytes)
        read.clear()
        coming = Ahead(reader, BEGINNING, {}, begin_here())
        for number in range(1, 7):
            chunk = await asyncio.to_thread(coming.take)
            assert chunk.commits[-1].last_sequence == 5 * number
            expected = min(6, number + ahead_of_it)
            async with asyncio.timeout(30):
                while len(read) < expected:
                    await one_more.wait()
                    one_more.clear()
            # There is time for more.
            await asyncio.sleep(0.1)
            await asyncio.to_thread(coming.make_ready)
            assert len(read) == expected
        assert not (await asyncio.to_thread(coming.take)).commits
        coming.close()


async def test_what_is_read_ahead_ends_with_who_wanted_it(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 2)
    monkeypatch.setattr(ahead, "MOST_BYTES", 1)
    ledger = await home.open()
    for number in range(6):
        await append(ledger, *(draft(f"{number}-{n}") for n in range(5)))
    before = asyncio.all_tasks()
    coming = Ahead(CommitReader(ledger), BEGINNING, {}, begin_here())
    await asyncio.to_thread(coming.take)
    await asyncio.sleep(0.2)
    assert asyncio.all_tasks() > before
    coming.close()
    _, unfinished = await asyncio.wait(asyncio.all_tasks() - before, timeout=10)
    assert not unfinished


async def test_what_fails_ahead_is_told_when_it_is_its_turn(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 1)
    ledger = await home.open()
    for number in range(4):
        await append(ledger, draft(f"{number}"))
    coming = Ahead(FailsAfter(ledger, 2), BEGINNING, {}, begin_here())
    for _ in range(2):
        chunk = await asyncio.to_thread(coming.take)
        assert len(chunk.events.values) == 1
        await asyncio.sleep(0.1)
        await asyncio.to_thread(coming.make_ready)
    with pytest.raises(LedgerUnavailable, match="away"):
        await asyncio.to_thread(coming.take)
    coming.close()


async def test_what_cannot_be_sent_next_does_not_keep_from_sending_this(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next is made ready in the middle of a transaction."""
    monkeypatch.setattr(ahead, "MOST_EVENTS", 1)
    ledger = await home.open()
    for number in range(2):
        await append(ledger, draft(f"{number}"))

    class KnowsOne(dict[str, Any]):
        """The partitions of streams, until there is one event that has none."""

        def __contains__(self, stream: object) -> bool:
            raise LookupError(stream)

    partitions: dict[str, Any] = {}
    coming = Ahead(CommitReader(ledger), BEGINNING, partitions, begin_here())
    await asyncio.to_thread(coming.take)
    coming._partitions = KnowsOne()
    await asyncio.sleep(0.1)
    await asyncio.to_thread(coming.make_ready)
    with pytest.raises(LookupError):
        await asyncio.to_thread(coming.take)
    coming.close()


@pytest.mark.parametrize("at_once", [1, 1_000])
@pytest.mark.parametrize("gone", [0, 2, 5])
async def test_a_commit_that_is_missing_is_noticed_wherever_reading_begins(
    at_once: int, gone: int, home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one without events: 2 of them is a tick."""
    monkeypatch.setattr(ahead, "MOST_EVENTS", at_once)
    monkeypatch.setattr(ahead, "FIRST_COMMITS", at_once)
    ledger = await home.open()
    for number, size in enumerate([2, 3, 0, 1, 4, 2, 1]):
        if size:
            await append(ledger, *(draft(f"{number}-{n}") for n in range(size)))
        else:
            await ledger.tick(0)
    commits = await all_commits(ledger)
    await allow_changes(home, "commits")
    await home.sql(f"DELETE FROM commits WHERE received_at = {commits[gone].received_at}")
    coming = Ahead(CommitReader(ledger), BEGINNING, {}, begin_here())
    read: list[CommitRow] = []

    async def read_all() -> None:
        while (chunk := await asyncio.to_thread(coming.take)).commits:
            read.extend(chunk.commits)

    with pytest.raises(LedgerDamaged):
        await read_all()
    assert read == commits[: len(read)]
    assert len(read) <= gone
    coming.close()


async def test_events_that_are_not_those_of_their_commit_are_noticed(home: LedgerHome) -> None:
    """The ledger may be replaced after its commits were read, and before its events are."""
    ledger = await home.open()
    for number in range(4):
        await append(ledger, *(draft(f"{number}-{n}", f"{number}{n}") for n in range(2)))
    await allow_changes(home, "events")
    other = "(SELECT content_hash FROM events WHERE ingress_sequence = 2)"
    await home.sql(f"UPDATE events SET content_hash = {other} WHERE ingress_sequence = 5")
    [_, second, third, _] = await all_commits(ledger)
    read = await CommitReader(ledger).behind(head_after(second))
    with pytest.raises(LedgerDamaged, match="is not that of its events"):
        read.spelt()
    assert (await CommitReader(ledger).behind(head_after(third))).spelt().commits


async def test_a_ledger_that_is_rewound_under_a_mirror_is_not_mirrored_on_top_of_the_old(
    home: LedgerHome, tmp_path: Path
) -> None:
    """As when a server takes over that did not get all of it, and clients connect to that one."""
    ledger, world = await ledger_and_world(home, tmp_path)
    await append(ledger, *(draft(f"first-{n}") for n in range(3)))
    [first] = await all_commits(ledger)
    with world.mirroring() as failures:
        await append(ledger, *(draft(f"lost-{n}") for n in range(2)))
        await told_of(ledger, lambda told: told.last_sequence == 5)
        expected = await asyncio.to_thread(world.read)
        await rewind(home, first)
        for number in range(4):
            await append(ledger, draft(f"new-{number}"))
        told = await told_of(ledger, lambda told: told.error is not None and "hold 5" in said(told))
        assert told.error is not None
        assert told.error.code == "mirror_refused"
    assert not failures
    assert await asyncio.to_thread(world.read) == expected


def said(told: CopyState) -> str:
    return "" if told.error is None else told.error.message


async def test_a_ledger_that_cannot_be_mirrored_is_told_of_until_it_is_mended(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, draft("first"), draft("second"))

    async def write(tenant: bytes) -> None:
        """As somebody with the file in his hands could."""
        changed = f"SET tenant_id = CAST(x'{tenant.hex()}' AS TEXT) WHERE ingress_sequence = 2"
        await sqlite_home.sql(f"UPDATE events {changed}")

    await sqlite_home.sql("DROP TRIGGER events_no_update")
    await write(b"\xff")
    with world.mirroring() as failures:
        told = await told_of(ledger, lambda state: state.error is not None)
        assert told.error is not None
        assert told.error.code == "ledger_damaged"
        assert "events after 0 cannot be read" in told.error.message
        # It goes on telling, so that nobody takes it for dead.
        await told_of(ledger, lambda now: now.told_at > told.told_at)
        await write(b"acme")
        await told_of(ledger, lambda state: state.last_sequence == 2 and state.error is None)
        assert not failures
    await assert_mirrored(world, ledger)
