"""Many requests, one transaction, over a real store: what a request can rely on."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

import asyncpg
import pytest

from tests.contract.events import draft, drafts, rejection, request, statuses
from tests.contract.stores import (
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append_all,
    keys_in_order,
)
from tidemark.errors import LedgerUnavailable, QueueFull, TidemarkError
from tidemark.ingress.drafts import (
    Correction,
    CorrectionResolver,
    Draft,
    Original,
    Outcome,
    Rejection,
    Submission,
    no_corrections,
)
from tidemark.ledger import postgres, sqlite_connection
from tidemark.ledger.group_commit import GroupCommitter
from tidemark.ledger.port import RejectFilter

# What no database stores as text; ingress lets no such thing through.
UNSTORABLE = '"\ud800"'


class Gate:
    """A store whose commits wait until the test lets them through."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.writers = ledger.writers
        self.open = asyncio.Event()

    async def append_group(
        self, submissions: Sequence[Submission], resolve: CorrectionResolver
    ) -> list[list[Outcome]]:
        await self.open.wait()
        return await self._ledger.append_group(submissions, resolve)

    async def refuses(self, submission: Submission, resolve: CorrectionResolver) -> list[bool]:
        return await self._ledger.refuses(submission, resolve)


class Tally:
    """Counts what it is told of each group."""

    def __init__(self) -> None:
        self.accepted = 0
        self.last_sequence = 0
        self.failures: list[TidemarkError] = []

    def committed(self, accepted: int, last_sequence: int, seconds: float) -> None:
        assert seconds >= 0
        self.accepted += accepted
        self.last_sequence = max(self.last_sequence, last_sequence)

    def failed(self, error: TidemarkError) -> None:
        self.failures.append(error)


@asynccontextmanager
async def committing(
    store: Ledger | Gate,
    tally: Tally | None = None,
    *,
    resolve: CorrectionResolver = no_corrections,
    max_group_events: int = 10_000,
    max_queued_events: int = 20_000,
) -> AsyncIterator[GroupCommitter]:
    committer = GroupCommitter(
        store,  # type: ignore[arg-type]
        resolve,
        tally or Tally(),
        max_group_events=max_group_events,
        max_queued_events=max_queued_events,
    )
    committer.start()
    yield committer
    await committer.close()


def send(
    committer: GroupCommitter, *entries: Draft | Correction | Rejection
) -> asyncio.Task[list[Outcome]]:
    return asyncio.create_task(committer.append(request(*entries)))


async def until_queued(committer: GroupCommitter, events: int) -> None:
    deadline = time.monotonic() + 10
    while committer.queued_events != events:
        assert time.monotonic() < deadline, committer.queued_events
        await asyncio.sleep(0)


async def test_requests_that_wait_together_are_committed_together(ledger: Ledger) -> None:
    gate, tally = Gate(ledger), Tally()
    async with committing(gate, tally) as committer:
        first = [send(committer, draft(f"first-{n}")) for n in range(gate.writers)]
        await until_queued(committer, gate.writers)
        waiting = [send(committer, *drafts(f"{n}-a", f"{n}-b")) for n in range(20)]
        await until_queued(committer, gate.writers + 40)
        gate.open.set()
        outcomes = await asyncio.gather(*first, *waiting)
    assert all(outcome.status == "accepted" for of in outcomes for outcome in of)
    assert len(await all_commits(ledger)) <= gate.writers + 1
    assert tally.accepted == tally.last_sequence == gate.writers + 40
    for (one, two), number in zip(outcomes[gate.writers :], range(20), strict=True):
        assert one.ingress_sequence is not None
        assert two.ingress_sequence == one.ingress_sequence + 1
        assert one.received_at == two.received_at
        event = await ledger.find_event("acme", f"{number}-b")
        assert event is not None
        assert event.ingress_sequence == two.ingress_sequence


async def test_a_group_has_no_more_events_than_the_bound_but_never_parts_a_request(
    ledger: Ledger,
) -> None:
    async with committing(ledger, max_group_events=10) as committer:
        sizes = [3, 3, 3, 3, 9, 1, 1, 25, 2]
        await asyncio.gather(
            *(
                send(committer, *drafts(*(f"{number}-{i}" for i in range(size))))
                for number, size in enumerate(sizes)
            )
        )
    commits = await all_commits(ledger)
    counts = [commit.last_sequence - commit.first_sequence + 1 for commit in commits]
    assert sum(counts) == sum(sizes)
    assert all(count <= 10 or count == 25 for count in counts)
    by_request: dict[str, set[int]] = {}
    for event in await all_events(ledger):
        by_request.setdefault(event.idempotency_key.split("-")[0], set()).add(event.received_at)
    assert all(len(times) == 1 for times in by_request.values())


