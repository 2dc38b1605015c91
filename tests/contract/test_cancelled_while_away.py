"""PostgreSQL goes away in the middle of a transaction of a task that is just being cancelled: it
ends, however often it would try again otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import pytest

from tests.contract.stores import LedgerHome
from tests.contract.test_postgres_outages import cut_all_sessions
from tests.contract.triggers_home import TriggersHome
from tests.contract.views_home import ViewsHome
from tests.services.postgres import PostgresServer
from tidemark.errors import TidemarkError
from tidemark.live.errors import TriggersUnavailable
from tidemark.live.triggers import leading
from tidemark.live.triggers.leading import while_leading
from tidemark.views.port import RowFilter

Home: TypeAlias = LedgerHome | ViewsHome | TriggersHome

WITHIN_S: Final = 20.0
AGAIN_S: Final = 0.01
OUTAGES: Final = 40
WAITING: Final = "FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

# How each is opened, what has to be locked, and what then waits for it in a transaction.
STORES: Final[dict[str, tuple[Callable[[str], Home], str, Callable[[Any], Awaitable[object]]]]] = {
    "ledger": (
        LedgerHome,
        "SELECT FROM tidemark.ledger FOR UPDATE",
        lambda ledger: ledger.confirm_clock(),
    ),
    "views": (
        ViewsHome,
        "LOCK TABLE tidemark_views.views",
        lambda views: views.read_rows("none", RowFilter(), after=None, limit=1),
    ),
    "triggers": (
        TriggersHome,
        "LOCK TABLE tidemark_triggers.triggers",
        lambda triggers: triggers.listed(),
    ),
}


async def until_one_waits(server: PostgresServer) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not server.execute(f"SELECT 1 {WAITING}"):
        assert time.monotonic() < deadline, "nobody waits for the lock"
        await asyncio.sleep(AGAIN_S)


def end_who_waits(server: PostgresServer) -> None:
    """Without a turn for the loop: it finds out afterwards."""
    server.execute(f"SELECT pg_terminate_backend(pid) {WAITING}")
    deadline = time.monotonic() + WITHIN_S
    while server.execute(f"SELECT 1 {WAITING}"):
        assert time.monotonic() < deadline, "the sessions are still there"


@pytest.mark.parametrize("name", STORES)
async def test_who_tries_again_for_ever_ends_when_cancelled(
    name: str, second_postgres: PostgresServer
) -> None:
    home_at, lock, ask = STORES[name]
    url = second_postgres.create_database()
    home = home_at(url)
    store = await home.open()
    refused: list[TidemarkError] = []

    async def ask_for_ever() -> None:
        while True:
            try:
                await ask(store)
            except TidemarkError as error:
                refused.append(error)
            await asyncio.sleep(AGAIN_S)

    asking = asyncio.create_task(ask_for_ever())
    with second_postgres.held(url, lock):
        await until_one_waits(second_postgres)
        end_who_waits(second_postgres)
        asking.cancel()
        done, _ = await asyncio.wait({asking}, timeout=WITHIN_S)
    asking.cancel()
    assert done == {asking}
    assert asking.cancelled()
    assert refused == []
    # Who is not cancelled is told as ever.
    asking = asyncio.create_task(ask_for_ever())
    with second_postgres.held(url, lock):
        await until_one_waits(second_postgres)
        end_who_waits(second_postgres)
        await until_one_waits(second_postgres)
        assert len(refused) == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await home.close()


async def test_triggers_are_worked_on_again_after_all_sessions_were_lost_at_once(
    second_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "RETRY_S", AGAIN_S)
    url = second_postgres.create_database()
    home = TriggersHome(url)
    triggers = await home.open()
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def ask_for_ever() -> None:
        while True:
            try:
                await triggers.listed()
            except TriggersUnavailable:
                await asyncio.sleep(AGAIN_S)

    async def work() -> None:
        await begun.put(None)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(ask_for_ever())

    working = asyncio.create_task(while_leading(triggers, work))
    for _ in range(OUTAGES):
        await asyncio.wait_for(begun.get(), WITHIN_S)
        # In the middle of something.
        await asyncio.sleep(AGAIN_S)
        await asyncio.to_thread(cut_all_sessions, second_postgres)
    await asyncio.wait_for(begun.get(), WITHIN_S)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await home.close()
