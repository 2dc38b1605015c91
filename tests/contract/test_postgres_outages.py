"""PostgreSQL goes away in every way it can: a retryable error, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import TypeVar

import pytest

from tests.contract.appender import Unobserved
from tests.contract.events import draft, drafts, request, statuses
from tests.contract.frozen import frozen
from tests.contract.stores import (
    EVERYTHING,
    Ledger,
    LedgerHome,
    all_commits,
    all_events,
    append,
    keys_in_order,
)
from tests.services.postgres import PostgresServer
from tidemark.errors import LedgerUnavailable
from tidemark.ingress.drafts import no_corrections
from tidemark.ledger import postgres as postgres_store
from tidemark.ledger.group_commit import GroupCommitter
from tidemark.ledger.port import EventFilter, RejectFilter
from tidemark.ledger.sequencer import GENESIS_CHAIN, extend_chain

T = TypeVar("T")

SENDERS = 4
RETRY_S = 0.01
POLL_S = 0.005
BACK_WITHIN_S = 30.0


@pytest.fixture
async def remote(second_postgres: PostgresServer) -> AsyncIterator[LedgerHome]:
    """A ledger on a server that the test may take away."""
    second_postgres.execute("DROP SCHEMA IF EXISTS tidemark CASCADE")
    place = LedgerHome(second_postgres.url())
    yield place
    await place.close()


def cut_all_sessions(server: PostgresServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )


def kill_and_start(server: PostgresServer) -> None:
    server.kill()
    server.start()


OUTAGES: dict[str, Callable[[PostgresServer], None]] = {
    "its sessions are cut": cut_all_sessions,
    "it is restarted": PostgresServer.restart,
    "it crashes": lambda server: server.restart("immediate"),
    "it is killed": kill_and_start,
}


class Traffic:
    """Senders that retry with the same keys until they have an answer, and remember what it was."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._committer = GroupCommitter(
            ledger, no_corrections, Unobserved(), max_group_events=100, max_queued_events=1_000
        )
        self._stopping = False
        self.acknowledged: dict[str, int] = {}
        self.errors: list[LedgerUnavailable] = []

    async def run(self, disturb: Callable[[], None], times: int) -> None:
        self._committer.start()
        senders = [asyncio.create_task(self._send(sender)) for sender in range(SENDERS)]
        disturbances = 0
        while disturbances < times or (not self.errors and disturbances < 10 * times):
            disturbances += 1
            known = len(self.acknowledged)
            await self._until_more_than(known + 20)
            await asyncio.to_thread(disturb)
        await self._until_more_than(len(self.acknowledged) + 20)
        self._stopping = True
        await asyncio.gather(*senders)
        await self._committer.close()

    async def _until_more_than(self, acknowledged: int) -> None:
        deadline = time.monotonic() + BACK_WITHIN_S
        while len(self.acknowledged) <= acknowledged:
            assert time.monotonic() < deadline, "ingest did not come back"
            await asyncio.sleep(POLL_S)

    async def _send(self, sender: int) -> None:
        for number in count():
            if self._stopping:
                return
            keys = [f"{sender}-{number}-{i}" for i in range(5)]
            submission = request(*drafts(*keys))
            outcomes = await until_answered(
                lambda submission=submission: self._committer.append(submission),  # type: ignore[misc]
                self.errors,
            )
            for key, outcome in zip(keys, outcomes, strict=True):
                # A duplicate: it was committed, but the answer was lost with the connection.
                assert outcome.status in ("accepted", "duplicate")
                assert outcome.ingress_sequence is not None
                self.acknowledged[key] = outcome.ingress_sequence


async def until_answered(
    send: Callable[[], Awaitable[T]], errors: list[LedgerUnavailable], attempts: int | None = None
) -> T:
    """Retries as a client does; `errors` takes what it was told meanwhile."""
    for attempt in count(1):
        try:
            async with asyncio.timeout(BACK_WITHIN_S):
                return await send()
        except LedgerUnavailable as error:
            errors.append(error)
            if attempt == attempts:
                raise
            await asyncio.sleep(RETRY_S)
    raise AssertionError("counting has no end")