async def test_a_request_that_the_database_refuses_does_not_fail_its_neighbours(
    ledger: Ledger,
) -> None:
    gate, tally = Gate(ledger), Tally()
    async with committing(gate, tally) as committer:
        before = [send(committer, draft(f"first-{n}")) for n in range(gate.writers)]
        await until_queued(committer, gate.writers)
        good = send(committer, *drafts("a", "b"))
        bad = send(committer, draft("c"), rejection("mine"), draft("d", data=UNSTORABLE))
        also_good = send(committer, *drafts("e"))
        await until_queued(committer, gate.writers + 6)
        gate.open.set()
        await asyncio.gather(*before)
        assert statuses(await good) == ["accepted", "accepted"]
        assert statuses(await also_good) == ["accepted"]
        outcomes = await bad
    assert statuses(outcomes) == ["accepted", "rejected", "rejected"]
    codes = [outcome.rejection.code for outcome in outcomes if outcome.rejection]
    assert codes == ["mine", "storage_refused"]
    assert [error.code for error in tally.failures] == ["storage_refused"]
    assert sorted(await keys_in_order(ledger))[:4] == ["a", "b", "c", "e"]
    numbers = [event.ingress_sequence for event in await all_events(ledger)]
    assert numbers == list(range(1, gate.writers + 5))


async def test_only_the_events_that_the_database_refuses_are_rejected_and_they_are_logged(
    ledger: Ledger,
) -> None:
    bad = {3, 4, 11}
    entries = [draft(f"{n}", data=UNSTORABLE if n in bad else f'{{"n":{n}}}') for n in range(13)]
    async with committing(ledger) as committer:
        outcomes = await send(committer, *entries)
    assert [n for n, outcome in enumerate(outcomes) if outcome.status == "rejected"] == sorted(bad)
    assert await keys_in_order(ledger) == [f"{n}" for n in range(13) if n not in bad]
    assert len(await all_commits(ledger)) == 1
    logged = await ledger.read_rejects(RejectFilter(code="storage_refused"), 10)
    assert [(one.position, one.idempotency_key) for one in reversed(logged)] == [
        (n, f"{n}") for n in sorted(bad)
    ]


async def test_to_ask_what_is_refused_stores_nothing(ledger: Ledger) -> None:
    entries = [draft("a"), rejection(), draft("b", data=UNSTORABLE), draft("c")]
    assert await ledger.refuses(request(*entries), no_corrections) == [False, False, True, False]
    assert await all_events(ledger) == []
    assert await all_commits(ledger) == []
    assert await ledger.read_rejects(RejectFilter(), 10) == []
    assert statuses((await append_all(ledger, request(draft("c"))))[0]) == ["accepted"]


async def test_a_constraint_that_stands_in_the_way_is_not_the_senders_fault(
    home: LedgerHome, ledger: Ledger
) -> None:
    """As after something else has written to the ledger's tables."""
    await append_all(ledger, request(draft("a")))
    await home.sql("UPDATE ledger SET last_sequence = 0")
    async with committing(ledger) as committer:
        with pytest.raises(LedgerUnavailable) as caught:
            await send(committer, draft("b"))
    constraint = "events_pkey" if home.kind == "postgres" else "events.ingress_sequence"
    assert constraint in caught.value.message


async def test_names_too_long_for_an_index_are_refused_and_not_tried_again_for_ever(
    postgres_home: LedgerHome,
) -> None:
    ledger = await postgres_home.open()
    long = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(1024))
    async with committing(ledger) as committer:
        results = await asyncio.gather(
            send(committer, draft("a")),
            send(committer, draft("b", metric="m", customer_ref=long)),
            send(committer, draft("c")),
        )
    assert [statuses(result) for result in results] == [["accepted"], ["rejected"], ["accepted"]]


