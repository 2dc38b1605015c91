"""A ledger from its beginning to its end: every row and every change of it."""

from __future__ import annotations

from statistics import median

import msgspec

from benchmarks.pipeline.limits import Limits, measure_limits, write_events
from benchmarks.pipeline.rig import Caught, Rig, Store
from benchmarks.pipeline.workload import Workload


class CatchUp(msgspec.Struct, frozen=True):
    """What one store gave, run by run."""

    store: Store
    runs: list[Caught]
    changes: int
    rows: int

    @property
    def events_per_s(self) -> float:
        return median(run.events_per_s for run in self.runs)


class CatchUps(msgspec.Struct, frozen=True):
    limits: Limits
    stores: list[CatchUp]


async def measure_catch_up(rig: Rig) -> CatchUps:
    """Limits and pipeline in one run, on both stores in turn."""
    scale = rig.scale
    workload = Workload()
    path = rig.home / "events.parquet"
    write_events(workload, scale.events, path)
    limits = measure_limits(rig.spark, path, scale.events, scale.repetitions)
    found = []
    for store in scale.stores:
        await _warm_up(rig, store)
        config = rig.config(store)
        runs = []
        counts = (0, 0)
        async with rig.stores(config) as (ledger, _):
            await workload.append(ledger, 0, scale.events)
        for _ in range(scale.repetitions):
            views_config = rig.with_new_views(config)
            async with rig.stores(views_config) as (ledger, views):
                runs.append(await rig.catch_up(views_config, ledger, views))
                counts = (await rig.count_changes(views), await rig.count_rows(views))
        found.append(CatchUp(store, runs, *counts))
    return CatchUps(limits, found)


async def _warm_up(rig: Rig, store: Store) -> None:
    """A session that has just started is busy with compiling itself."""
    config = rig.config(store)
    async with rig.stores(config) as (ledger, views):
        await Workload(seed=2).append(ledger, 0, rig.scale.warm_up_events)
        await rig.catch_up(config, ledger, views)
