"""A broker that is killed and away for a while, under a steady stream of events.

The mirror is a process of its own, as users run it. This one appends to the ledger and looks how
far the ledger says that its events are in Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from benchmarks.mirror.rig import Rig, Store, opened
from benchmarks.pipeline.workload import METRIC
from tests.services.mirror_process import MirrorProcess
from tests.services.processes import resident_bytes
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.ledger.port import LedgerStore

AWAY_STORE: Final[Store] = "sqlite"
# Few enough that the mirror has nothing left to do between two.
COMMITS_PER_S: Final = 5
POLL_S: Final = 0.01
WITHIN_S: Final = 300.0
_MIB: Final = 1024 * 1024


class Away(msgspec.Struct, frozen=True):
    """`caught_up_s` is from when the broker answered again until nothing was left to send.

    `feeder` is what this process used, in parts of one core.
    """

    away_s: float
    broker_start_s: float
    events_per_s: int
    p50_ms_before: float
    max_ms_before: float
    waiting_events: int
    caught_up_s: float
    mib_before: float
    mib_most: float
    feeder: float


async def measure_away(rig: Rig) -> list[Away]:
    return [await _measure(rig, seconds) for seconds in rig.scale.away_seconds]


async def _measure(rig: Rig, away_s: float) -> Away:
    path = rig.new_configuration(rig.new_ledger(AWAY_STORE))
    scale = rig.scale
    async with opened(path) as ledger:
        with MirrorProcess(path, path.with_suffix(".log"), forked=False) as mirror:
            lag = _Lag(ledger, mirror.pid)
            async with lag.stream(scale.events_per_s):
                await lag.until_none(mirror)
                lag.took.clear()
                await asyncio.sleep(scale.steady_seconds)
                took = sorted(lag.took)
                mib_before = lag.mib_most
                await asyncio.to_thread(rig.broker.kill)
                await asyncio.sleep(away_s)
                starting = time.monotonic()
                await asyncio.to_thread(rig.broker.start)
                answers = time.monotonic()
                waiting = lag.events
                await lag.until_none(mirror)
                caught_up_s = time.monotonic() - answers
            return Away(
                away_s,
                answers - starting,
                scale.events_per_s,
                took[len(took) // 2],
                took[-1],
                waiting,
                caught_up_s,
                mib_before,
                lag.mib_most,
                lag.feeder,
            )


class _Lag:
    """How many events are in the ledger and not in Kafka, while they keep coming."""

    def __init__(self, ledger: LedgerStore, pid: int) -> None:
        self._ledger = ledger
        self._pid = pid
        self._waiting: deque[tuple[int, float]] = deque()
        self._appended = 0
        self._placed = 0
        self.took: list[float] = []
        self.mib_most = 0.0
        self.feeder = 0.0

    @property
    def events(self) -> int:
        return self._appended - self._placed

    @asynccontextmanager
    async def stream(self, events_per_s: int) -> AsyncIterator[None]:
        cpu_s, began = time.process_time(), time.monotonic()
        tasks = [
            asyncio.create_task(self._append(events_per_s // COMMITS_PER_S)),
            asyncio.create_task(self._look()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.feeder = (time.process_time() - cpu_s) / (time.monotonic() - began)

    async def until_none(self, mirror: MirrorProcess) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.events or not self._appended:
                if not mirror.is_running:
                    raise RuntimeError(f"the mirror has ended:\n{mirror.log_tail()}")
                await asyncio.sleep(POLL_S)

    async def _append(self, count: int) -> None:
        began = time.perf_counter()
        number = 0
        while True:
            drafts = [_draft(self._appended + place) for place in range(count)]
            await self._ledger.append_group([Submission("away", drafts)], no_corrections)
            self._appended += count
            self._waiting.append((self._appended, time.perf_counter()))
            number += 1
            await asyncio.sleep(max(0.0, began + number / COMMITS_PER_S - time.perf_counter()))

    async def _look(self) -> None:
        while True:
            self._placed = await self._ledger.placed_upto()
            now = time.perf_counter()
            while self._waiting and self._waiting[0][0] <= self._placed:
                self.took.append((now - self._waiting.popleft()[1]) * 1000)
            self.mib_most = max(self.mib_most, resident_bytes(self._pid) / _MIB)
            await asyncio.sleep(POLL_S)


def _draft(number: int) -> Draft:
    return Draft(
        tenant_id=f"tenant-{number % 10}",
        stream="usage",
        idempotency_key=f"away-{number}",
        content_hash=number.to_bytes(32, "big"),
        occurred_at=None,
        metric=METRIC,
        customer_ref=f"customer-{number % 997}",
        quantity="1",
    )
