"""Views made from the ledger beside the live ones: with stores, a place and a Spark of their own.

The live views may move on meanwhile. So they are followed twice: first as far as they were at the
beginning, which takes long, then from a snapshot of them, to the very commit of the snapshot.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from pyspark.sql import SparkSession

from tidemark.app.store_loop import StoreLoop
from tidemark.config import Config
from tidemark.ledger.port import LedgerStore
from tidemark.pipeline.fold.task import OpenViews
from tidemark.pipeline.landing.reading import LandedBlocks
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.reading import FromLedger
from tidemark.pipeline.running import Pipeline
from tidemark.pipeline.session import start_session, stop_session
from tidemark.pipeline.source.frames import ledger_address, ledger_stream
from tidemark.pipeline.source.offsets import Offset
from tidemark.views.port import ViewsStore
from tidemark.views.snapshot import Snapshot

RECOMPUTE: Final = "recompute"
COMPARE: Final = "compare"

Session: TypeAlias = Callable[[Config, Path], AbstractContextManager[SparkSession]]
"""Gives a Spark session for a configuration, whose log is in a directory."""


class OnProgress(Protocol):
    """Told the stage, how much of it is done, and of how much."""

    def __call__(self, stage: str, done: int, total: int | None) -> None: ...


def apart(config: Config, directory: Path) -> Config:
    """The same configuration with all that a pipeline writes, but its views, in `directory`."""
    return config.model_copy(
        update={
            "state_dir": directory,
            # Their paths may be anywhere, and what is there is the live pipeline's.
            "pipeline": config.pipeline.model_copy(update={"ordered": {}}),
            "ledger": config.ledger.model_copy(update={"url": ledger_address(config)}),
        }
    )


class Follower:
    """Takes views that are apart to where the live ones are."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        ledger: LedgerStore,
        views: ViewsStore,
        open_views: OpenViews,
        *,
        stores: StoreLoop,
        on_progress: OnProgress,
        stop: threading.Event,
        blocks: LandedBlocks | None = None,
    ) -> None:
        """`config` is one that is `apart`, `open_views` opens its views in another process.

        What is in `blocks` is read from there.
        """
        self._address = ledger_address(config)
        self._blocks = None if blocks is None else blocks.as_option()
        self._pipeline = partial(
            Pipeline, spark, config, ledger, views, open_views, loop=stores.loop, stopping=stop
        )
        self._on_progress = on_progress

    def follow(self, upto: Frontier, *, check: Callable[[], None] = lambda: None) -> None:
        """Folds up to this commit. `check` is called before, when the views are declared."""
        pipeline = self._pipeline(
            source=FromLedger(
                self._address,
                partial(
                    ledger_stream,
                    end=Offset(upto.received_at, upto.ingress_sequence),
                    blocks=self._blocks,
                ),
            ),
            on_progress=lambda done: self._on_progress(
                RECOMPUTE, done.frontier.ingress_sequence, upto.ingress_sequence
            ),
        )
        pipeline.prepare()
        check()
        if pipeline.frontier != upto:
            pipeline.run(until_caught_up=True)


@contextlib.contextmanager
def own_session(config: Config, directory: Path) -> Iterator[SparkSession]:
    """Beside that of a pipeline, which may be running; its log is there when this is over."""
    try:
        yield start_session(config.spark, state_dir=directory)
    finally:
        stop_session()


@contextlib.contextmanager
def moment(stores: StoreLoop, views: ViewsStore) -> Iterator[Snapshot]:
    """All that views hold as of now."""
    held = contextlib.AsyncExitStack()
    snapshot = stores.wait(held.enter_async_context(views.snapshot()))
    try:
        yield snapshot
    finally:
        stores.wait(held.aclose())
