"""The same piece of work on top of ever more events, and beside ever more keys."""

from __future__ import annotations

from statistics import median

import msgspec

from benchmarks.pipeline.rig import Rig, Store
from benchmarks.pipeline.workload import Workload

GROWTH_STORE: Store = "sqlite"


class Step(msgspec.Struct, frozen=True):
    """The next events with `ledger_events` folded before them, piece after piece of the same size;
    `events_per_s` is the median."""

    ledger_events: int
    keys: int
    runs: list[float]
    fill_events_per_s: float
    peak_rss_mib: float

    @property
    def events_per_s(self) -> float:
        return median(self.runs)


async def measure_growth(rig: Rig) -> list[Step]:
    """The last step has the same number of events as the one before, and many more keys."""
    scale = rig.scale
    config = rig.config(GROWTH_STORE)
    few, many = Workload(), Workload(customers=scale.untouched_keys, first_customer=10_000_000)
    steps = []
    reached = 0
    async with rig.stores(config) as (ledger, views):

        async def fold(workload: Workload, events: int) -> tuple[float, float]:
            nonlocal reached
            await workload.append(ledger, reached, events)
            reached += events
            caught = await rig.catch_up(config, ledger, views)
            return caught.events_per_s, caught.peak_rss_mib

        async def step(fill_rate: float) -> None:
            before = reached
            pieces = [await fold(few, scale.step_events) for _ in range(scale.repetitions)]
            keys = await rig.count_rows(views)
            rates = [rate for rate, _ in pieces]
            steps.append(Step(before, keys, rates, fill_rate, pieces[-1][1]))

        for size in scale.sizes:
            fill_rate, _ = await fold(few, size - reached)
            await step(fill_rate)
        fill_rate, _ = await fold(many, scale.untouched_keys)
        await step(fill_rate)
    return steps
