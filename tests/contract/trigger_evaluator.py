"""A process that brings triggers up to the views, unless it is killed on the way."""

from __future__ import annotations

import asyncio
import sys

from tests.contract.triggers_home import TriggersHome
from tests.contract.views_home import ViewsHome
from tidemark.clock import SystemClock
from tidemark.live.filters import parse_filter
from tidemark.live.triggers.evaluation import TriggerEvaluator


async def main(views_url: str, triggers_url: str) -> None:
    views_home, triggers_home = ViewsHome(views_url), TriggersHome(triggers_url)
    views, triggers = await views_home.open(), await triggers_home.open()
    [schema] = await views.declared()
    evaluator = TriggerEvaluator(
        views, triggers, lambda trigger: parse_filter(schema, {}), SystemClock(), page_changes=1
    )
    async with triggers.lead():
        while await evaluator.round():
            pass
    await views_home.close()
    await triggers_home.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
