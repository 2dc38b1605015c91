"""A process that swaps views for others, unless it is killed on the way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import msgspec

from tests.contract.views_home import (
    POSITIONS,
    Views,
    ViewsHome,
    adjustment,
    batch,
    frontier,
    insertion,
    position,
    writes,
)
from tidemark.ops.replaying import differences, plan_swap, swap_parts
from tidemark.pipeline.output.batch import Frontier
from tidemark.views.swapping import Swap, SwapPart

OLD, LATER = position("a", rank=1), position("b", rank=2)
FIRST = insertion(OLD)
SECOND = batch(
    None,
    2,
    rows=[writes(LATER, commit=2)],
    adjustments=[adjustment(15, commit=2)],
    state={"watermark": b"2"},
)
SWAP_END = frontier(2)
ANOTHER = msgspec.structs.replace(POSITIONS, definition_hash="another")


async def swapped(live: Views, beside: Views, end: Frontier) -> bool:
    """As `tidemark replay --swap` does it."""
    async with live.snapshot() as now, beside.snapshot() as anew:
        found = await differences(now, anew, limit=0, on_progress=lambda done: None)
        if any(view.definition == "same" for view in found.views):
            # They stand at different commits here, which says nothing about definitions.
            found.views.clear()
        planned = plan_swap("trial", now, anew, found)
    state = await beside.read_pipeline_state()
    swap = msgspec.structs.replace(planned, end=end, state=state)

    async def parts(swap: Swap) -> AsyncIterator[SwapPart]:
        async with live.snapshot() as now, beside.snapshot() as anew:
            async for part in swap_parts(swap, now, anew):
                yield part

    return await live.swap(swap, parts(swap))


async def main(live_url: str, beside_url: str) -> None:
    live_home, beside_home = ViewsHome(live_url), ViewsHome(beside_url)
    live, beside = await live_home.open(), await beside_home.open()
    await live.declare([POSITIONS])
    await live.commit(FIRST)
    await beside.declare([ANOTHER])
    await beside.commit(SECOND)
    await swapped(live, beside, SWAP_END)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
