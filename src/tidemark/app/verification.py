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
    moment,
    own_session,
)
from tidemark.app.store_loop import StoreLoop, closing
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.errors import ConfigError
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.sqlite_connection import make_private_directory
from tidemark.ops.verification import Verification, compare, require_same_definitions
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.pipeline.running import require_same_history
from tidemark.pipeline.session_options import is_local
from tidemark.views.opening import open_views, views_place
from tidemark.views.port import ViewsStore
from tidemark.views.replicas import ViewsBeside

_DIRECTORY: Final = "verify"
_FILE_NAME: Final = "views.db"
_SCRATCH: Final = "scratch-"
_SCHEMA_PREFIX: Final = "tidemark_verify_"


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
        StoreLoop() as stores,
        _scratch(config, stores) as (scratch, second),
        closing(stores, open_ledger(config, SystemClock())) as ledger,
        closing(stores, open_views(config)) as live,
    ):
        frontier = stores.wait(live.frontier())
        if frontier is None:
            return None
        stores.wait(require_same_history(ledger, frontier))
        with (
            session(config, config.state_dir / _DIRECTORY) as spark,
            closing(stores, second.open()) as recomputed,
        ):
            follower = Follower(
                spark,
                apart(config, scratch),
                ledger,
                recomputed,
                second.opener(),
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


@contextlib.contextmanager
def _scratch(config: Config, stores: StoreLoop) -> Iterator[tuple[Path, ViewsBeside]]:
    """A directory and views, which are removed at the end or, after a crash, by the next one."""
    parent = config.state_dir / _DIRECTORY
    try:
        make_private_directory(parent)
        for left in parent.glob(f"{_SCRATCH}*"):
            with _locked(left) as is_ours:
                if is_ours:
                    stores.wait(_second(config, left).drop())
                    shutil.rmtree(left, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent)).absolute()
    except OSError as error:
        raise ConfigError(
            f"there is no room for a second set of views in {parent}: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
    second = _second(config, directory)
    with _locked(directory):
        try:
            yield directory, second
        finally:
            # What cannot be dropped now is dropped by the next one, which finds the directory.
            with contextlib.suppress(ViewsUnavailable):
                stores.wait(second.drop())
                shutil.rmtree(directory, ignore_errors=True)


def _second(config: Config, directory: Path) -> ViewsBeside:
    """In a file; but on a cluster tasks read them from other machines, and so they are in the
    database of the live ones, where those are in one."""
    live = views_place(config)
    is_shared = isinstance(live, str) and not is_local(config.spark.master)
    schema = f"{_SCHEMA_PREFIX}{directory.name.removeprefix(_SCRATCH)}"
    return ViewsBeside(live if is_shared else directory / _FILE_NAME, schema)


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
