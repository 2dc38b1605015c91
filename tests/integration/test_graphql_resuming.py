"""Subscribers that come back: after a break, after a crash of the server, after a stop of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from typing import TypeAlias

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.services.graphql_socket import GraphqlSocket, Message, connected, opened
from tests.services.live_server import LiveServer, position
from tests.services.tidemark_server import TidemarkServer

WANTED = {"quantity": {"_gte": "5"}}
SYMBOLS = 20

Transition: TypeAlias = tuple[str, str, str | None, int]
"""Operation, symbol, quantity and time."""


@pytest.fixture(scope="module")
def live(store_url: str | None) -> Iterator[LiveServer]:
    with LiveServer(env={"TIDEMARK_LIVE__HEARTBEAT": "1s"}, store_url=store_url) as live:
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


class History:
    """Random changes of one account, and what they mean to one who wants large quantities."""

    def __init__(self, live: LiveServer, account: str) -> None:
        self.live = live
        self.account = account
        self.transitions: list[Transition] = []
        self._dice = random.Random(account)
        self._rows: dict[str, int] = {}

    def commit(self, times: int = 1) -> int:
        for _ in range(times):
            self._commit()
        return self.live.received_at

    def _commit(self) -> None:
        touched = self._dice.sample(range(SYMBOLS), self._dice.randint(1, 4))
        rows, deleted, meant = [], [], []
        for symbol in map(str, touched):
            before = self._rows.get(symbol)
            if before is not None and self._dice.random() < 0.2:
                deleted.append(position(self.account, symbol, str(before)))
                after = None
                del self._rows[symbol]
            else:
                after = self._rows[symbol] = self._dice.randint(0, 9)
                rows.append(position(self.account, symbol, str(after)))
            meant.append((symbol, before, after))
        at = self.live.commit(rows, deleted=deleted)
        for symbol, before, after in meant:
            was, is_now = (value is not None and value >= 5 for value in (before, after))
            if is_now and before != after:
                self.transitions.append(("UPDATE" if was else "INSERT", symbol, str(after), at))
            elif was and not is_now:
                self.transitions.append(("DELETE", symbol, None, at))

    def add(self, symbol: str) -> None:
        """One more row that is wanted: who hears of it is being told, or has been told all."""
        self._rows[symbol] = 9
        at = self.live.commit([position(self.account, symbol, "9")])
        self.transitions.append(("INSERT", symbol, "9", at))

    @property
    def wanted(self) -> dict[str, str]:
        return {symbol: str(value) for symbol, value in self._rows.items() if value >= 5}


class Reader:
    """Folds what it is sent across connections, and resumes as the guide says."""

    def __init__(self, account: str, *, progress: bool) -> None:
        self.where = {"account": {"_eq": account}} | WANTED
        self.progress = progress
        self.rows: dict[str, str] = {}
        self.heard: list[Transition] = []
        self.last_progress: int | None = None
        self.last_seen: int | None = None
        self.repeats = 0
        self.began = asyncio.Event()
        self._changed_at: dict[str, int] = {}

    async def subscribe(self, client: GraphqlSocket) -> None:
        after = self.last_progress
        if not self.progress and self.last_seen is not None:
            after = self.last_seen - 1
        await client.subscribe(
            where=self.where, progress=self.progress, after=None if after is None else str(after)
        )

    def hear(self, update: Message) -> None:
        operation, at = update["operation"], int(update["ts_timestamp"])
        if operation == "PROGRESS":
            assert self.last_progress is None or at >= self.last_progress
            self.last_progress = at
            return
        assert self.last_progress is None or at > self.last_progress
        self.last_seen = at
        symbol, quantity = update["data"]["symbol"], update["data"]["quantity"]
        if at <= self._changed_at.get(symbol, -1):
            self.repeats += 1
            return
        self._changed_at[symbol] = at
        self.heard.append((operation, symbol, quantity, at))
        self.began.set()
        if operation == "DELETE":
            self.rows.pop(symbol, None)
        else:
            self.rows[symbol] = quantity

    async def read_until(self, client: GraphqlSocket, received_at: int) -> None:
        while self.last_progress is None or self.last_progress < received_at:
            self.hear(await client.update())

    async def read_rows(self, client: GraphqlSocket, count: int) -> None:
        while len(self.heard) < count:
            self.hear(await client.update())


async def test_one_who_resumes_by_progress_gets_what_it_missed_and_nothing_else(
    live: LiveServer,
) -> None:
    history, reader = History(live, "by-progress"), Reader("by-progress", progress=True)
    async with connected(live.url) as client:
        await reader.subscribe(client)
        await reader.read_until(client, live.received_at)
        await reader.read_until(client, history.commit(5))
    history.commit(30)
    async with connected(live.url) as client:
        await reader.subscribe(client)
        await reader.read_until(client, live.received_at)
        await reader.read_until(client, history.commit(5))
    assert reader.rows == history.wanted
    assert in_order(reader.heard) == in_order(history.transitions)
    assert reader.repeats == 0


async def test_one_who_resumes_by_timestamp_drops_what_it_knows_and_misses_nothing(
    live: LiveServer,
) -> None:
    history, reader = History(live, "by-time"), Reader("by-time", progress=False)
    async with connected(live.url) as client:
        history.add("the beginning")
        await reader.subscribe(client)
        await reader.read_rows(client, 1)
        history.commit(5)
        # Cut off in the middle of what it is being told.
        await reader.read_rows(client, len(history.transitions) - 1)
    history.commit(30)
    async with connected(live.url) as client:
        await reader.subscribe(client)
        await reader.read_rows(client, len(history.transitions))
    assert reader.rows == history.wanted
    assert in_order(reader.heard) == in_order(history.transitions)


async def test_a_server_that_is_killed_again_and_again_loses_and_repeats_nothing(
    live: LiveServer,
) -> None:
    history = History(live, "killed")
    readers = [Reader("killed", progress=True), Reader("killed", progress=False)]
    history.commit()
    assert len(history.transitions) == 1, "else they would not have all of it when they begin"
    stop, written = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        while not stop.is_set() or len(history.transitions) <= 100:
            await asyncio.to_thread(history.commit)
            await asyncio.sleep(0.001)

    async def read(reader: Reader) -> None:
        while not (written.is_set() and len(reader.heard) >= len(history.transitions)):
            try:
                async with connected(live.url) as client:
                    await reader.subscribe(client)
                    while True:
                        reader.hear(await client.update())
                        if written.is_set() and len(reader.heard) >= len(history.transitions):
                            return
            except (OSError, InvalidStatus, ConnectionClosed):
                await asyncio.sleep(0.05)

    reading = [asyncio.create_task(read(reader)) for reader in readers]
    async with asyncio.timeout(30):
        await asyncio.gather(*(reader.began.wait() for reader in readers))
        writing = asyncio.create_task(write())
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(live.server.kill)
            await asyncio.to_thread(live.start)
        await asyncio.sleep(0.3)
        stop.set()
        await writing
        written.set()
        history.add("the end")
        await asyncio.gather(*reading)
    for reader in readers:
        assert reader.rows == history.wanted
        assert in_order(reader.heard) == in_order(history.transitions)


async def test_a_server_that_stops_sends_what_waits_and_says_to_come_again(
    live: LiveServer,
) -> None:
    fat = "x" * 4_000
    reader = Reader("stopped", progress=True)
    async with connected(live.url, slow=True) as client, connected(live.url) as idle:
        await client.subscribe(where=reader.where)
        reader.hear(await client.update())
        # More than fits into what lies between the two.
        for number in range(100):
            live.commit([position("stopped", f"{n}-{fat}", str(number + 5)) for n in range(50)])
        before = live.received_at
        await asyncio.sleep(0.5)
        os.kill(live.server.pid, signal.SIGTERM)
        # It has long heard that it shall stop when this one begins to read.
        await asyncio.sleep(1)
        with pytest.raises(ConnectionClosed) as closed:
            await reader.read_until(client, before + 1)
        assert (await idle.closed())[0] == 1001
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    assert reader.last_progress == before
    assert set(reader.rows.values()) == {"104"}
    assert live.server.wait_for_exit() == 0

    at = live.commit([position("stopped", f"0-{fat}", "77")])
    live.start()
    async with connected(live.url) as client:
        await reader.subscribe(client)
        [update] = await client.updates_until(at)
    assert update["data"]["quantity"] == "77"


async def test_progress_comes_with_every_heartbeat_to_those_who_want_it(live: LiveServer) -> None:
    async with connected(live.url) as client:
        await client.subscribe("told", where={"account": {"_eq": "quiet"}})
        await client.subscribe("not", where={"account": {"_eq": "quiet"}}, progress=False)
        await client.update("told")
        at = live.commit([position("loud")])
        update = await client.update("told")
        assert update == {
            "operation": "PROGRESS", "data": None, "fields": [], "ts_timestamp": str(at)
        }  # fmt: skip
        # Also when nothing has happened, so a client knows that its server is there.
        assert await client.update("told") == update


@pytest.mark.parametrize("after", ["soon", "", "-1", "1.5", "1" * 40, "１２"])
async def test_what_is_no_timestamp_cannot_be_resumed_from(live: LiveServer, after: str) -> None:
    async with connected(live.url) as client:
        await client.subscribe(after=after)
        error = await client.error()
    assert error["extensions"]["field"] == "after"


async def test_the_future_cannot_be_resumed_from(live: LiveServer) -> None:
    async with connected(live.url) as client:
        await client.subscribe(after=str(live.received_at + 1))
        error = await client.error()
        assert error["extensions"]["code"] == "cannot_resume"
        assert error["extensions"]["field"] == "after"
        await client.subscribe(after=str(live.received_at), where={"account": {"_eq": "nobody"}})
        assert (await client.update())["operation"] == "PROGRESS"


async def test_what_the_log_has_forgotten_cannot_be_resumed_from(live: LiveServer) -> None:
    first = live.commit([position("forgotten")])
    live.commit([position("forgotten", quantity="2")])
    third = live.commit([position("forgotten", quantity="3")])
    live.prune(third)
    async with connected(live.url) as client, connected(live.url) as other:
        where = {"account": {"_eq": "forgotten"}}
        await client.subscribe(after=str(first - 1), where=where)
        # One that begins anew in the same moment is not drawn into it.
        await other.subscribe(where=where)
        error = await client.error()
        assert error["extensions"]["code"] == "cannot_resume"
        assert error["extensions"]["field"] == "after"
        assert "without `after`" in error["extensions"]["hint"]
        assert (await other.update())["data"]["quantity"] == "3"
        await other.update()
        await client.subscribe(after=str(third - 1), where=where)
        assert (await client.update())["ts_timestamp"] == str(third)
        at = live.commit([position("forgotten", quantity="4")])
        assert len(await other.updates_until(at)) == 1


async def test_before_there_is_a_view_a_websocket_is_refused() -> None:
    with TidemarkServer() as server:
        with pytest.raises(InvalidStatus) as refused:
            async with opened(f"{server.websocket_url}/graphql"):
                pass
        response = refused.value.response
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert b"views_not_ready" in (response.body or b"")


def in_order(transitions: list[Transition]) -> list[Transition]:
    """Those of one commit are in no order of their own."""
    times = [at for *_, at in transitions]
    assert times == sorted(times)
    return sorted(transitions, key=lambda one: (one[3], one[1]))
