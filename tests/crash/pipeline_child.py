"""A process that folds ledgers into views, to be killed: `python -m tests.crash.pipeline_child`.

Its first argument is a list of jobs in JSON, as `tests.crash.pipelines.job` makes them; its second,
where Spark is to run otherwise than for all tests, the section `spark` of a configuration. It says
with one line of JSON that Spark runs, and with another one for each job that is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.folding.mixed import config_of
from tests.folding.outcomes import outcome_of
from tests.services.spark import SHARED_CONFIG, SparkTestConfig, shared_session
from tidemark.app.event_source import event_source
from tidemark.clock import SystemClock
from tidemark.ledger.opening import open_ledger
from tidemark.pipeline.fold.task import OpenViews
from tidemark.pipeline.kafka.errors import KafkaUnavailable
from tidemark.pipeline.output.port import ViewsSink
from tidemark.pipeline.running import Pipeline
from tidemark.views.opening import open_views, views_at, views_place


async def run(job: dict[str, Any], spark: SparkTestConfig = SHARED_CONFIG) -> list[Any]:
    """Folds until the views have caught up; what has then come of the ledger. Or for ever, and then
    brokers that are away are waited for."""
    config = config_of(job["settings"], Path(job["state_dir"]), job["ledger_url"], job["views_url"])
    ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
    loop = asyncio.get_running_loop()
    open_in_task: OpenViews = partial(views_at, views_place(config))
    if job["hold"] is not None:
        open_in_task = partial(held, Path(job["hold"]), open_in_task)

    def fold() -> None:
        while True:
            try:
                fold_once()
            except KafkaUnavailable:
                if not job["follow"]:
                    raise
                time.sleep(0.2)
            else:
                return

    def fold_once() -> None:
        pipeline = Pipeline(
            shared_session(spark),
            config,
            ledger,
            views,
            open_in_task,
            loop=loop,
            max_rows=job["max_rows"],
            source=event_source(config, ledger, loop, threading.Event()),
        )
        pipeline.prepare()
        pipeline.run(until_caught_up=not job["follow"])

    try:
        await asyncio.to_thread(fold)
        [ordered] = config.pipeline.ordered
        outcome = await outcome_of(views, config.state_dir / "ordered" / ordered)
        return [outcome.views, outcome.errors, *outcome.ordered, [*outcome.frontier[:2]]]
    finally:
        await views.close()
        await ledger.close()


async def held(directory: Path, open_in_task: OpenViews) -> ViewsSink:
    """Opens the views for a task, but not before the directory has a file `go`; until then one by
    the number of the process says that the task is under way."""
    (directory / str(os.getpid())).touch()
    await asyncio.to_thread(wait_until_there, directory / "go")
    return await open_in_task()


def wait_until_there(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


def say(told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main() -> None:
    spark = SparkTestConfig(**json.loads(sys.argv[2])) if len(sys.argv) > 2 else SHARED_CONFIG
    jvm: Any = shared_session(spark)._jvm
    say({"java_pid": jvm.java.lang.ProcessHandle.current().pid()})
    for job in json.loads(sys.argv[1]):
        say({"outcome": asyncio.run(run(job, spark))})


if __name__ == "__main__":
    main()
