"""A replay beside live views: the same events, from the ledger and from landed blocks.

Both hold the same in the end, and that is looked at too: a difference ends the benchmark.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import nullcontext
from typing import Final

import msgspec

from benchmarks.pipeline.rig import Rig, Store
from benchmarks.pipeline.workload import Workload
from tidemark.app.landing import run_landing
from tidemark.app.replay import drop_beside, replay_views
from tidemark.config import Config

REPLAY_STORE: Final[Store] = "postgres"


class Replays(msgspec.Struct, frozen=True):
    """Seconds for all events, with comparing every row at the end."""

    events: int
    rows: int
    live_s: float
    from_ledger_s: float
    from_blocks_s: float


async def measure_replay(rig: Rig) -> Replays:
    """The live views first, then each kind of replay beside them."""
    scale = rig.scale
    store = REPLAY_STORE if REPLAY_STORE in scale.stores else scale.stores[0]
    config = rig.config(store)
    async with rig.stores(config) as (ledger, views):
        await Workload().append(ledger, 0, scale.events)
        live = await rig.catch_up(config, ledger, views)
        rows = await rig.count_rows(views)
    from_ledger_s = await asyncio.to_thread(_replayed, rig, config)
    landing = {"parquet": {"enabled": True, "block_events": max(1, scale.events // 10)}}
    landed = Config.model_validate({**config.model_dump(by_alias=True), "landing": landing})
    await asyncio.to_thread(
        run_landing,
        landed,
        until_caught_up=True,
        on_progress=lambda target, done, total: None,
        stop=threading.Event(),
    )
    from_blocks_s = await asyncio.to_thread(_replayed, rig, landed)
    return Replays(scale.events, rows, live.seconds, from_ledger_s, from_blocks_s)


def _replayed(rig: Rig, config: Config) -> float:
    began = time.monotonic()
    found = replay_views(
        config,
        "trial",
        swap=False,
        limit=10,
        on_progress=lambda stage, done, total: None,
        stop=threading.Event(),
        session=lambda config, directory: nullcontext(rig.spark),
    )
    seconds = time.monotonic() - began
    assert found is not None
    assert found.differences.count == 0, found.differences
    drop_beside(config, "trial")
    return seconds
