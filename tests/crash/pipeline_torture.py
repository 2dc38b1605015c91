"""Kills the pipeline at random moments while events arrive, and holds its views against a rebuild.
Half of the pipelines read Kafka; then mirror and broker are killed as well.

    python -m tests.crash.pipeline_torture --seed 7 --count 20 [--store sqlite|postgres|both]

The seed decides what is in the ledgers, when it arrives and how long to wait before each kill; the
machine decides what that interrupts. Each round has a new ledger. When a round ends, everything has
arrived and a last process has caught up; another state directory is then built from the ledger in
one go, and both must hold the same. Ends with 1 where they do not, and keeps the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.kafka_pipelines import KafkaWorld
from tests.crash.mirror_torture import BROKER_SETTINGS
from tests.crash.pipelines import PipelineProcess, job
from tests.crash.tormenting import STORES, Broken, Store, run, say
from tests.folding.mixed import (
    BY_ALL,
    BY_PLACE,
    DELETING,
    METERS,
    DraftCommit,
    fill,
    mixed_ledger,
    settings_of,
)
from tests.generated.windows import AT, windows_of
from tests.services.kafka import KafkaBroker
from tests.services.mirror_process import MirrorProcess
from tests.services.postgres import PostgresServer

Source: TypeAlias = Literal["ledger", "kafka"]
SOURCES: Final[tuple[Source, ...]] = ("ledger", "kafka")
KILLS_A_ROUND: Final = (2, 5)
# Counted from when Spark runs: some batches, or none.
LONGEST_WAIT_S: Final = 6.0
# How often it dies while it is still starting.
STARTING_SHARE: Final = 0.2
LONGEST_START_S: Final = 8.0
LONGEST_SILENCE_S: Final = 0.5
# How long a broker is away.
LONGEST_AWAY_S: Final = 2.0
COMMITS_A_ROUND: Final = (10, 60)


async def arrive(url: str, commits: Sequence[DraftCommit], pauses: random.Random) -> None:
    """Writes the ledger, as publishers would, with pauses between."""
    home = LedgerHome(url)
    try:
        clock = ManualClock()
        ledger = await home.open(clock)
        for commit in commits:
            await fill(ledger, clock, [commit])
            await asyncio.sleep(pauses.uniform(0, LONGEST_SILENCE_S))
    finally:
        await home.close()


class Kafka:
    """Between the ledger and the pipeline: a mirror, and a broker that others use too."""

    def __init__(
        self,
        directory: Path,
        ledger_url: str,
        settings: dict[str, Any],
        broker: KafkaBroker,
        tally: Counter[str],
    ) -> None:
        directory.mkdir()
        self.world = KafkaWorld(directory, ledger_url, settings, broker)
        self._mirror = MirrorProcess(self.world.path, directory / "mirror.log")
        self._tally = tally

    async def strike(self, choose: random.Random) -> None:
        """Perhaps, while the pipeline runs; what was struck is there again afterwards."""
        await asyncio.sleep(choose.uniform(0, LONGEST_WAIT_S / 2))
        what = choose.choice(["mirror", "broker", "nothing"])
        self._tally[what] += 1
        if what == "mirror":
            await asyncio.to_thread(self._mirror.kill)
            self._mirror.start()
        elif what == "broker":
            await asyncio.to_thread(self.world.broker.kill)
            await asyncio.sleep(choose.uniform(0, LONGEST_AWAY_S))
            await asyncio.to_thread(self.world.broker.start)

    async def __aenter__(self) -> Self:
        self._mirror.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and not self._mirror.is_running:
            raise Broken(f"the mirror ended by itself: {self._mirror.log_tail()}")
        await asyncio.to_thread(self._mirror.kill)

    async def catch_up(self) -> None:
        """Once the mirror is gone: all that it has left."""
        await self.world.mirror()


async def round_of(
    choose: random.Random,
    kills: int,
    directory: Path,
    urls: tuple[str, str],
    broker: KafkaBroker | None,
    tally: Counter[str],
) -> int:
    """One ledger and so many kills; how many commits it has. `Broken` if the views are wrong."""
    ledger_url, views_url = urls
    history = mixed_ledger(
        choose.randrange(10**9),
        commits=choose.randint(*COMMITS_A_ROUND),
        entries=choose.choice([2, 10, 40]),
        controls=choose.random() < 0.7,
    )
    settings = settings_of(
        choose.sample(METERS, choose.randint(1, 3)),
        choose.choice([[], [BY_ALL], [BY_PLACE], [DELETING]]),
        choose.sample(windows_of(AT), choose.randint(0, 2)),
    )
    kafka = None
    read = settings
    if broker is not None:
        kafka = Kafka(directory / "kafka", ledger_url, settings, broker, tally)
        read = kafka.world.from_kafka
    tormented = job(read, directory / "state", ledger_url, views_url)
    following = {**tormented, "follow": True, "max_rows": choose.choice([1, 30, 10_000])}
    commits = history.drafts()
    await arrive(ledger_url, commits[:1], choose)
    arriving = asyncio.create_task(arrive(ledger_url, commits[1:], random.Random(choose.random())))
    try:
        async with kafka or contextlib.nullcontext():
            for _ in range(kills):
                await _kill_once(choose, following, kafka)
            await arriving
    finally:
        arriving.cancel()
    if kafka is not None:
        await kafka.catch_up()
    rebuilt = job(settings, directory / "new", ledger_url, f"sqlite:///{directory / 'new.db'}")
    with PipelineProcess([tormented, rebuilt]) as process:
        await asyncio.to_thread(process.started)
        ended, expected = await asyncio.to_thread(process.outcomes, 2)
    if ended != expected:
        raise Broken(f"the views are {ended}, and a rebuild gives {expected}")
    return len(commits)


async def _kill_once(choose: random.Random, work: dict[str, Any], kafka: Kafka | None) -> None:
    with PipelineProcess([work]) as process:
        if choose.random() < STARTING_SHARE:
            await asyncio.sleep(choose.uniform(0, LONGEST_START_S))
        else:
            await asyncio.to_thread(process.started)
            if kafka is not None:
                await kafka.strike(choose)
            await asyncio.sleep(choose.uniform(0, LONGEST_WAIT_S))
        if not process.is_running:
            raise Broken(f"the pipeline ended by itself: {process.errors()}")
        await asyncio.to_thread(process.kill)


async def torture(
    seed: int,
    count: int,
    stores: Sequence[Store] = STORES,
    sources: Sequence[Source] = SOURCES,
) -> int:
    """Kill `count` times; the exit code."""
    choose = random.Random(seed)
    began = time.monotonic()
    killed = rounds = commits = 0
    tally: Counter[str] = Counter()
    say(
        f"seed {seed}: {count} kills of the pipeline on {' and '.join(stores)},"
        f" from {' and '.join(sources)}"
    )
    with contextlib.ExitStack() as stack:
        postgres = None
        if "postgres" in stores:
            postgres = stack.enter_context(PostgresServer(durable=True))
        broker = None
        if "kafka" in sources:
            broker = stack.enter_context(KafkaBroker(settings=BROKER_SETTINGS))
        while killed < count:
            store, source = choose.choice(stores), choose.choice(sources)
            kills = min(choose.randint(*KILLS_A_ROUND), count - killed)
            directory = Path(tempfile.mkdtemp(prefix="tidemark-torture-"))
            urls = (f"sqlite:///{directory / 'ledger.db'}", f"sqlite:///{directory / 'views.db'}")
            if store == "postgres":
                assert postgres is not None
                urls = (postgres.create_database(),) * 2
            rounds += 1
            try:
                commits += await round_of(
                    choose, kills, directory, urls, broker if source == "kafka" else None, tally
                )
            except Exception as error:
                say(
                    f"BROKEN in round {rounds} on {store} from {source}:"
                    f" {type(error).__name__}: {error}\n"
                    f"the evidence is in {directory}\n"
                    f"the same choices again: make torture-pipeline SEED={seed} N={count}"
                )
                return 1
            killed += kills
            shutil.rmtree(directory)
            seconds = time.monotonic() - began
            say(f"{killed}/{count} kills in {seconds:.0f} s; round {rounds}, {store}, {source}")
    say(
        f"seed {seed}: {killed} kills in {time.monotonic() - began:.0f} s over {rounds} ledgers"
        f" with {commits} commits, {tally['mirror']} kills of a mirror and {tally['broker']} of the"
        " broker beside them, nothing broken"
    )
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return run(
        torture,
        argv,
        module="tests.crash.pipeline_torture",
        does="Kill the pipeline at random moments and compare its views with a rebuild.",
        strikes=20,
    )


if __name__ == "__main__":
    sys.exit(main())
