"""Follows the log of changes for all subscribers of this process.

One source for each view that somebody watches. A subscriber is brought to where the source stands,
from a snapshot or from the log, and joins it there: from then on every commit reaches it whole.
No row is kept in memory for that; a snapshot is a query as of one moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from tidemark.errors import TidemarkError
from tidemark.live.engine.changes import ChangedRow
from tidemark.live.engine.source import Counters, Source, Subscriber
from tidemark.live.engine.transitions import Projection
from tidemark.live.errors import CannotResume, TooManySubscriptions, ViewNotReady
from tidemark.live.filters import Filter
from tidemark.live.snapshots import Beginner, Snapshots
from tidemark.pipeline.output.errors import (
    BeyondFrontier,
    ChangesForgotten,
    UnknownView,
    ViewsUnavailable,
)
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.port import ChangePage, ViewsStore

log = logging.getLogger(__name__)

CHANGES_AT_ONCE: Final = 5_000
AWAY_PAUSE_S: Final = 0.5
# How long subscribers are told of changes before others get their turn.
BUSY_S: Final = 0.005


class HubLimits(msgspec.Struct, frozen=True):
    max_subscriptions: int = 10_000
    max_snapshot_rows: int = 200_000


class ViewCounts(msgspec.Struct, frozen=True):
    """`rows_visible` are those that subscribers see, added up, who began with a snapshot."""

    view: str
    counters: Counters
    rows_visible: int


class Watcher(Subscriber, Beginner, Protocol):
    """A subscriber as the hub knows it. It takes nothing that is not later than `since`.

    `rows_visible` is None for one that resumed: how many it had, only its client knows. It may have
    seen changes up to `may_know_to` before it was cut off.
    """

    since: int
    rows_visible: int | None
    may_know_to: int

    @property
    def wants_progress(self) -> bool: ...

    @property
    def is_behind(self) -> bool:
        """Whether anything waits for its client to read on."""

    def reached(self, received_at: int) -> None:
        """Everything up to this time was taken."""

    def beat(self, received_at: int) -> None:
        """The same, to be told even if nothing is new."""

    def end(self, error: TidemarkError) -> None:
        """The hub cannot go on for it."""


class _Followed:
    """A view that is watched: its source, and up to when it has published."""

    def __init__(self, schema: ViewSchema, position: int) -> None:
        self.schema = schema
        self.source = Source(schema)
        self.position = position
        # All that keep the source, and those of them that have come to where it is.
        self.watchers: set[Watcher] = set()
        self.joined: set[Watcher] = set()


class Hub:
    """All subscriptions of a process. `run` must be running for them to hear of anything."""

    def __init__(
        self,
        schemas: Mapping[str, ViewSchema],
        open_store: Callable[[], Awaitable[ViewsStore]],
        *,
        poll_s: float,
        heartbeat_s: float,
        limits: HubLimits | None = None,
    ) -> None:
        self._schemas = schemas
        self._open_store = open_store
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._limits = limits or HubLimits()
        self._followed: dict[str, _Followed] = {}
        # What sources that nobody follows any more have done.
        self._past: dict[str, Counters] = {}
        self._attached = 0
        self._snapshots = Snapshots(schemas, max_rows=self._limits.max_snapshot_rows)
        self._someone = asyncio.Event()
        # Why nothing is published at the moment, if the store is away.
        self.trouble: TidemarkError | None = None

    def counts(self) -> Iterator[ViewCounts]:
        """What each view that is watched has had to do since this hub began."""
        for view, followed in self._followed.items():
            counters = followed.source.counters.after(self._past.get(view))
            rows = sum(watcher.rows_visible or 0 for watcher in followed.joined)
            yield ViewCounts(view, counters, rows)

    @contextlib.asynccontextmanager
    async def attached(
        self, view: str, wanted: Filter, watcher: Watcher, after: int | None
    ) -> AsyncIterator[None]:
        """Brings a watcher to the present and keeps it there while the block lasts.

        Without `after` it gets the rows there are, with it all that changed since.
        Raises `TooManySubscriptions`, `CannotResume`, `SnapshotTooLarge`, `ViewNotReady` or
        `ViewsUnavailable`.
        """
        if self._attached >= self._limits.max_subscriptions:
            raise TooManySubscriptions(
                f"there are {self._attached} subscriptions in this process already",
                hint="Try again later, or raise live.max_subscriptions.",
            )
        self._attached += 1
        followed: _Followed | None = None
        try:
            store = await self._open_store()
            with _as_refusals(view):
                if after is None:
                    watcher.rows_visible = 0
                    reached = head = await self._snapshots.send(store, view, wanted, watcher)
                else:
                    reached, head = after, await _resumable_head(store, after)
                    watcher.may_know_to = head
                followed = self._follow(view, head)
                followed.watchers.add(watcher)
                await self._catch_up(store, followed, wanted, watcher, reached)
            # Nothing was awaited since the watcher was found to be where the source is.
            membership = followed.source.join(wanted, watcher.projection, watcher)
            followed.joined.add(watcher)
            try:
                watcher.reached(max(watcher.since, followed.position))
                yield
            finally:
                followed.joined.discard(watcher)
                membership.leave()
        finally:
            self._attached -= 1
            if followed is not None:
                self._release(followed, watcher)

    async def run(self) -> None:
        """Publishes what is committed, for as long as somebody watches."""
        loop = asyncio.get_running_loop()
        next_beat = loop.time() + self._heartbeat_s
        while True:
            await self._someone.wait()
            pause_s = AWAY_PAUSE_S
            try:
                pause_s = 0 if await self.look() else self._poll_s
                self.trouble = None
            except ViewsUnavailable as error:
                if self.trouble is None:
                    log.warning("subscriptions wait: %s", error.message)
                self.trouble = error
            except Exception:
                # Whoever stayed would wait in vain for what could not be published.
                log.exception("the log of changes could not be followed")
                for followed in list(self._followed.values()):
                    self._end_all(followed, _interrupted(followed.schema.name))
            if loop.time() >= next_beat:
                next_beat = loop.time() + self._heartbeat_s
                self.beat()
            await asyncio.sleep(pause_s)

    async def look(self) -> bool:
        """Publishes what was committed since the last look; whether there may be more."""
        # Those who begin while this waits may be ahead of what it finds.
        watched = list(self._followed.values())
        store = await self._open_store()
        frontier = await store.frontier()
        head = 0 if frontier is None else frontier.received_at
        moved = False
        for followed in watched:
            if followed.position > head:
                self._end_all(followed, _rebuilt(followed.schema.name))
            elif followed.position < head:
                moved |= await self._publish_up_to(store, followed, head)
        return moved

    async def _publish_up_to(self, store: ViewsStore, followed: _Followed, head: int) -> bool:
        """One page, so that no view keeps the others waiting; whether there is more."""
        view = followed.schema.name
        try:
            page = await store.read_changes(view, followed.position, head, limit=CHANGES_AT_ONCE)
        except (ChangesForgotten, BeyondFrontier, UnknownView):
            self._end_all(followed, _rebuilt(view))
            return False
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            for received_at, changes in _commits(page):
                followed.source.publish(received_at, changes)
                followed.position = received_at
                if clock() - began > BUSY_S:
                    # Whoever joins meanwhile joins behind this commit.
                    await asyncio.sleep(0)
                    began = clock()
        except Exception:
            # Some have got it and some have not; those of other views shall not suffer for it.
            log.exception("the changes of %s could not be published", view)
            self._end_all(followed, _broken(view))
            return False
        followed.position = page.scanned_to
        return not page.complete

    def beat(self) -> None:
        """Tells those who want to know up to when they have everything."""
        for followed in self._followed.values():
            for watcher in list(followed.joined):
                watcher.beat(max(watcher.since, followed.position))

    async def _catch_up(
        self,
        store: ViewsStore,
        followed: _Followed,
        wanted: Filter,
        watcher: Watcher,
        reached: int,
    ) -> None:
        """Replays the log for one watcher until it is where the source is, or beyond."""
        view = followed.schema.name
        watcher.since = reached
        alone = Source(followed.schema)
        projection = watcher.projection
        if not watcher.wants_progress:
            projection = _Whole(followed.schema, projection)
        alone.join(wanted, projection, watcher)
        while watcher.since < followed.position:
            page = await store.read_changes(
                view, watcher.since, followed.position, limit=CHANGES_AT_ONCE
            )
            for received_at, changes in _commits(page):
                alone.publish(received_at, changes)
                if watcher.is_behind:
                    await watcher.room()
            watcher.since = max(watcher.since, page.scanned_to)
            await watcher.room()

    def _follow(self, view: str, position: int) -> _Followed:
        followed = self._followed.get(view)
        if followed is None:
            followed = self._followed[view] = _Followed(self._schemas[view], position)
            self._someone.set()
        return followed

    def _release(self, followed: _Followed, watcher: Watcher) -> None:
        followed.watchers.discard(watcher)
        if not followed.watchers:
            self._forget(followed)

    def _end_all(self, followed: _Followed, error: TidemarkError) -> None:
        self._forget(followed)
        for watcher in list(followed.watchers):
            watcher.end(error)

    def _forget(self, followed: _Followed) -> None:
        name = followed.schema.name
        if self._followed.get(name) is not followed:
            return
        self._past[name] = followed.source.counters.after(self._past.get(name))
        del self._followed[name]
        if not self._followed:
            self._someone.clear()


class _Whole:
    """A projection that takes a change of any column for one of its own.

    A client that resumes by timestamp may have been cut off in its snapshot: a row that it lacks is
    told by any change of it, also by one of which it has selected nothing.
    """

    def __init__(self, schema: ViewSchema, selected: Projection) -> None:
        self.key = selected.key
        self.columns = frozenset(column.name for column in schema.visible)
        self._selected = selected
        self._named = selected.columns | frozenset(schema.key)

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        named = [name for name in fields if name in self._named]
        return self._selected.render(operation, members, named, timestamp)


def _commits(page: ChangePage) -> Iterator[tuple[int, list[ChangedRow]]]:
    for received_at, changes in groupby(page.changes, key=attrgetter("received_at")):
        yield received_at, [ChangedRow.of(change) for change in changes]


async def _resumable_head(store: ViewsStore, after: int) -> int:
    """Up to when the log goes that a subscription wants to go on in."""
    frontier = await store.frontier()
    head = 0 if frontier is None else frontier.received_at
    if after > head:
        raise CannotResume(
            f"{after} is later than the last commit of the views, {head}",
            hint="The views were built anew or restored. Subscribe without `after`.",
            field="after",
        )
    return head


@contextlib.contextmanager
def _as_refusals(view: str) -> Iterator[None]:
    try:
        yield
    except ChangesForgotten as error:
        raise CannotResume(
            f"the log of {view} does not reach back that far: {error.message}",
            hint="Subscribe without `after` and begin with the rows there are.",
            field="after",
        ) from error
    except UnknownView as error:
        raise ViewNotReady(
            f"the pipeline has not built {view} yet",
            hint="Try again in a while; `tidemark status` and /readyz say how far it is.",
        ) from error


def _interrupted(view: str) -> ViewNotReady:
    return ViewNotReady(
        f"the changes of {view} could not be followed", hint="Subscribe again; `after` goes on."
    )


def _rebuilt(view: str) -> CannotResume:
    return CannotResume(
        f"the log of {view} does not go on from where this subscription is",
        hint="The views were built anew. Subscribe again without `after`.",
    )


def _broken(view: str) -> TidemarkError:
    return TidemarkError(
        f"an error of our own making ended the subscriptions to {view}",
        hint="The server's log has the details. Resume after the last PROGRESS, or begin anew.",
    )
