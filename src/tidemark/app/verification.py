"""The views made anew from the ledger on Spark, in a place of their own, and held against the live
ones.

The live views may move on meanwhile. So they are followed twice: first as far as they were at the
beginning, which takes long, then from a snapshot of them, to the very commit of the snapshot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from tidemark.app.store_loop import StoreLoop
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.errors import ConfigError
from tidemark.ledger.opening import SQLITE_SCHEME, open_ledger
from tidemark.ledger.sqlite_connection import make_private_directory
from tidemark.ops.verification import Verification, compare, require_same_definitions
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.running import Pipeline, require_same_history
from tidemark.pipeline.session import start_session, stop_session
from tidemark.pipeline.source.frames import ledger_address, ledger_stream
from tidemark.pipeline.source.offsets import Offset
from tidemark.views.opening import open_views, views_at
from tidemark.views.port import ViewsStore
from tidemark.views.snapshot import Snapshot

RECOMPUTE: Final = "recompute"
COMPARE: Final = "compare"

_DIRECTORY: Final = "verify"
_FILE_NAME: Final = "views.db"
_SCRATCH: Final = "scratch-"


class OnProgress(Protocol):
    """Told the stage, how much of it is done, and of how much."""

    def __call__(self, stage: str, done: int, total: int | None) -> None: ...


class _Store(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Store)


def verify_views(
    config: Config,
    *,
    limit: int,
    on_progress: OnProgress,
    stop: threading.Event,
    session: Callable[[Config], AbstractContextManager[SparkSession]] | None = None,
) -> Verification | None:
    """None if nothing was folded yet. `session` gives a Spark session, by default one of its own.

    Raises `LedgerRewound` and `DefinitionChanged` where a comparison would say nothing.
    """
    with (
        _scratch(config.state_dir / _DIRECTORY) as scratch,
        StoreLoop() as stores,
        _closing(stores, open_ledger(config, SystemClock())) as ledger,
        _closing(stores, open_views(config)) as live,
    ):
        frontier = stores.wait(live.frontier())
        if frontier is None:
            return None
        stores.wait(require_same_history(ledger, frontier))
        apart = _apart(config, scratch)
        with (
            (session or _session)(config) as spark,
            _closing(stores, open_views(apart)) as recomputed,
        ):

            def follow(upto: Frontier) -> None:
                pipeline = Pipeline(
                    spark,
                    apart,
                    ledger,
                    recomputed,
                    partial(views_at, scratch / _FILE_NAME),
                    loop=stores.loop,
                    read_stream=partial(
                        ledger_stream, end=Offset(upto.received_at, upto.ingress_sequence)
                    ),
                    on_progress=lambda done: on_progress(
                        RECOMPUTE, done.frontier.ingress_sequence, upto.ingress_sequence
                    ),
                    stopping=stop,
                )
                pipeline.prepare()
                stores.wait(_require_comparable(live, recomputed))
                if pipeline.frontier != upto:
                    pipeline.run(until_caught_up=True)

            on_progress(RECOMPUTE, 0, frontier.ingress_sequence)
            follow(frontier)
            with _moment(stores, live) as now:
                assert now.frontier is not None
                follow(now.frontier)
                if stop.is_set():
                    return None
                with _moment(stores, recomputed) as anew:
                    told = partial(on_progress, COMPARE, total=None)
                    return stores.wait(compare(now, anew, limit=limit, on_progress=told))


async def _require_comparable(live: ViewsStore, recomputed: ViewsStore) -> None:
    async with live.snapshot() as now, recomputed.snapshot() as anew:
        require_same_definitions(now.views, anew.views)


def _apart(config: Config, scratch: Path) -> Config:
    """The same configuration with its views, and all else that a pipeline writes, in `scratch`."""
    return config.model_copy(
        update={
            "state_dir": scratch,
            # Their paths may be anywhere, and what is there is the live pipeline's.
            "pipeline": config.pipeline.model_copy(update={"ordered": {}}),
            "ledger": config.ledger.model_copy(update={"url": ledger_address(config)}),
            "view_store": config.view_store.model_copy(
                update={"url": f"{SQLITE_SCHEME}{scratch / _FILE_NAME}"}
            ),
        }
    )


@contextlib.contextmanager
def _session(config: Config) -> Iterator[SparkSession]:
    # Beside that of a pipeline, which may be running; its log is there when this is over.
    try:
        yield start_session(config.spark, state_dir=config.state_dir / _DIRECTORY)
    finally:
        stop_session()


@contextlib.contextmanager
def _closing(stores: StoreLoop, opening: Coroutine[Any, Any, S]) -> Iterator[S]:
    store = stores.wait(opening)
    try:
        yield store
    finally:
        stores.wait(store.close())


@contextlib.contextmanager
def _moment(stores: StoreLoop, views: ViewsStore) -> Iterator[Snapshot]:
    held = contextlib.AsyncExitStack()
    snapshot = stores.wait(held.enter_async_context(views.snapshot()))
    try:
        yield snapshot
    finally:
        stores.wait(held.aclose())


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A directory that is removed at the end or, after a crash, by the next one."""
    try:
        make_private_directory(parent)
        for left in parent.glob(f"{_SCRATCH}*"):
            with _locked(left) as is_ours:
                if is_ours:
                    shutil.rmtree(left, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent)).absolute()
    except OSError as error:
        raise ConfigError(
            f"there is no room for a second set of views in {parent}: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
    with _locked(directory):
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Says whether nobody else had it; the lock goes with its process."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
