"""A process that commits two batches to the views, unless it is killed on the way."""

from __future__ import annotations

import asyncio
import sys

from tests.contract.views_home import (
    POSITIONS,
    ViewsHome,
    adjustment,
    batch,
    changes,
    error,
    insertion,
    position,
    writes,
)
from tidemark.pipeline.output.batch import ViewBatch

OLD, NEW, GONE = position("a", rank=1), position("a", rank=2), position("b")
FIRST = insertion(OLD, GONE)


def second() -> ViewBatch:
    """A batch that writes to every table."""
    return batch(
        1,
        2,
        rows=[writes(NEW, commit=2, deleted=[GONE])],
        changes=[changes((2, OLD, NEW), (2, GONE, None))],
        adjustments=[adjustment(15, commit=2)],
        errors=[error(16, commit=2)],
        state={"watermark": b"2"},
    )


async def main(url: str) -> None:
    home = ViewsHome(url)
    views = await home.open()
    await views.declare([POSITIONS])
    await views.commit(FIRST)
    await views.commit(second())
    await home.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
