"""A replay: the views as the configuration has them now, beside the live ones, and their swap.

A replay may be stopped and goes on where it was. A swap is recorded in the ledger first; it takes
effect at that commit. One that was interrupted in between is finished by asking for it again: the
record is found, and not made twice.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

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
from tidemark.app.high_water import HighWater
from tidemark.app.landing import landed_blocks
from tidemark.app.only_one import only_one
from tidemark.app.pipeline import only_one_pipeline
from tidemark.app.store_loop import StoreLoop, closing
from tidemark.canonical import canonical_json, content_hash
from tidemark.clock import SystemClock
from tidemark.config import Config
from tidemark.config.names import OWN_STREAMS
from tidemark.crash import crash_point
from tidemark.errors import TidemarkError
from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.ingress.identity import Identity
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import EventFilter, LedgerStore
from tidemark.ops.replaying import Differences, differences, plan_swap, swap_parts
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import DefinitionChanged
from tidemark.pipeline.running import require_same_history
from tidemark.views.opening import open_views
from tidemark.views.port import ViewsStore
from tidemark.views.replicas import Replica, replicas
from tidemark.views.swapping import OldView, Swap, SwapPart

# Who a swap belongs to in the ledger, where every event has a tenant and a stream.
SWAP_TENANT: Final = "tidemark"
SWAP_STREAM: Final = f"{OWN_STREAMS}swaps"

_SWAPS_AT_ONCE: Final = 100
_LOCK_NAME: Final = "replay.lock"


class ReplayRefused(TidemarkError):
    """What was asked for does not go with the views as they are."""

    code = "replay_refused"


class Swapped(msgspec.Struct, frozen=True):
    """A swap that was done, and the views that are others since."""

    frontier: Frontier
    views: list[str]


class Replayed(msgspec.Struct, frozen=True):
    """What a replay came to."""

    differences: Differences
    swapped: Swapped | None


class Kept(msgspec.Struct, frozen=True):
    """What there is beside the live views: replays, and what views were before swaps."""

    replays: list[tuple[str, Frontier | None]]
    old: list[OldView]


def replay_views(
    config: Config,
    name: str,
    *,
    swap: bool,
    limit: int,
    on_progress: OnProgress,
    stop: threading.Event,
    session: Session = own_session,
) -> Replayed | None:
    """Builds the views beside the live ones, or goes on with it; None if it was stopped.

    Raises `ReplayRefused`, `LedgerRewound`, and with `swap` `PipelineRunning`.
    """
    replica = Replica(config, name)
    if swap:
        _require_no_files(config)
    with (
        _only_one(replica.directory),
        only_one_pipeline(config.state_dir) if swap else contextlib.nullcontext(),
        StoreLoop() as stores,
        closing(stores, open_ledger(config, SystemClock())) as ledger,
        closing(stores, open_views(config)) as live,
    ):
        frontier = stores.wait(live.frontier())
        if frontier is None:
            raise ReplayRefused(
                "nothing was folded yet, so there is nothing to replay beside",
                hint="Start the pipeline: it builds the views as they are configured.",
            )
        stores.wait(require_same_history(ledger, frontier))
        with (
            closing(stores, replica.open()) as beside,
            session(config, replica.directory) as spark,
        ):
            stores.wait(_require_behind(name, beside, frontier, swap=swap))
            follower = Follower(
                spark,
                apart(config, replica.directory),
                ledger,
                beside,
                replica.opener(),
                stores=stores,
                on_progress=on_progress,
                stop=stop,
                blocks=landed_blocks(config, ledger.ledger_id),
            )
            work = _Replay(config, replica, ledger, live, beside, follower, stores, on_progress)
            with _told_of(name):
                found = work.differences(frontier, limit)
            if stop.is_set():
                return None
            swapped = None
            if swap and found.is_worth_a_swap:
                swapped = work.swap(found, stop)
                if swapped is None:
                    return None
        if swap:
            stores.wait(replica.drop())
        return Replayed(found, swapped)


def kept_beside(config: Config) -> Kept:
    """Everything that takes room beside the live views."""

    async def look() -> Kept:
        found = []
        for replica in await replicas(config):
            beside = await replica.open()
            try:
                found.append((replica.name, await beside.frontier()))
            finally:
                await beside.close()
        live = await open_views(config)
        try:
            return Kept(found, await live.old_views())
        finally:
            await live.close()

    with StoreLoop() as stores:
        return stores.wait(look())


def drop_beside(config: Config, name: str) -> list[OldView]:
    """Drops a replay, and what views were before it was swapped; says which those were."""
    replica = Replica(config, name)

    async def kept(live: ViewsStore) -> list[OldView]:
        old = [view for view in await live.old_views() if view.swap == name]
        if not old and not await replica.exists():
            raise ReplayRefused(
                f"there is no replay {name}, and nothing is kept of one",
                hint="`tidemark replay --list` shows what there is.",
                field="as",
            )
        return old

    with StoreLoop() as stores:
        with closing(stores, open_views(config)) as live:
            old = stores.wait(kept(live))
            with _only_one(replica.directory):
                stores.wait(live.drop_old(old))
        stores.wait(replica.drop())
        return old


class _Replay:
    """One replay, with everything that is open for it."""

    def __init__(
        self,
        config: Config,
        replica: Replica,
        ledger: LedgerStore,
        live: ViewsStore,
        beside: ViewsStore,
        follower: Follower,
        stores: StoreLoop,
        on_progress: OnProgress,
    ) -> None:
        self._config = config
        self._replica = replica
        self._ledger = ledger
        self._live = live
        self._beside = beside
        self._follower = follower
        self._stores = stores
        self._on_progress = on_progress

    def differences(self, frontier: Frontier, limit: int) -> Differences:
        self._on_progress(RECOMPUTE, 0, frontier.ingress_sequence)
        before = self._stores.wait(self._beside.frontier())
        if before is None or before.received_at <= frontier.received_at:
            self._follower.follow(frontier)
        with moment(self._stores, self._live) as now:
            assert now.frontier is not None
            if before is None or before.received_at <= now.frontier.received_at:
                self._follower.follow(now.frontier)
            with moment(self._stores, self._beside) as anew:
                told = partial(self._on_progress, COMPARE, total=None)
                found = self._stores.wait(differences(now, anew, limit=limit, on_progress=told))
        # Of its log a swap needs what the live views do not have yet.
        self._stores.wait(self._beside.prune_changes(found.frontier.received_at + 1))
        return found

    def swap(self, found: Differences, stop: threading.Event) -> Swapped | None:
        """None if it was stopped before there was anything to swap; asked again, it goes on."""
        wait = self._stores.wait
        with moment(self._stores, self._live) as now, moment(self._stores, self._beside) as anew:
            assert now.frontier is not None
            begun = wait(begun_swap(self._ledger, self._replica.name, now.frontier))
            planned = plan_swap(self._replica.name, now, anew, found, begun)
            before = {name: view.schema.definition_hash for name, view in now.views.items()}
        end = wait(record_swap(self._ledger, planned, before))
        crash_point("replay.recorded")
        self._follower.follow(end)
        if stop.is_set():
            return None
        state = wait(self._beside.read_pipeline_state())
        swap = msgspec.structs.replace(planned, end=end, state=state)
        wait(self._live.swap(swap, self._parts(swap)))
        HighWater(self._config).reached(end)
        return Swapped(end, [r.schema.name for r in swap.rebuilt if r.keeps_old])

    async def _parts(self, swap: Swap) -> AsyncIterator[SwapPart]:
        # Let go of before the end: PostgreSQL gives no table another name while it is read.
        async with self._live.snapshot() as now, self._beside.snapshot() as anew:
            async for part in swap_parts(swap, now, anew):
                yield part


async def begun_swap(ledger: LedgerStore, name: str, start: Frontier) -> dict[str, str] | None:
    """The views of a swap from there that is recorded already, with the definitions they get."""
    wanted = EventFilter(
        tenant_ids=(SWAP_TENANT,), stream=SWAP_STREAM, sequence_from=start.ingress_sequence + 1
    )
    begun: dict[str, str] | None = None
    after, is_complete = start.ingress_sequence, False
    while not is_complete:
        page = await ledger.read_events(wanted, after, _SWAPS_AT_ONCE)
        for event in page.events:
            if event.control != "swap":
                continue
            content = json.loads(event.data or "{}")
            if (content["name"], content["after"]) == (name, str(start.ingress_sequence)):
                begun = {view: change["to"] for view, change in content["views"].items()}
        after, is_complete = page.scanned_to, page.complete
    return begun


async def record_swap(ledger: LedgerStore, swap: Swap, before: dict[str, str]) -> Frontier:
    """The commit of the swap, made unless it is there already."""
    content = {
        "name": swap.name,
        "after": str(swap.start.ingress_sequence),
        "views": {
            rebuilt.schema.name: {
                "from": before.get(rebuilt.schema.name),
                "to": rebuilt.schema.definition_hash,
            }
            for rebuilt in swap.rebuilt
        },
    }
    digest = content_hash({"control": "swap", "tenantId": SWAP_TENANT, **content})
    subject = [swap.name, str(swap.start.ingress_sequence)]
    draft = Draft(
        tenant_id=SWAP_TENANT,
        stream=SWAP_STREAM,
        idempotency_key=Identity(ledger.salt).control_key(SWAP_TENANT, "swap", subject, digest),
        content_hash=digest,
        occurred_at=None,
        data=canonical_json(content).decode(),
        control="swap",
    )
    [[outcome]] = await ledger.append_group([Submission("swap", [draft])], no_corrections)
    assert outcome.received_at is not None, outcome
    [commit] = await ledger.read_commits(outcome.received_at - 1, 1)
    return Frontier(commit.last_sequence, commit.received_at, commit.chain, ledger.ledger_id)


def _require_no_files(config: Config) -> None:
    """A replay writes no streams in order, so the pipeline could not go on with them from there."""
    if config.pipeline.ordered:
        raise ReplayRefused(
            "a swap cannot go with streams that are written in order: "
            + ", ".join(sorted(config.pipeline.ordered)),
            hint="Empty the directories of these streams and build the views anew from the ledger,"
            " or do without pipeline.ordered.",
            field="pipeline.ordered",
        )


async def _require_behind(name: str, beside: ViewsStore, live: Frontier, *, swap: bool) -> None:
    frontier = await beside.frontier()
    if frontier is None:
        return
    if frontier.ledger_id != live.ledger_id:
        raise ReplayRefused(
            f"the replay {name} was made from another ledger",
            hint=f"Drop it: `tidemark replay --as {name} --drop`.",
        )
    if frontier.received_at > live.received_at and not swap:
        raise ReplayRefused(
            f"a swap of {name} was begun and not finished",
            hint="Finish it with --swap, or drop the replay with --drop.",
        )


@contextlib.contextmanager
def _told_of(name: str) -> Iterator[None]:
    """A definition that changed while it was replayed is that of the replay, not of the views."""
    try:
        yield
    except DefinitionChanged as error:
        raise ReplayRefused(
            f"the replay {name} was built with other definitions: {error.message}",
            hint=f"Drop it (`tidemark replay --as {name} --drop`), or use another name.",
            field=error.field,
        ) from error


def _only_one(directory: Path) -> AbstractContextManager[None]:
    worked_on = ReplayRefused(
        f"the replay {directory.name} is being worked on",
        hint="Wait until it has ended, or use another name.",
    )
    return only_one(directory / _LOCK_NAME, what="a replay", taken=worked_on)
