"""One view as its subscribers follow it: whatever they have in common is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from tidemark.live.engine.changes import ChangedRow, Row, RowReader
from tidemark.live.engine.index import Indexed, PredicateIndex
from tidemark.live.engine.transitions import Item, Projection, Selected
from tidemark.live.filters import Filter, compile_predicate
from tidemark.pipeline.output.schema import ViewSchema


class Subscriber(Protocol):
    """Whoever hears of changes. It may leave, and others may join, while it is being told."""

    def take(self, received_at: int, items: Sequence[Item]) -> None:
        """All that one commit has for it. Others share the items and the sequence: keep, do not
        change. It must not raise.
        """


class Counters(msgspec.Struct):
    """What a source has to do now, and what it has done since it began.

    `evaluations` is how often a filter was evaluated, `skipped` how often it need not be evaluated
    for the row before a change as no column of it had changed, `shared` how many items went to one
    more subscriber with the same filter and selection.
    """

    filters: int = 0
    feeds: int = 0
    subscribers: int = 0
    changes: int = 0
    evaluations: int = 0
    skipped: int = 0
    shared: int = 0

    def after(self, before: Counters | None) -> Counters:
        """The same with what an earlier source of the view has done."""
        if before is None:
            return self
        return msgspec.structs.replace(
            self,
            changes=self.changes + before.changes,
            evaluations=self.evaluations + before.evaluations,
            skipped=self.skipped + before.skipped,
            shared=self.shared + before.shared,
        )


class Source:
    """The filters, feeds and subscribers of one view. It keeps no rows."""

    def __init__(self, schema: ViewSchema) -> None:
        self.schema = schema
        self.counters = Counters()
        self._filters: dict[str, _SharedFilter] = {}
        self._index = PredicateIndex[_SharedFilter](schema)
        # It lives as long as a feed needs it.
        self._projections: WeakValueDictionary[str, Selected] = WeakValueDictionary()
        self._read_columns: frozenset[str] = frozenset()
        self._reader = RowReader(schema, ())
        self._published_to: int | None = None

    def join(
        self, row_filter: Filter, projection: Projection, subscriber: Subscriber
    ) -> Membership:
        """From the next commit on the subscriber takes what the filter lets through."""
        if row_filter.view != self.schema.name:
            raise ValueError(f"a filter of {row_filter.view} for {self.schema.name}")
        shared = self._filters.get(row_filter.key)
        if shared is None:
            shared = _SharedFilter(self.schema, row_filter)
            self._filters[row_filter.key] = shared
            self._index.add(shared)
            self.counters.filters += 1
        feed = shared.feeds.get(projection.key)
        if feed is None:
            feed = _Feed(self._selected(projection))
            shared.feeds[projection.key] = feed
            shared.watched |= projection.columns
            self.counters.feeds += 1
        membership = Membership(self, row_filter.key, projection.key, subscriber)
        feed.members[membership] = None
        feed.listening = None
        self.counters.subscribers += 1
        return membership

    def publish(self, received_at: int, changes: Sequence[ChangedRow]) -> None:
        """Tells the subscribers of one whole commit. Commits come in order, each but once."""
        if self._published_to is not None and received_at <= self._published_to:
            raise ValueError(f"{received_at} is not after {self._published_to}")
        self._published_to = received_at
        self.counters.changes += len(changes)
        if not self._filters:
            return
        self._keep_reader_current()
        touched: list[_Feed] = []
        for change in changes:
            self._spread(change, touched)
        # Who joins while others are told begins with the next commit, like whoever joins later.
        listening = [feed.all_listening() for feed in touched]
        for feed, members in zip(touched, listening, strict=True):
            items, feed.items = feed.items, []
            self.counters.shared += len(items) * (len(members) - 1)
            for membership in members:
                if not membership.ended:
                    membership.subscriber.take(received_at, items)

    def _spread(self, change: ChangedRow, touched: list[_Feed]) -> None:
        old, new, changed = self._values(change)
        affected = self._index.affected(old, new, changed)
        for shared in affected.stayed:
            for feed in shared.feeds.values():
                item = feed.selected.stayed(change)
                if item is not None:
                    feed.keep(item, touched)
        for shared in affected.entered:
            for feed in shared.feeds.values():
                feed.keep(feed.selected.entered(change), touched)
        for shared in affected.left:
            for feed in shared.feeds.values():
                feed.keep(feed.selected.left(change), touched)
        self.counters.evaluations += affected.evaluations
        self.counters.skipped += affected.skipped

    def _values(self, change: ChangedRow) -> tuple[Row | None, Row | None, frozenset[str]]:
        read = self._reader.read
        new = None if change.new is None else read(change.new)
        if change.old is None:
            return None, new, _NOTHING
        if new is None:
            return read(change.old), None, _NOTHING
        changed = frozenset(change.changed)
        if changed.isdisjoint(self._read_columns):
            return new, new, changed
        return read(change.old), new, changed

    def _keep_reader_current(self) -> None:
        if self._index.columns != self._read_columns:
            self._read_columns = frozenset(self._index.columns)
            self._reader = RowReader(self.schema, self._read_columns)

    def _selected(self, projection: Projection) -> Selected:
        selected = self._projections.get(projection.key)
        if selected is None:
            selected = self._projections[projection.key] = Selected(projection, self.schema.key)
        return selected

    def _leave(self, membership: Membership) -> None:
        shared = self._filters[membership.filter_key]
        feed = shared.feeds[membership.projection_key]
        del feed.members[membership]
        feed.listening = None
        self.counters.subscribers -= 1
        if feed.members:
            return
        del shared.feeds[membership.projection_key]
        self.counters.feeds -= 1
        if not shared.feeds:
            del self._filters[membership.filter_key]
            self._index.remove(shared)
            self.counters.filters -= 1


class Membership:
    """That somebody follows a source, until they leave."""

    __slots__ = ("_source", "ended", "filter_key", "projection_key", "subscriber")

    def __init__(
        self, source: Source, filter_key: str, projection_key: str, subscriber: Subscriber
    ) -> None:
        self._source = source
        self.filter_key = filter_key
        self.projection_key = projection_key
        self.subscriber = subscriber
        self.ended = False

    def leave(self) -> None:
        """Nothing is taken any more, not even of a commit that is just being handed out."""
        if not self.ended:
            self.ended = True
            self._source._leave(self)


_NOTHING: frozenset[str] = frozenset()


class _SharedFilter(Indexed):
    """A filter, for all who have it."""

    __slots__ = ("feeds",)

    def __init__(self, schema: ViewSchema, row_filter: Filter) -> None:
        super().__init__(row_filter.node, row_filter.columns, compile_predicate(schema, row_filter))
        self.feeds: dict[str, _Feed] = {}


class _Feed:
    """What all who have a filter and a projection in common are told."""

    __slots__ = ("items", "listening", "members", "selected")

    def __init__(self, selected: Selected) -> None:
        self.selected = selected
        self.members: dict[Membership, None] = {}
        # The members, until one joins or leaves: with many feeds, what is made anew for each commit
        # costs more in collecting the garbage than in making it.
        self.listening: tuple[Membership, ...] | None = None
        self.items: list[Item] = []

    def all_listening(self) -> tuple[Membership, ...]:
        if self.listening is None:
            self.listening = tuple(self.members)
        return self.listening

    def keep(self, item: Item, touched: list[_Feed]) -> None:
        if not self.items:
            touched.append(self)
        self.items.append(item)