async def test_a_full_queue_refuses_at_once_and_takes_again_when_it_has_room(
    ledger: Ledger,
) -> None:
    gate = Gate(ledger)
    async with committing(gate, max_queued_events=10) as committer:
        taken = send(committer, *drafts(*"abcdefgh"))
        await until_queued(committer, 8)
        with pytest.raises(QueueFull) as caught:
            await committer.append(request(*drafts("x", "y", "z")))
        assert caught.value.code == "queue_full"
        assert "Retry-After" in caught.value.hint
        exactly = send(committer, *drafts("i", "j"))
        await until_queued(committer, 10)
        with pytest.raises(QueueFull):
            await committer.append(request(draft("x")))
        gate.open.set()
        await asyncio.gather(taken, exactly)
        assert statuses(await committer.append(request(*drafts("x", "y", "z")))) == ["accepted"] * 3
        await until_queued(committer, 0)
    assert len(await all_events(ledger)) == 13


async def test_close_commits_what_was_taken_and_takes_nothing_more(ledger: Ledger) -> None:
    gate = Gate(ledger)
    async with committing(gate) as committer:
        tasks = [send(committer, draft(f"key-{number}")) for number in range(9)]
        await until_queued(committer, 9)
        closing_down = asyncio.create_task(committer.close())
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="shutting down"):
            await committer.append(request(draft("late")))
        gate.open.set()
        await closing_down
        assert all(task.done() for task in tasks)
    assert len(await all_events(ledger)) == 9


async def test_a_caller_that_gives_up_leaves_its_events_in_the_ledger(ledger: Ledger) -> None:
    gate = Gate(ledger)
    async with committing(gate) as committer:
        under_way = [send(committer, draft(f"first-{n}")) for n in range(gate.writers)]
        await until_queued(committer, gate.writers)
        waiting, neighbour = send(committer, *drafts("a", "b")), send(committer, draft("c"))
        await until_queued(committer, gate.writers + 3)
        for task in (under_way[0], waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        gate.open.set()
        assert statuses(await neighbour) == ["accepted"]
        await until_queued(committer, 0)
        again = await committer.append(request(*drafts("first-0", "a", "b")))
        assert statuses(again) == ["duplicate"] * 3


@asynccontextmanager
async def somebody_elses_lock(home: LedgerHome) -> AsyncIterator[None]:
    """The ledger is locked by a process that hangs."""
    if home.kind == "sqlite":
        with closing(sqlite3.connect(home.place, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
    else:
        session = await asyncpg.connect(home.url)
        try:
            await session.execute("BEGIN; SELECT * FROM tidemark.ledger FOR UPDATE")
            yield
        finally:
            await session.close()


async def test_a_store_that_fails_is_said_to_all_of_the_group_and_the_next_group_is_tried(
    home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setitem(postgres.WRITER_SETTINGS, "lock_timeout", "200ms")
    ledger, tally = await home.open(), Tally()
    async with committing(ledger, tally) as committer:
        await committer.append(request(draft("before")))
        async with somebody_elses_lock(home):
            results = await asyncio.gather(
                *(send(committer, draft(f"key-{number}")) for number in range(6)),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [LedgerUnavailable] * 6
            assert await keys_in_order(ledger) == ["before"]
        assert [error.code for error in tally.failures] == ["ledger_unavailable"] * len(
            tally.failures
        )
        assert tally.failures
        for number in range(6):
            outcomes = await committer.append(request(draft(f"key-{number}")))
            assert statuses(outcomes) == ["accepted"]
        await until_queued(committer, 0)
    assert [event.ingress_sequence for event in await all_events(ledger)] == list(range(1, 8))


async def test_a_bug_fails_its_own_group_and_not_all_later_ones(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(correction: Correction, original: Original | None) -> Draft | Rejection:
        raise ZeroDivisionError("a bug")

    correction = Correction("acme", "void", "a", None, None, None, None, None)
    async with committing(ledger, resolve=broken) as committer:
        for number in range(2 * ledger.writers):
            with pytest.raises(ZeroDivisionError):
                await committer.append(request(draft("lost"), correction))
            async with asyncio.timeout(10):
                outcomes = await committer.append(request(draft(f"key-{number}")))
            assert statuses(outcomes) == ["accepted"]
    assert "could not be committed" in caplog.text
    assert "lost" not in await keys_in_order(ledger)


async def test_an_empty_request_is_answered(ledger: Ledger) -> None:
    async with committing(ledger) as committer:
        assert await committer.append(request()) == []
    assert await append_all(ledger, request()) == [[]]
