"""Clients that do not read: they converge or are sent away, and cost nobody else anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.services.graphql_socket import GraphqlSocket, connected
from tests.services.live_server import LiveServer, position

# Beside this the rest of an update is small.
FAT = "x" * 4_000
MERGE_ABOVE, CLOSE_ABOVE = 100, 1_000


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    limits = {
        "TIDEMARK_LIVE__MERGE_ABOVE": str(MERGE_ABOVE),
        "TIDEMARK_LIVE__CLOSE_ABOVE": str(CLOSE_ABOVE),
    }
    with LiveServer(env=limits) as live:
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


def only(account: str) -> dict[str, dict[str, str]]:
    return {"account": {"_eq": account}}


def memory_bytes(live: LiveServer) -> int:
    status = Path(f"/proc/{live.server.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def open_sockets(live: LiveServer) -> int:
    count = 0
    for file in Path(f"/proc/{live.server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(file).startswith("socket:")
    return count


def wait_until_few_sockets(live: LiveServer, most: int) -> None:
    deadline = time.monotonic() + 30
    while open_sockets(live) > most:
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Folded:
    """What one client knows."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.updates = 0
        self.last_progress = 0

    async def read_until(self, client: GraphqlSocket, received_at: int) -> None:
        while self.last_progress < received_at:
            await self.read(client)

    async def read(self, client: GraphqlSocket) -> None:
        update = await client.update()
        if update["operation"] == "PROGRESS":
            self.last_progress = int(update["ts_timestamp"])
            return
        self.updates += 1
        symbol = update["data"]["symbol"]
        if update["operation"] == "DELETE":
            del self.rows[symbol]
        else:
            self.rows[symbol] = update["data"]["quantity"]


async def test_what_waits_for_slow_clients_is_merged_and_bounded_and_slows_no_other(
    live: LiveServer,
) -> None:
    rows, commits = 40, 200
    values: dict[int, str] = {}
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        fast = await stack.enter_async_context(connected(live.url))
        slow = [await stack.enter_async_context(connected(live.url, slow=True)) for _ in range(5)]
        for client in (fast, *slow):
            await client.subscribe(where=only("merged"))
            await client.update()
        before = memory_bytes(live)
        for number in range(commits):
            at = live.commit([position("merged", f"{n}-{FAT}", str(number)) for n in range(rows)])
            values[at] = str(number)
            committed = time.monotonic()
            assert len(await fast.updates_until(at)) == rows
            latencies.append(time.monotonic() - committed)
        # Each of them has not read tens of megabytes.
        assert memory_bytes(live) - before < 48_000_000

        for client in slow:
            known = Folded()
            while known.last_progress < live.received_at:
                progress = known.last_progress
                await known.read(client)
                if known.last_progress > progress:
                    assert set(known.rows.values()) == {values[known.last_progress]}
            assert len(known.rows) == rows
            assert known.updates < rows * commits / 2
    assert statistics.median(latencies) < 0.5


async def test_one_who_is_too_slow_is_sent_away_with_a_time_that_it_can_resume_after(
    live: LiveServer,
) -> None:
    sockets = open_sockets(live)
    known = Folded()
    async with (
        connected(live.url, slow=True) as client,
        connected(live.url, slow=True) as never_reads,
        connected(live.url) as fast,
    ):
        for one in (client, never_reads, fast):
            await one.subscribe(where=only("closed"))
            await one.update()
        for number in range(60):
            rows = [position("closed", f"{number}-{n}-{FAT}") for n in range(50)]
            await fast.updates_until(live.commit(rows))
        with pytest.raises(ConnectionClosed) as closed:
            await known.read_until(client, live.received_at + 1)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        said, _, after = closed.value.rcvd.reason.rpartition(" ")
        assert said == "Too slow; resume after"
        assert known.last_progress <= int(after) < live.received_at
        assert len(known.rows) < 3_000

        # One that does not even hear that it is sent away is let go of.
        await asyncio.to_thread(wait_until_few_sockets, live, sockets + 1)
        never_reads.connection.transport.abort()
        at = live.commit([position("closed", "last")])
        assert len(await fast.updates_until(at)) == 1

    known.last_progress = 0
    async with connected(live.url) as client:
        await client.subscribe(where=only("closed"), after=after)
        await known.read_until(client, live.received_at)
    assert len(known.rows) == 3_001


async def test_one_who_resumes_far_behind_is_given_time_to_read(live: LiveServer) -> None:
    first = live.commit([position("behind", "0")])
    for number in range(40):
        live.commit([position("behind", f"{number}-{n}-{FAT}") for n in range(50)])
    known = Folded()
    async with connected(live.url, slow=True) as client:
        await client.subscribe(where=only("behind"), after=str(first))
        await asyncio.sleep(1)
        await known.read_until(client, live.received_at)
    assert len(known.rows) == 40 * 50


async def test_large_snapshots_wait_for_their_readers_and_small_ones_for_nobody(
    live: LiveServer,
) -> None:
    rows = 3_000
    live.commit([position("snapshot", f"{n}-{FAT}") for n in range(rows)])
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connected(live.url, slow=True)) for _ in range(6)]
        other = await stack.enter_async_context(connected(live.url))
        before = memory_bytes(live)
        for client in slow:
            await client.subscribe(where=only("snapshot"))
        await other.subscribe(where=only("snapshot") | {"symbol": {"_eq": f"7-{FAT}"}})
        assert (await other.update())["data"]["account"] == "snapshot"
        # What changes meanwhile comes behind it.
        at = live.commit([position("snapshot", f"0-{FAT}", "2")])
        assert memory_bytes(live) - before < 200_000_000

        async def read_all(client: GraphqlSocket) -> None:
            known = Folded()
            await known.read_until(client, at)
            assert len(known.rows) == rows
            assert known.rows[f"0-{FAT}"] == "2"

        # At once, since nobody says which of them come first.
        await asyncio.gather(*map(read_all, slow))
