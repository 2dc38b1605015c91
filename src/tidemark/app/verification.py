"""The views made anew from the ledger on Spark, in a place of their own, and held against the live
ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from tidemark.app.beside import (
    COMPARE,
    RECOMPUTE,
    Follower,
    OnProgress,
    Session,
    apart,
    closing,
    moment,
    own_session,
)
from tidemark.app.store_loop import StoreLoop
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.errors import ConfigError
from tidemark.ledger.opening import SQLITE_SCHEME, open_ledger
from tidemark.ledger.sqlite_connection import make_private_directory
from tidemark.ops.verification import Verification, compare, require_same_definitions
from tidemark.pipeline.running import require_same_history
from tidemark.views.opening import open_views, views_at
from tidemark.views.port import ViewsStore

_DIRECTORY: Final = "verify"
_FILE_NAME: Final = "views.db"
_SCRATCH: Final = "scratch-"


def verify_views(
    config: Config,
    *,
    limit: int,
    on_progress: OnProgress,
    stop: threading.Event,
    session: Session = own_session,
) -> Verification | None:
    """None if nothing was folded yet. `session` gives a Spark session, by default one of its own.

    Raises `LedgerRewound` and `DefinitionChanged` where a comparison would say nothing.
    """
    with (
        _scratch(config.state_dir / _DIRECTORY) as scratch,
        StoreLoop() as stores,
        closing(stores, open_ledger(config, SystemClock())) as ledger,
        closing(stores, open_views(config)) as live,
    ):
        frontier = stores.wait(live.frontier())
        if frontier is None:
            return None
        stores.wait(require_same_history(ledger, frontier))
        own = _with_views(apart(config, scratch), scratch / _FILE_NAME)
        with (
            session(config, config.state_dir / _DIRECTORY) as spark,
            closing(stores, open_views(own)) as recomputed,
        ):
            follower = Follower(
                spark,
                own,
                ledger,
                recomputed,
                partial(views_at, scratch / _FILE_NAME),
                stores=stores,
                on_progress=on_progress,
                stop=stop,
            )
            comparable = partial(_require_comparable, live, recomputed)
            on_progress(RECOMPUTE, 0, frontier.ingress_sequence)
            follower.follow(frontier, check=lambda: stores.wait(comparable()))
            with moment(stores, live) as now:
                assert now.frontier is not None
                follower.follow(now.frontier)
                if stop.is_set():
                    return None
                with moment(stores, recomputed) as anew:
                    told = partial(on_progress, COMPARE, total=None)
                    return stores.wait(compare(now, anew, limit=limit, on_progress=told))


async def _require_comparable(live: ViewsStore, recomputed: ViewsStore) -> None:
    async with live.snapshot() as now, recomputed.snapshot() as anew:
        require_same_definitions(now.views, anew.views)


def _with_views(config: Config, path: Path) -> Config:
    store = config.view_store.model_copy(update={"url": f"{SQLITE_SCHEME}{path}"})
    return config.model_copy(update={"view_store": store})


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
