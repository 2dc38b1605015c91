"""From the commit of an event to the row that shows it, while events keep coming.

The pipeline is a process of its own, as users run it. This one appends to the ledger in small
commits at a steady rate and looks at the frontier of the views: a commit is visible when the
frontier has reached it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec
import yaml

from benchmarks.pipeline.rig import Rig, Scale, Store
from benchmarks.pipeline.workload import METRIC
from tidemark.config import load_config
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.ledger.port import LedgerStore
from tidemark.views.port import ViewsStore

LATENCY_STORE: Final[Store] = "sqlite"
COMMITS_PER_S: Final = 20
POLL_S: Final = 0.005
STARTED_WITHIN_S: Final = 120.0


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds from commit to visible, over all commits of a run."""

    events_per_s: int
    commits: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


async def measure_latency(rig: Rig) -> list[Latency]:
    found = []
    rig.stop_spark()
    for rate in rig.scale.rates:
        found.append(await _measure(rig, rate))
    return found


async def _measure(rig: Rig, rate: int) -> Latency:
    directory = Path(rig.config(LATENCY_STORE).state_dir)
    path = directory / "tidemark.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "state_dir": "state",
                "streams": {"usage": {"kind": "usage"}},
                "meters": {METRIC: {"period": "month"}},
            }
        )
    )
    config = load_config(path, {})
    process = await asyncio.to_thread(_start, path)
    try:
        async with rig.stores(config) as (ledger, views):
            return await _watch(ledger, views, rate, rig.scale)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 60)


def _start(config: Path) -> subprocess.Popen[bytes]:
    with (config.parent / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tidemark", "pipeline", "--config", str(config)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )


async def _watch(ledger: LedgerStore, views: ViewsStore, rate: int, scale: Scale) -> Latency:
    waiting: deque[tuple[int, float]] = deque()
    took: list[float] = []
    measuring = False

    async def append(number: int) -> None:
        drafts = [_draft(number * 1_000 + place) for place in range(rate // COMMITS_PER_S)]
        await ledger.append_group([Submission("latency", drafts)], no_corrections)
        head = await ledger.head()
        waiting.append((head.received_at, time.perf_counter()))

    async def look() -> None:
        while True:
            frontier = await views.frontier()
            now = time.perf_counter()
            while frontier is not None and waiting and waiting[0][0] <= frontier.received_at:
                _, committed = waiting.popleft()
                if measuring:
                    took.append((now - committed) * 1000)
            await asyncio.sleep(POLL_S)

    async def until_seen() -> None:
        while waiting:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    looking = asyncio.create_task(look())
    try:
        await append(0)
        await asyncio.wait_for(until_seen(), STARTED_WITHIN_S)
        began = time.perf_counter()
        number = 0
        while (
            elapsed := time.perf_counter() - began
        ) < scale.settle_seconds + scale.latency_seconds:
            measuring = elapsed >= scale.settle_seconds
            number += 1
            await append(number)
            await asyncio.sleep(max(0.0, began + number / COMMITS_PER_S - time.perf_counter()))
        await asyncio.wait_for(until_seen(), STARTED_WITHIN_S)
    finally:
        looking.cancel()
    took.sort()
    p50, p95, p99 = (took[int(len(took) * share)] for share in (0.5, 0.95, 0.99))
    return Latency(rate, len(took), p50, p95, p99, took[-1])


def _draft(number: int) -> Draft:
    return Draft(
        tenant_id=f"tenant-{number % 10}",
        stream="usage",
        idempotency_key=f"latency-{number}",
        content_hash=number.to_bytes(32, "big"),
        occurred_at=None,
        metric=METRIC,
        customer_ref=f"customer-{number % 997}",
        quantity="1",
    )
