"""The pipeline, kept running: ledger and views in one loop, Spark beside it.

What passes by itself is waited for: a database that is away, a full disk, a query that died with
its Java. Each time the query begins anew at the frontier, so nothing is lost and nothing is done
twice. What only a person can mend ends it with the error that names the fix.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from py4j.protocol import Py4JNetworkError

from tidemark.app.event_source import event_source, last_in_kafka
from tidemark.app.high_water import HighWater
from tidemark.app.only_one import only_one
from tidemark.app.store_loop import StoreLoop, closing
from tidemark.clock import MICROS_PER_SECOND, SystemClock
from tidemark.config import Config
from tidemark.errors import LedgerUnavailable, TidemarkError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import CopyState, LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.live.triggers.opening import oldest_position
from tidemark.mirror.messages import CommitRecord
from tidemark.ops.pipeline_status import PIPELINE, PipelineStatus
from tidemark.pipeline.decode.stage import Decoder
from tidemark.pipeline.definitions import Definitions
from tidemark.pipeline.errors import SparkUnavailable
from tidemark.pipeline.files import OrderedOutputUnavailable
from tidemark.pipeline.kafka.connector import spark_settings
from tidemark.pipeline.kafka.errors import KafkaDiffers, KafkaUnavailable
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.pipeline.output.schema import Column
from tidemark.pipeline.running import Pipeline, require_same_history
from tidemark.pipeline.session import start_session, stop_session
from tidemark.pipeline.time.registry import registry_of
from tidemark.timestamps import format_timestamp
from tidemark.views.opening import open_views, views_at, views_place
from tidemark.views.port import ViewsStore

log = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
# A query that dies again and again at one place will not live the next time.
DEATHS_AT_ONE_PLACE: Final = 5
# Someone who wants to be done does not wait for ever for a database.
WAIT_WHEN_CATCHING_UP_US: Final = 60 * MICROS_PER_SECOND
WAITED_FOR: Final = (
    ViewsUnavailable,
    LedgerUnavailable,
    OrderedOutputUnavailable,
    KafkaUnavailable,
    KafkaDiffers,
)
KAFKA_OPTIONS: Final = "mirror.options"
# What a query may itself have waited for, as long as it lived.
WAITED_FOR_IN_A_QUERY: Final = (KafkaUnavailable, KafkaDiffers)
LOOK_EVERY_S: Final = 0.5
# Longer than an attempt waits for what does not come: Spark gives Kafka two minutes.
LIVES_AFTER_US: Final = 150 * MICROS_PER_SECOND
# Another pipeline may have told the ledger otherwise, and what is told last need not arrive last.
TELL_EVERY_US: Final = 30 * MICROS_PER_SECOND
PRUNE_EVERY_S: Final = 60.0

_LOCK_NAME: Final = "pipeline.lock"


class Standing(msgspec.Struct, frozen=True):
    """Where the views stand against the ledger."""

    sequence: int
    ledger_sequence: int
    lag_seconds: float

    @property
    def lag_events(self) -> int:
        return max(0, self.ledger_sequence - self.sequence)


class PipelineRunning(TidemarkError):
    """Another process runs the pipeline of this state directory."""

    code = "pipeline_running"


def run_pipeline(
    config: Config,
    *,
    until_caught_up: bool,
    on_progress: Callable[[Standing], None],
    stop: threading.Event,
) -> None:
    """Keeps the views at the end of the ledger until `stop` is set, or they have caught up.

    `on_progress` is told twice a second, and at the end, how far they are. Raises what only a
    person can mend; with `until_caught_up` also what does not pass within a minute.
    """
    with only_one_pipeline(config.state_dir), StoreLoop() as stores:
        runner = _Runner(config, until_caught_up, on_progress, stop, stores)
        try:
            runner.run()
        finally:
            stop_session()


def check_expressions(config: Config) -> dict[str, tuple[Column, ...]]:
    """The calculated columns of each table, by its name.

    Raises `ConfigError` for an expression or a type of event time that cannot be used.
    """
    registry, definitions = registry_of(config), Definitions.of(config)
    with tempfile.TemporaryDirectory(prefix="tidemark-check-") as scratch:
        spark = start_session(config.spark, state_dir=Path(scratch))
        try:
            decoder = Decoder(spark, config, definitions, registry)
            tables = (table.name for table in definitions.tables)
            return dict(zip(tables, decoder.calculated, strict=True))
        finally:
            stop_session()


class _Runner:
    """Runs one query after the other."""

    def __init__(
        self,
        config: Config,
        until_caught_up: bool,
        on_progress: Callable[[Standing], None],
        stop: threading.Event,
        stores: StoreLoop,
    ) -> None:
        self._config = config
        self._until_caught_up = until_caught_up
        self._on_progress = on_progress
        self._stop = stop
        self._stores = stores
        self._status = PipelineStatus(config.state_dir)
        self._high_water = HighWater(config)
        self._clock = SystemClock()
        self._has_started = False
        self._reached: Frontier | None = None
        # As far as it was looked at, which is only while it is waited for.
        self._in_kafka: CommitRecord | None = None
        self._failures = 0
        # What was waited for is none of these.
        self._deaths = 0
        self._failing_since_us = 0
        self._pause_s = FIRST_PAUSE_S
        self._goal: Head | None = None
        # What the process before has told is not known.
        self._wrong: TidemarkError | None = None
        self._told_us: int | None = None
        self._is_well = False
        self._has_rested = False
        self._has_worked = False
        self._began_at: Frontier | None = None
        self._began_us = 0
        self._worked_us = 0

    def run(self) -> None:
        while not self._stop.is_set():
            before = self._reached, self._in_kafka
            try:
                self._run_once()
            except Exception as error:
                if self._stop.is_set():
                    # What is given up fails in many ways.
                    break
                if (self._reached, self._in_kafka) != before or self._has_rested:
                    self._failures = self._deaths = 0
                self._failures += 1
                self._deaths += not self._is_waited_for(_as_told(error))
                if self._failures == 1:
                    self._failing_since_us = self._clock.elapsed_us()
                    self._pause_s = FIRST_PAUSE_S
                elif not isinstance(error, WAITED_FOR_IN_A_QUERY):
                    # It was all there while a query worked.
                    self._failing_since_us += self._worked_us
                self._pause_after(error)
            else:
                break
        self._status.clear()

    def _pause_after(self, error: Exception) -> None:
        """Wait for what may pass; raise what will not."""
        told = _as_told(error)
        self._status.failed(told)
        if not self._may_pass(told):
            if told is error:
                raise error
            raise told from error
        if not self._is_waited_for(told):
            stop_session()
        log.warning("the pipeline goes on in %.1f s: %s", self._pause_s, told.message)
        self._stop.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _may_pass(self, error: TidemarkError) -> bool:
        if self._is_waited_for(error):
            waited_us = self._clock.elapsed_us() - self._failing_since_us
            return not self._until_caught_up or waited_us < WAIT_WHEN_CATCHING_UP_US
        if isinstance(error, SparkUnavailable):
            return self._has_started and self._deaths < DEATHS_AT_ONE_PLACE
        return False

    def _is_waited_for(self, error: TidemarkError) -> bool:
        if error.field is None:
            return isinstance(error, WAITED_FOR)
        # A setting is at fault. But it has worked with these: certificates may just be replaced.
        return self._has_worked and error.field == KAFKA_OPTIONS

    def _run_once(self) -> None:
        self._is_well = self._has_rested = False
        self._worked_us = 0
        with closing(self._stores, open_ledger(self._config, self._clock)) as ledger:
            try:
                with closing(self._stores, open_views(self._config)) as views:
                    self._query(ledger, views)
            except Exception as error:
                if not self._stop.is_set():
                    self._tell_wrong(ledger, _as_told(error))
                raise

    def _query(self, ledger: LedgerStore, views: ViewsStore) -> None:
        config, stores = self._config, self._stores
        stores.wait(self._look_at(ledger, views))
        spark = start_session(spark_settings(config), state_dir=config.state_dir)
        if self._stop.is_set():
            return
        pipeline = Pipeline(
            spark,
            config,
            ledger,
            views,
            partial(views_at, _absolute(views_place(config))),
            loop=stores.loop,
            source=event_source(config, ledger, stores.loop, self._stop),
            stopping=self._stop,
        )
        pipeline.prepare()
        self._has_started = True
        self._reached = self._began_at = pipeline.frontier
        self._began_us = self._clock.elapsed_us()
        with (
            stores.beside(self._watch(pipeline, ledger)),
            stores.beside(self._forget(views)),
        ):
            try:
                self._follow(pipeline, ledger)
            finally:
                self._reached = pipeline.frontier
                self._worked_us = self._since(self._began_us)
        if self._until_caught_up and not self._stop.is_set():
            # A run may be too short for its turn to come.
            stores.wait(_try_to_prune(config, views))
        stores.wait(self._tell(pipeline, ledger))

    def _follow(self, pipeline: Pipeline, ledger: LedgerStore) -> None:
        if not self._until_caught_up:
            pipeline.run(until_caught_up=False)
            return
        # Once: it would else run after a ledger that grows.
        goal = self._goal = self._goal or self._stores.wait(ledger.head())
        # To find out that there is nothing to do takes Spark as long as a batch.
        if not _is_behind(pipeline.frontier, goal):
            return
        pipeline.run(until_caught_up=True)
        if _is_behind(pipeline.frontier, goal) and not self._stop.is_set():
            self._in_kafka = last = last_in_kafka(self._config)
            raise KafkaUnavailable(
                f"Kafka ends with event {0 if last is None else last.last_sequence:,}, the views"
                f" with {_standing(pipeline.frontier, goal).sequence:,}, and the ledger with"
                f" {goal.last_sequence:,} at {format_timestamp(goal.received_at)}",
                hint="Start the mirror (`tidemark mirror`), or see what keeps it from going on:"
                " `tidemark status` tells.",
            )

    async def _look_at(self, ledger: LedgerStore, views: ViewsStore) -> None:
        """What does not belong together is told before Spark is started."""
        frontier = await views.frontier()
        if frontier is not None:
            await require_same_history(ledger, frontier)
        if not self._has_started:
            self._high_water.compare(frontier)

    async def _watch(self, pipeline: Pipeline, ledger: LedgerStore) -> None:
        while True:
            await self._tell(pipeline, ledger)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _tell(self, pipeline: Pipeline, ledger: LedgerStore) -> None:
        # It is the query that fails when a store is away, and that says so.
        with contextlib.suppress(TidemarkError):
            frontier, head = pipeline.frontier, await ledger.head()
            self._on_progress(_standing(frontier, head))
            self._high_water.reached(frontier)
            has_all = not _is_behind(frontier, self._goal or head)
            has_lived = self._since(self._began_us) >= LIVES_AFTER_US
            # What it dies of may come as late, but not while there is nothing to fold.
            self._has_rested |= has_all and has_lived
            self._has_worked |= frontier != self._began_at or has_lived
            # Then it does more than those before it that failed.
            if not self._is_well and (frontier != self._began_at or has_all or has_lived):
                self._is_well, self._wrong, self._told_us = True, None, None
                self._status.clear()
            is_due = self._told_us is None or self._since(self._told_us) >= TELL_EVERY_US
            if is_due and (self._is_well or self._wrong is not None):
                await self._tell_ledger(ledger, frontier)

    def _since(self, moment_us: int) -> int:
        return self._clock.elapsed_us() - moment_us

    def _tell_wrong(self, ledger: LedgerStore, error: TidemarkError) -> None:
        """For servers that do not work in this state directory."""
        # The pipeline goes on whether this is heard or not, and one that is away cannot hear.
        if not isinstance(error, LedgerUnavailable):
            self._wrong = error
            with contextlib.suppress(TidemarkError):
                self._stores.wait(self._tell_ledger(ledger, self._reached))

    async def _tell_ledger(self, ledger: LedgerStore, reached: Frontier | None) -> None:
        """What is wrong, or that nothing is."""
        sequence, received_at = (
            (0, 0) if reached is None else (reached.ingress_sequence, reached.received_at)
        )
        now_us = self._clock.wall_us()
        await ledger.tell_copy(CopyState(PIPELINE, sequence, received_at, now_us, self._wrong))
        self._told_us = self._clock.elapsed_us()

    async def _forget(self, views: ViewsStore) -> None:
        while True:
            await asyncio.sleep(PRUNE_EVERY_S)
            await _try_to_prune(self._config, views)


async def _try_to_prune(config: Config, views: ViewsStore) -> None:
    """What is not forgotten now is next time; nothing that was done depends on it."""
    try:
        await prune_changes(config, views)
    except TidemarkError as error:
        log.warning("old changes are kept until the next try: %s", error.message)


async def prune_changes(config: Config, views: ViewsStore) -> int:
    """Forgets the changes that lie too far behind the last commit, whatever time it is now.

    Says how many.

    Those that a trigger has not seen yet are kept, and so are all while that cannot be found out.
    Where nothing is live no trigger will ever look, so none is waited for.
    """
    frontier = await views.frontier()
    if frontier is None:
        return 0
    older_than = frontier.received_at - config.pipeline.change_retention_us
    needed_after = await oldest_position(config) if config.live.enabled else None
    return await views.prune_changes(
        older_than if needed_after is None else min(older_than, needed_after)
    )


def _is_behind(frontier: Frontier | None, head: Head) -> bool:
    return (0 if frontier is None else frontier.received_at) < head.received_at


def _standing(frontier: Frontier | None, head: Head) -> Standing:
    sequence, received_at = 0, head.received_at
    if frontier is not None:
        sequence, received_at = frontier.ingress_sequence, frontier.received_at
    lag_us = max(0, head.received_at - received_at)
    return Standing(sequence, head.last_sequence, lag_us / MICROS_PER_SECOND)


def _as_told(error: Exception) -> TidemarkError:
    return error if isinstance(error, TidemarkError) else _died(error)


def _died(error: Exception) -> SparkUnavailable:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ConnectionError | Py4JNetworkError):
        said = "Spark's Java process is gone"
    return SparkUnavailable(
        f"the query died: {said}",
        hint="Look at spark/spark.log in the state directory; what is committed is safe.",
    )


def only_one_pipeline(state_dir: Path) -> AbstractContextManager[None]:
    """Two pipelines would take the same batches."""
    running = PipelineRunning(
        f"a pipeline runs already on {state_dir}",
        hint="`tidemark up` runs one too. Stop that one first, or set pipeline.enabled to"
        " false and run `tidemark pipeline` by itself.",
    )
    return only_one(state_dir / _LOCK_NAME, what="the pipeline", taken=running)


def _absolute(place: Path | str) -> Path | str:
    """Processes that Spark starts may work in another directory."""
    return place if isinstance(place, str) else place.absolute()
