"""From the store of views to websockets: how many messages a second, how late, and what they cost.

A real server over a store that this process feeds; the clients are a process of their own.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias

import msgspec

from benchmarks.live.clients import Subscription
from benchmarks.live.driving import COMMITS_PER_S, as_fast_as_taken, at_a_rate, until_all_listen
from benchmarks.live.feed import account
from benchmarks.live.rig import Cell, Rig, Served, Store, Used

VIEW: Final = "trades"
# Enough to have taken every path once.
WARM_UP_CLIENTS: Final = 20
IDLE_SETTLE_S: Final = 1.0
FIELDS: Final = (
    "operation data { trade_id account symbol side quantity price executed_at } fields ts_timestamp"
)


Where: TypeAlias = dict[str, Any]


class Throughput(msgspec.Struct, frozen=True):
    """Every change to every client, committed as fast as they take it."""

    store: Store
    cell: Cell
    messages: int
    seconds: float
    messages_per_read: float
    used: Used

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds


class Lateness(msgspec.Struct, frozen=True):
    """From the beginning of a commit to the client. A client sees its part of the view."""

    store: Store
    clients: int
    rows: int
    changes_per_s: int
    messages: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    joined_in_s: float
    used: Used


class Idle(msgspec.Struct, frozen=True):
    """Subscribers with a filter each that hear of nothing; `joined_in_s` is for all of them."""

    store: Store
    subscribers: int
    rows: int
    joined_in_s: float
    resumed_in_s: float
    mib_before: float
    mib_with: float

    @property
    def kib_each(self) -> float:
        return (self.mib_with - self.mib_before) * 1_024 / self.subscribers


class Delivery(msgspec.Struct, frozen=True):
    throughput: list[Throughput]
    lateness: list[Lateness]
    idle: list[Idle]


async def measure_delivery(rig: Rig) -> Delivery:
    scale = rig.scale
    throughput, lateness, idle = [], [], []
    for store in scale.stores:
        async with rig.served(store, [VIEW], scale.rows, scale.filtered_clients) as served:
            for cell in scale.cells if store == scale.stores[0] else ():
                throughput.append(await _throughput(rig, served, store, cell))
            for clients in (1, scale.filtered_clients):
                lateness.append(await _lateness(rig, served, store, clients))
        # What other measurements leave behind in a process is not the subscribers'.
        async with rig.served(store, [VIEW], scale.rows, scale.idle_clients) as served:
            idle.append(await _idle(rig, served, store))
    return Delivery(throughput, lateness, idle)


async def _throughput(rig: Rig, served: Served, store: Store, cell: Cell) -> Throughput:
    # From where the log ends: a thousand times all the rows there are is another measurement.
    wanted = subscription(VIEW, after=served.feed.received_at)
    await served.clients.join(served.port, [wanted] * cell.clients)
    [view] = served.feed.views

    async def commit() -> int:
        await served.feed.change(view, cell.commit_changes)
        return cell.commit_changes * cell.clients

    await until_all_listen(served.clients, commit, 1)
    ended = await as_fast_as_taken(
        served,
        commit,
        cell.outstanding // cell.commit_changes,
        rig.scale.settle_seconds,
        rig.scale.seconds,
    )
    await served.clients.leave()
    return Throughput(
        store, cell, ended.messages, ended.seconds, ended.messages / ended.reads, ended.used
    )


async def _lateness(rig: Rig, served: Served, store: Store, clients: int) -> Lateness:
    """One client sees everything; of several each sees what no other does."""
    scale = rig.scale
    [view] = served.feed.views
    if clients == 1:
        wanted = [subscription(VIEW)]
    else:
        wanted = [subscription(VIEW, of_account(number)) for number in range(clients)]
    joined_in_s = await served.clients.join(served.port, wanted, scale.rows // clients)

    async def commit() -> int:
        await served.feed.change(view, scale.changes_per_s // COMMITS_PER_S)
        return scale.changes_per_s // COMMITS_PER_S

    ended = await at_a_rate(served, commit, scale.settle_seconds, scale.seconds)
    sampled = await served.clients.leave()
    return Lateness(
        store=store,
        clients=clients,
        rows=scale.rows,
        changes_per_s=scale.changes_per_s,
        messages=sampled.count,
        p50_ms=sampled.p50_ms,
        p99_ms=sampled.p99_ms,
        max_ms=sampled.max_ms,
        joined_in_s=joined_in_s,
        used=ended.used,
    )


async def _idle(rig: Rig, served: Served, store: Store) -> Idle:
    subscribers, clients = rig.scale.idle_clients, served.clients
    rows_each = rig.scale.rows // subscribers
    wheres = [of_account(number) for number in range(subscribers)]
    # PROGRESS comes when all rows have.
    wanted = [subscription(VIEW, where, progress=True) for where in wheres]
    await clients.join(served.port, wanted[:WARM_UP_CLIENTS], rows_each + 1)
    await clients.leave()
    await asyncio.sleep(IDLE_SETTLE_S)
    before = served.rss_mib()
    joined_in_s = await clients.join(served.port, wanted, rows_each + 1)
    await asyncio.sleep(IDLE_SETTLE_S)
    with_them = served.rss_mib()
    await clients.leave()
    await asyncio.sleep(IDLE_SETTLE_S)
    after = served.feed.received_at
    wanted = [subscription(VIEW, where, after=after, progress=True) for where in wheres]
    resumed_in_s = await clients.join(served.port, wanted, 1)
    await clients.leave()
    return Idle(store, subscribers, rig.scale.rows, joined_in_s, resumed_in_s, before, with_them)


def subscription(
    view: str,
    where: Where | None = None,
    *,
    after: int | None = None,
    progress: bool = False,
) -> Subscription:
    """One document for all of a view, as clients have it; what differs are its variables."""
    return Subscription(
        f"subscription ($where: {view}Expression, $after: String, $progress: Boolean)"
        f" {{ {view}(where: $where, after: $after, progress: $progress) {{ {FIELDS} }} }}",
        {
            "where": where or {},
            "after": None if after is None else str(after),
            "progress": progress,
        },
    )


def of_account(number: int) -> Where:
    return {"account": {"_eq": account(number)}}
