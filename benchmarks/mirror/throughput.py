"""A ledger from its beginning into Kafka, and the same messages by a producer that has them."""

from __future__ import annotations

import asyncio
import time
from statistics import median

import msgspec

from benchmarks.ingest.services import CpuMeter, postmaster_pid
from benchmarks.mirror.child import Child, Point, Sent
from benchmarks.mirror.rig import Rig, Store, config_at, opened
from benchmarks.pipeline.workload import Workload
from tests.services.postgres import PostgresServer

# Parts of all events, at which the memory of the mirror is shown.
SHOWN_AT = (0.1, 0.25, 0.5, 0.75, 1.0)


class Run(msgspec.Struct, frozen=True):
    """What was used meanwhile is in parts of one core. This process only waits."""

    sent: Sent
    broker: float
    postgres: float | None

    @property
    def sender(self) -> float:
        return self.sent.cpu_s / self.sent.seconds


class Throughput(msgspec.Struct, frozen=True):
    """By turns in the same run, to the same broker."""

    store: Store
    events: int
    fill_seconds: float
    mirror: list[Run]
    plain: list[Run]

    @property
    def mirror_per_s(self) -> float:
        return self.events / median(run.sent.seconds for run in self.mirror)

    @property
    def plain_per_s(self) -> float:
        return self.events / median(run.sent.seconds for run in self.plain)

    @property
    def of_plain(self) -> float:
        return self.mirror_per_s / self.plain_per_s

    def memory(self) -> list[Point]:
        """Of the mirror, in its last run, as soon as so many events were there."""
        points = self.mirror[-1].sent.points
        return [
            next(point for point in points if point.events >= share * self.events)
            for share in SHOWN_AT
        ]


async def measure_throughput(rig: Rig) -> list[Throughput]:
    """On each store by turns, after a smaller run of both that is not counted."""
    scale = rig.scale
    found = []
    for store in scale.stores:
        if scale.warm_up_events:
            # A broker that has just started is busy with compiling itself.
            await _measure(rig, store, scale.warm_up_events, repetitions=1)
        found.append(await _measure(rig, store, scale.events, repetitions=scale.repetitions))
    return found


async def _measure(rig: Rig, store: Store, events: int, *, repetitions: int) -> Throughput:
    url = rig.new_ledger(store)
    began = time.monotonic()
    async with opened(rig.new_configuration(url)) as ledger:
        await Workload().append(ledger, 0, events)
    found = Throughput(store, events, time.monotonic() - began, [], [])
    database = rig.postgres if store == "postgres" else None
    for _ in range(repetitions):
        mirrored, sent = rig.new_configuration(url), rig.new_configuration(url)
        prefix = config_at(mirrored).mirror.topic_prefix
        found.mirror.append(await _run(rig, database, ["mirror", str(mirrored)]))
        found.plain.append(await _run(rig, None, ["plain", str(sent), prefix]))
        for used in (prefix, config_at(sent).mirror.topic_prefix):
            rig.remove_topics(used)
    return found


async def _run(rig: Rig, database: PostgresServer | None, arguments: list[str]) -> Run:
    """`database` is where the ledger is that is read."""
    child = Child(arguments, rig.home / "child.log")
    try:
        await asyncio.to_thread(child.wait_until_ready)
        broker = CpuMeter(rig.broker.pid)
        postgres = None if database is None else CpuMeter(postmaster_pid(database))
        broker.start()
        if postgres is not None:
            postgres.start()
        sent = await asyncio.to_thread(child.go)
        return Run(
            sent,
            broker.share(sent.seconds),
            None if postgres is None else postgres.share(sent.seconds),
        )
    finally:
        await asyncio.to_thread(child.close)
