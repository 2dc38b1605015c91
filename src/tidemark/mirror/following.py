"""From the ledger into Kafka, as the ledger grows.

Nothing that is known here outlives a failure: where to go on is read from the topics each time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.errors import LedgerUnavailable
from tidemark.ledger.port import (
    CommitRow,
    CopyState,
    EventText,
    LedgerStore,
    PlacedEvents,
    TextTooLarge,
)
from tidemark.ledger.spelling import spelt
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.hanging import end_hanging
from tidemark.mirror.messages import MOST_COMMITS, CommitRecord, Target
from tidemark.mirror.places import PlaceColumns, place_in
from tidemark.mirror.position import (
    commits_after,
    count_there,
    is_at,
    last_commit,
    last_commits,
    places_in,
    reading,
)
from tidemark.mirror.sending import Places, Sender, Stopped
from tidemark.mirror.topics import Topics

COPY_NAME: Final = "mirror"
MOST_EVENTS: Final = 20_000
FIRST_COMMITS: Final = 50
CHUNKS_AHEAD: Final = 2
LOOK_EVERY_S: Final = 0.05
TELL_EVERY_US: Final = MICROS_PER_SECOND
CHECK_EVERY_US: Final = 60 * MICROS_PER_SECOND
FIRST_PAGE_EVENTS: Final = 2_000
PAGE_BYTES: Final = 16 * 1024 * 1024
MOST_BYTES: Final = 4 * PAGE_BYTES

T = TypeVar("T")


class Mirror:
    """One attempt. Made anew, `begin` first, after anything was raised."""

    def __init__(
        self,
        config: Config,
        ledger: LedgerStore,
        clock: Clock,
        *,
        loop: asyncio.AbstractEventLoop,
        stop: threading.Event,
    ) -> None:
        """`loop` is where the ledger lives; it must run while the mirror does."""
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._loop = loop
        self._stop = stop
        self._reader = CommitReader(ledger)
        self._topics = Topics(config)
        self._sender = Sender(config, ledger.ledger_id, self._topics, stop.is_set)
        self._totals: dict[str, int] = {}
        self.last_sequence = 0
        self.received_at = 0
        # As of a moment ago, for those who watch.
        self._there_are = 0
        self._ahead: Generator[Chunk] = self._read_ahead()
        # Where what was mirrored last is, is written down while the next is sent.
        self._placing: Future[None] = Future()
        self._placing.set_result(None)
        self._told_us: int | None = None
        self._checked_us = 0

    def begin(self) -> None:
        """Takes over from whoever mirrored this ledger before, and finds where that one was."""
        self._topics.ensure(
            [self._topics.commits, *map(self._topics.name_of, self._config.streams)]
        )
        self._sender.begin()
        with reading(self._config) as consumer:
            self._end_hanging(consumer)
            self._sender.foresee_commits()
            last = last_commit(consumer, self._topics.commits)
            if last is not None:
                self._go_on_from(last, consumer)
                self._require_told_is_there(consumer)
            else:
                self._topics.require_new_commits(consumer)
            self._recover_places(consumer)
        self._checked_us = self._clock.elapsed_us()

    def run(
        self,
        *,
        until_caught_up: bool,
        on_progress: Callable[[int, int], None],
    ) -> None:
        """Mirrors until it is stopped, or all that the ledger has now is there."""
        head = self._wait(self._ledger.head())
        self._there_are = head.last_sequence
        upto = head.received_at if until_caught_up else None
        self._ahead = self._read_ahead()
        while not self._stop.is_set():
            chunk = next(self._ahead)
            if chunk.commits:
                self._mirror(chunk)
                on_progress(self.last_sequence, max(self.last_sequence, self._there_are))
            if upto is not None and self.received_at >= upto:
                self._tell(at_once=True)
                return
            self._tell()
            self._check_topics()
            if not chunk.commits:
                self._stop.wait(LOOK_EVERY_S)
                self._ahead = self._read_ahead()
        self._placing.result()

    def close(self) -> None:
        """Ends what was begun."""
        self._ahead.close()
        self._sender.close()
        # What it says comes too late. Whoever comes next finds places as they are.
        self._placing.exception()

    def _end_hanging(self, consumer: Consumer) -> None:
        last = last_commit(consumer, self._topics.commits)
        topics = {self._topics.commits, *map(self._topics.name_of, self._config.streams)}
        if last is not None:
            # Nothing is written to topics of others.
            self._require_ours(last)
            # One that is gone is told of below.
            topics.update(filter(self._topics.exists, last.totals.keys() - topics))
        end_hanging(
            self._config,
            self._topics.admin,
            [(topic, n) for topic in topics for n in range(self._topics.partitions_of(topic))],
            commits_topic=self._topics.commits,
            consumer=consumer,
            end=self._sender.end,
        )

    def _require_ours(self, last: CommitRecord) -> None:
        if last.ledger_id != self._ledger.ledger_id:
            raise MirrorRefused(
                f"{self._topics.commits} is of the ledger {last.ledger_id}, and this is"
                f" {self._ledger.ledger_id}",
                hint="Two ledgers cannot share topics: set mirror.topic_prefix.",
                field="mirror.topic_prefix",
            )

    def _go_on_from(self, last: CommitRecord, consumer: Consumer) -> None:
        self._require_ours(last)
        received_at = last.received_at_us
        commits = self._wait(self._ledger.read_commits(received_at - 1, 1))
        found = commits[0] if commits else None
        if found is None or (found.received_at, found.last_sequence, found.chain.hex()) != (
            received_at,
            last.last_sequence,
            last.chain,
        ):
            raise MirrorRefused(
                f"the topics hold {last.last_sequence:,} events, and the last of their commits is"
                " not in this ledger",
                hint="The ledger was restored from an old backup. Restore the newer one; or remove"
                " all topics of the mirror, or set mirror.topic_prefix, to have all events mirrored"
                " anew.",
                field="mirror.topic_prefix",
            )
        self._totals = {topic: int(total) for topic, total in last.totals.items()}
        self.last_sequence, self.received_at = last.last_sequence, received_at
        self._topics.require_whole(self._totals, consumer)

    def _require_told_is_there(self, consumer: Consumer) -> None:
        """What the last transaction has told of. Those before were looked at when it began."""
        if self._config.mirror.allow_short_retention:
            return
        commits = last_commits(consumer, self._topics.commits, MOST_COMMITS)[-MOST_COMMITS:]
        begin = commits[-1].last_sequence - MOST_EVENTS
        commits = [commit for commit in commits if commit.last_sequence > begin]
        told = sum(commit.last_sequence - int(commit.first) + 1 for commit in commits)
        there = count_there(consumer, commits)
        if there != told:
            raise MirrorRefused(
                f"of the last {told:,} events that commits tell of, {there:,} are in Kafka",
                hint="A broker has died while the mirror ended what another had left open, or"
                " somebody has removed messages. Remove all topics of the mirror, and all events"
                " are mirrored anew; or set mirror.topic_prefix to begin beside them.",
                field="mirror.topic_prefix",
            )

    def _recover_places(self, consumer: Consumer) -> None:
        """Whoever died after a transaction was committed has not told where its events are."""
        known = self._wait(self._ledger.placed_upto())
        if known > self.last_sequence:
            self._wait(self._ledger.forget_places(self.last_sequence))
            known = self._wait(self._ledger.placed_upto())
        if known and not self._is_placed(known, consumer):
            self._wait(self._ledger.forget_places(0))
            known = 0
        if known == self.last_sequence:
            return
        for commits in commits_after(consumer, self._topics.commits, known):
            first, last = int(commits[0].first), commits[-1].last_sequence
            columns = PlaceColumns.unknown(last - first + 1)
            for sequence, place in places_in(consumer, commits):
                columns.put(sequence - first, place)
            if first <= last:
                self._wait(self._ledger.place_events(PlacedEvents(first, last, columns.packed())))

    def _is_placed(self, sequence: int, consumer: Consumer) -> bool:
        """Whether an event is where it is said to be: that may be of other topics, before
        mirror.topic_prefix or the brokers were changed."""
        placed = self._wait(self._ledger.places_of(sequence))
        if placed is None:
            return False
        place = place_in(placed, sequence)
        text = self._wait(self._ledger.read_text(sequence - 1, sequence))
        [stream] = spelt([text], sequence - 1, sequence).streams
        topic = self._topics.name_of(stream)
        return place.partition < self._topics.partitions_of(topic) and is_at(
            consumer, sequence, topic, place
        )

    def _mirror(self, chunk: Chunk) -> None:
        try:
            places = self._sender.send(chunk, self._totals)
        except Stopped:
            return
        last = chunk.commits[-1]
        if chunk.events.values:
            self._placing.result()
            self._placing = self._begun(
                self._place(chunk.events.first_sequence, last.last_sequence, places)
            )
        self.last_sequence, self.received_at = last.last_sequence, last.received_at

    async def _place(self, first: int, last: int, places: Places) -> None:
        packed = await asyncio.to_thread(lambda: places().packed())
        await self._ledger.place_events(PlacedEvents(first, last, packed))
        crash_point("mirror.placed")

    def _check_topics(self) -> None:
        """Now and then: a topic may be removed, or made to forget."""
        if self._clock.elapsed_us() - self._checked_us < CHECK_EVERY_US:
            return
        self._checked_us = self._clock.elapsed_us()
        # Before those are made anew that are gone.
        with reading(self._config) as consumer:
            self._topics.require_whole(self._totals, consumer)
        self._topics.ensure([self._topics.commits, *self._totals])

    def _tell(self, *, at_once: bool = False) -> None:
        now_us = self._clock.elapsed_us()
        if not at_once and self._told_us is not None and now_us - self._told_us < TELL_EVERY_US:
            return
        self._told_us = now_us
        self._placing.result()
        self._wait(self._ledger.tell_copy(self.state()))
        self._there_are = self._wait(self._ledger.head()).last_sequence

    def state(self) -> CopyState:
        return CopyState(COPY_NAME, self.last_sequence, self.received_at, self._clock.wall_us())

    def _read_ahead(self) -> Generator[Chunk]:
        """What is to be mirrored next, read and spelt while what is before it is sent.

        The last one is empty.
        """
        read = self._begun(self._reader.after(self.received_at))
        waiting = deque([self._begun(self._made_ready(read))])
        try:
            while waiting:
                chunk = waiting.popleft().result()
                while chunk.commits and len(waiting) < CHUNKS_AHEAD:
                    read = self._begun(self._read_behind(read))
                    waiting.append(self._begun(self._made_ready(read)))
                yield chunk
        finally:
            for unused in waiting:
                unused.cancel()

    async def _read_behind(self, before: Future[Read]) -> Read:
        read = await asyncio.wrap_future(before)
        return await self._reader.after(read.commits[-1].received_at) if read.commits else read

    async def _made_ready(self, read: Future[Read]) -> Chunk:
        # Arrow works without Python's lock, and so beside whoever sends and whoever reads.
        found = await asyncio.wrap_future(read)
        return await asyncio.to_thread(found.chunk, self._sender.partitions)

    def _begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._begun(work).result()


class Read(NamedTuple):
    """Commits that follow one another, and the texts of their events and perhaps of some more."""

    commits: Sequence[CommitRow]
    texts: Sequence[EventText]
    after: int
    upto: int

    def chunk(self, partitions: Mapping[str, Sequence[Target]]) -> Chunk:
        """`partitions` has those of each stream, as far as they are known."""
        events = spelt(self.texts, self.after, self.upto)
        last = self.commits[-1].last_sequence if self.commits else 0
        return Chunk.of(self.commits, events.upto(last), partitions)


class CommitReader:
    """The next commits of a ledger, as many as are sent at once."""

    def __init__(self, ledger: LedgerStore) -> None:
        self._ledger = ledger
        self._events_a_page = FIRST_PAGE_EVENTS
        self._commits_wanted = FIRST_COMMITS

    async def after(self, received_at: int) -> Read:
        commits: list[CommitRow] = []
        for commit in await self._ledger.read_commits(received_at, self._commits_wanted):
            if commits and commit.last_sequence - commits[0].first_sequence >= MOST_EVENTS:
                break
            commits.append(commit)
        if not commits:
            return Read([], [], 0, 0)
        # Hardly more than are taken: a row is read with Python's lock, which others want.
        self._commits_wanted = min(MOST_COMMITS, len(commits) * 5 // 4 + FIRST_COMMITS)
        after = position = commits[0].first_sequence - 1
        last = commits[-1].last_sequence
        texts: list[EventText] = []
        size = 0
        while position < last and (size < MOST_BYTES or position < commits[0].last_sequence):
            upto = min(last, position + self._events_a_page)
            try:
                text = await self._ledger.read_text(position, upto)
            except TextTooLarge as error:
                if upto == position + 1:
                    raise LedgerUnavailable(
                        f"the event {upto:,} is too large to be mirrored",
                        hint="No event as large is let in. Look at who has written it.",
                    ) from error
                self._events_a_page = (upto - position) // 2
                continue
            read = max(1, len(text.csv))
            # Events may be of any size: the next page is as large as the bytes of this one allow.
            self._events_a_page = max(1, min(MOST_EVENTS, PAGE_BYTES * (upto - position) // read))
            size += read
            texts.append(text)
            position = upto
        whole = [commit for commit in commits if commit.last_sequence <= position]
        return Read(whole, texts, after, position)
