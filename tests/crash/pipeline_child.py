"""A process that folds ledgers into views, to be killed: `python -m tests.crash.pipeline_child`.

Its argument is a list of jobs in JSON, as `tests.crash.pipelines.job` makes them. It says with one
line of JSON that Spark runs, and with another one for each job that is done.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.folding.mixed import config_of
from tests.folding.outcomes import outcome_of
from tests.services.spark import shared_session
from tidemark.clock import SystemClock
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.running import Pipeline
from tidemark.views.opening import open_views, views_at, views_place


async def run(job: dict[str, Any]) -> list[Any]:
    """Folds until the views have caught up, or for ever; what has then come of the ledger."""
    config = config_of(job["settings"], Path(job["state_dir"]), job["ledger_url"], job["views_url"])
    ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
    loop = asyncio.get_running_loop()

    def fold() -> None:
        pipeline = Pipeline(
            shared_session(),
            config,
            ledger,
            views,
            partial(views_at, views_place(config)),
            loop=loop,
            max_rows=job["max_rows"],
        )
        pipeline.prepare()
        pipeline.run(until_caught_up=not job["follow"])

    try:
        await asyncio.to_thread(fold)
        [ordered] = config.pipeline.ordered
        outcome = await outcome_of(views, config.state_dir / "ordered" / ordered)
        return [outcome.views, outcome.errors, *outcome.ordered, outcome.frontier[:2]]
    finally:
        await views.close()
        await ledger.close()


def say(told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main() -> None:
    jvm: Any = shared_session()._jvm
    say({"java_pid": jvm.java.lang.ProcessHandle.current().pid()})
    for job in json.loads(sys.argv[1]):
        say({"outcome": asyncio.run(run(job))})


if __name__ == "__main__":
    main()