@pytest.mark.parametrize("outage", OUTAGES)
async def test_nothing_acknowledged_is_lost_when(
    remote: LedgerHome, second_postgres: PostgresServer, outage: str
) -> None:
    ledger = await remote.open()
    traffic = Traffic(ledger)
    await traffic.run(lambda: OUTAGES[outage](second_postgres), times=3)

    assert traffic.errors, "the outage was not noticed, so nothing was tested"
    for error in traffic.errors:
        assert error.code == "ledger_unavailable"
        assert "same keys" in error.hint
    events = await until_answered(lambda: all_events(ledger), [])
    assert [event.ingress_sequence for event in events] == list(range(1, len(events) + 1))
    stored = {event.idempotency_key: event.ingress_sequence for event in events}
    assert stored == traffic.acknowledged
    chain = GENESIS_CHAIN
    for commit in await all_commits(ledger):
        of_commit = events[commit.first_sequence - 1 : commit.last_sequence]
        chain = extend_chain(chain, (event.content_hash for event in of_commit))
        assert commit.chain == chain
    assert (await ledger.head()).chain == chain


async def test_while_the_server_is_away_everything_says_so_and_then_works_again(
    remote: LedgerHome, second_postgres: PostgresServer
) -> None:
    ledger = await remote.open()
    await append(ledger, draft("a"))
    second_postgres.stop()
    asked = [
        lambda: append(ledger, draft("b")),
        lambda: ledger.tick(0),
        ledger.head,
        lambda: ledger.read_events(EventFilter(), 0, EVERYTHING),
        lambda: ledger.find_event("acme", "a"),
        lambda: ledger.read_commits(0, 1),
        lambda: ledger.read_rejects(RejectFilter(), 1),
        ledger.confirm_clock,
        remote.migrate,
        remote.open,
    ]
    for ask in asked:
        with pytest.raises(LedgerUnavailable) as caught:
            await ask()  # type: ignore[operator]
        assert caught.value.hint
    second_postgres.start()
    assert statuses(await append(ledger, *drafts("a", "b"))) == ["duplicate", "accepted"]
    assert await keys_in_order(ledger) == ["a", "b"]


async def test_a_commit_whose_answer_was_lost_comes_back_as_a_duplicate(
    remote: LedgerHome, second_postgres: PostgresServer
) -> None:
    """Retrying is safe whatever became of the first attempt."""
    ledger = await remote.open()
    outcomes = []
    for number in range(30):
        keys = (f"{number}-a", f"{number}-b")
        cutting = asyncio.create_task(cut_after(0.0005 * (number % 8), second_postgres))
        # Every connection of the pool may have been cut: each costs one attempt.
        outcomes.append(
            await until_answered(
                lambda keys=keys: append(ledger, *drafts(*keys)),  # type: ignore[misc]
                [],
                attempts=postgres_store.WRITER_CONNECTIONS + 2,
            )
        )
        await cutting
    events = await until_answered(
        lambda: all_events(ledger), [], attempts=postgres_store.READER_CONNECTIONS + 2
    )
    assert len(events) == 60
    for one, two in outcomes:
        assert one.status == two.status
        assert one.ingress_sequence is not None
        assert two.ingress_sequence == one.ingress_sequence + 1


async def cut_after(seconds: float, server: PostgresServer) -> None:
    await asyncio.sleep(seconds)
    await asyncio.to_thread(cut_all_sessions, server)


async def test_a_server_that_hangs_is_not_waited_for_without_end(
    remote: LedgerHome, second_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "COMMAND_TIMEOUT_S", 0.5)
    monkeypatch.setattr(postgres_store, "CONNECT_TIMEOUT_S", 0.5)
    ledger = await remote.open()
    await append(ledger, draft("a"))
    with frozen(second_postgres):
        started = time.monotonic()
        for key in ("b", "c", "d"):
            with pytest.raises(LedgerUnavailable):
                await append(ledger, draft(key))
        assert time.monotonic() - started < 20
    outcomes = await until_answered(lambda: append(ledger, *drafts("a", "b", "c", "d")), [])
    assert outcomes[0].status == "duplicate"
    assert sorted(await keys_in_order(ledger)) == ["a", "b", "c", "d"]
