"""From the ledger into Kafka, as the ledger grows.

Where to go on is read from the topics each time: what is known here outlives a failure only to be
held against them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.ledger.port import CommitRow, LedgerStore, PlacedEvents
from tidemark.ledger.sequencer import Head
from tidemark.ledger.spelling import spelt
from tidemark.mirror.ahead import MOST_EVENTS, Ahead, CommitReader
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.errors import MirrorRefused, Stopped
from tidemark.mirror.hanging import end_hanging
from tidemark.mirror.known import Known
from tidemark.mirror.messages import MOST_COMMITS, CommitRecord, Target
from tidemark.mirror.places import UNKNOWN, Place, PlaceColumns, place_in
from tidemark.mirror.position import (
    commits_after,
    count_told_and_there,
    is_at,
    is_forgotten,
    last_commit,
    last_commits,
    last_ones,
    places_in,
    reading,
)
from tidemark.mirror.sending import Places, Sender
from tidemark.mirror.succession import BEGINNING, head_after
from tidemark.mirror.telling import MirrorTeller
from tidemark.mirror.topics import Topics

LOOK_EVERY_S: Final = 0.05
CHECK_EVERY_US: Final = 60 * MICROS_PER_SECOND

T = TypeVar("T")


class Mirror:
    """One attempt. Made anew, `begin` first, after anything was raised."""

    def __init__(
        self,
        config: Config,
        ledger: LedgerStore,
        clock: Clock,
        teller: MirrorTeller,
        known: Known,
        *,
        loop: asyncio.AbstractEventLoop,
        stop: threading.Event,
        has_failed: bool = False,
    ) -> None:
        """`known` is the same for all attempts of a process. `loop` is where the ledger lives; it
        must run while the mirror does. `has_failed` is whether the attempt before did."""
        self._config = config
        self._ledger = ledger
        self._clock = clock
        self._teller = teller
        self._known = known
        self._loop = loop
        self._stop = stop
        self._reader = CommitReader(ledger, few_first=has_failed)
        self._topics = Topics(config)
        self._sender: Sender
        self._opened = contextlib.ExitStack()
        self._totals: dict[str, int] = {}
        self.reached = BEGINNING
        # As of a moment ago, for those who watch.
        self._there_are = 0
        self._ahead: Ahead | None = None
        # Where what was mirrored last is, is written down while the next is sent; and so is how far
        # the mirror is.
        self._placing: Future[None] = _done()
        self._telling: Future[None] = _done()
        self._checked_us = 0

    def begin(self) -> None:
        """Takes over from whoever mirrored this ledger before, and finds where that one was."""
        with self._teller.step("taking over"):
            self._take_over()
        self._checked_us = self._clock.elapsed_us()

    def _take_over(self) -> None:
        self._topics.ensure(self._configured_topics())
        with reading(self._config) as consumer:
            # Whoever would be refused must not end a mirror that is at work.
            last = last_commit(consumer, self._topics.commits)
            if last is not None:
                self._in_ledger(last)
                self._topics.ensure(self._topics_there(last.totals))
                # What hangs is there too, and is ended below.
                with reading(self._config, sees_all=True) as of_all:
                    self._topics.require_whole(_totals_of(last), of_all)
                self._known.require_there(consumer, self._topics.commits)
            self._sender = Sender(
                self._config,
                self._ledger.ledger_id,
                self._topics,
                self._known,
                self._clock,
                self._stop.is_set,
            )
            self._opened.callback(self._sender.close)
            self._sender.begin()
            self._end_hanging(consumer)
            self._sender.foresee_commits()
            last = last_commit(consumer, self._topics.commits)
            if last is not None:
                self._go_on_from(last, consumer)
                self._require_told_is_there(consumer)
                self._known.require_there(consumer, self._topics.commits)
            else:
                self._known.forget()
                self._topics.require_new_commits(consumer)
            self._require_none_untold(consumer)
            self._recover_places(consumer)

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
        self._ahead = self._ahead_from_here()
        while not self._stop.is_set():
            chunk = self._ahead.take()
            if chunk.commits:
                self._mirror(chunk, self._ahead.make_ready)
                last = self.reached.last_sequence
                on_progress(last, max(last, self._there_are))
            if upto is not None and self.reached.received_at >= upto:
                self._tell(at_once=True)
                self._telling.result()
                return
            self._tell()
            self._check_topics()
            if not chunk.commits:
                self._ahead.close()
                self._stop.wait(LOOK_EVERY_S)
                self._ahead = self._ahead_from_here()
        self._placing.result()
        self._telling.result()

    def close(self) -> None:
        """Ends what was begun."""
        if self._ahead is not None:
            self._ahead.close()
        self._opened.close()
        # What they say comes too late. Whoever comes next finds places as they are.
        self._placing.exception()
        self._telling.exception()

    def _end_hanging(self, consumer: Consumer) -> None:
        last = last_commit(consumer, self._topics.commits)
        if last is not None:
            # Nothing is written to topics of others.
            self._require_ours(last)
        end_hanging(
            self._config,
            self._topics.admin,
            self._partitions(last.totals if last is not None else ()),
            commits_topic=self._topics.commits,
            consumer=consumer,
            end=self._sender.end,
        )

    def _configured_topics(self) -> set[str]:
        return {self._topics.commits, *map(self._topics.name_of, self._config.streams)}

    def _topics_there(self, mirrored: Collection[str]) -> set[str]:
        """All that this mirror may have written to. One that is gone is told of elsewhere."""
        configured = self._configured_topics()
        return configured.union(filter(self._topics.exists, {*mirrored} - configured))

    def _partitions(self, mirrored: Collection[str]) -> list[Target]:
        return [
            (topic, number)
            for topic in self._topics_there(mirrored)
            for number in range(self._topics.partitions_of(topic))
        ]

    def _require_ours(self, last: CommitRecord) -> None:
        if last.ledger_id != self._ledger.ledger_id:
            raise MirrorRefused(
                f"{self._topics.commits} is of the ledger {last.ledger_id}, and this is"
                f" {self._ledger.ledger_id}",
                hint="Two ledgers cannot share topics: set mirror.topic_prefix.",
                field="mirror.topic_prefix",
            )

    def _in_ledger(self, last: CommitRecord) -> CommitRow:
        """The commit that is the last in Kafka, as the ledger has it."""
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
        return found

    def _go_on_from(self, last: CommitRecord, consumer: Consumer) -> None:
        found = self._in_ledger(last)
        self._totals = _totals_of(last)
        self.reached = head_after(found)
        self._topics.require_whole(self._totals, consumer)

    def _require_told_is_there(self, consumer: Consumer) -> None:
        """What the last transaction has told of. Those before were looked at when it began."""
        if self._config.mirror.allow_short_retention:
            return
        commits = last_commits(consumer, self._topics.commits, MOST_COMMITS)[-MOST_COMMITS:]
        begin = commits[-1].last_sequence - MOST_EVENTS
        commits = [commit for commit in commits if commit.last_sequence > begin]
        told, there = count_told_and_there(consumer, commits)
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
        if known > self.reached.last_sequence:
            # They are of other topics, or of some that were removed.
            self._wait(self._ledger.forget_places(self.reached.last_sequence))
            known = self._wait(self._ledger.placed_upto())
        if known and not self._is_placed(known, consumer):
            self._wait(self._ledger.forget_places(0))
            known = 0
        if known == self.reached.last_sequence:
            return
        for commits in commits_after(consumer, self._topics.commits, known):
            first, last = int(commits[0].first), commits[-1].last_sequence
            columns = PlaceColumns.unknown(last - first + 1)
            for sequence, place in places_in(consumer, commits):
                columns.put(sequence - first, place)
            if first <= last:
                self._wait(self._ledger.place_events(PlacedEvents(first, last, columns.packed())))

    def _require_none_untold(self, consumer: Consumer) -> None:
        """What no commit tells of would be mirrored a second time."""
        last = self._wait(self._ledger.head()).last_sequence
        since_ms = max(0, self.reached.received_at // 1000)
        for message, sequence in last_ones(consumer, self._partitions(self._totals), since_ms):
            if not self.reached.last_sequence < sequence <= last:
                continue
            text = self._wait(self._ledger.read_text(sequence - 1, sequence))
            if spelt([text], sequence - 1, sequence).values != [message.value()]:
                # Of somebody else, whatever its header says.
                continue
            raise MirrorRefused(
                f"event {sequence:,} is in Kafka, and no commit in {self._topics.commits} tells of"
                f" it: it is at offset {message.offset():,} of partition {message.partition()} of"
                f" {message.topic()}",
                hint="The last commits are gone from their topic: somebody has removed it, or a"
                " broker took over that did not have all of it. Remove all topics of the"
                " mirror, and all events are mirrored anew; or set mirror.topic_prefix to begin"
                " beside them.",
                field="mirror.topic_prefix",
            )

    def _is_placed(self, sequence: int, consumer: Consumer) -> bool:
        """Whether an event is where it is said to be, or was until its topic forgot it: that may be
        of other topics, before mirror.topic_prefix or the brokers were changed."""
        topic, place = self._place_of(sequence)
        return place is not None and (
            place == UNKNOWN
            or is_forgotten(consumer, topic, place)
            or is_at(consumer, sequence, topic, place)
        )

    def _place_of(self, sequence: int) -> tuple[str, Place | None]:
        """Its topic, and where it is said to be; None if it cannot be there."""
        placed = self._wait(self._ledger.places_of(sequence))
        if placed is None:
            return "", None
        place = place_in(placed, sequence)
        text = self._wait(self._ledger.read_text(sequence - 1, sequence))
        [stream] = spelt([text], sequence - 1, sequence).streams
        topic = self._topics.name_of(stream)
        is_there = self._topics.exists(topic)
        if not is_there or place.partition >= self._topics.partitions_of(topic):
            return topic, None
        return topic, place

    def _mirror(self, chunk: Chunk, meanwhile: Callable[[], None]) -> None:
        last = chunk.commits[-1]
        try:
            with self._teller.step(f"sending what comes up to {last.last_sequence:,}"):
                places = self._sender.send(chunk, self._totals, meanwhile)
        except Stopped:
            return
        if chunk.events.values:
            self._placing.result()
            self._placing = self._begun(
                self._place(chunk.events.first_sequence, last.last_sequence, places)
            )
        self.reached = head_after(last)

    async def _place(self, first: int, last: int, places: Places) -> None:
        packed = await asyncio.to_thread(lambda: places().packed())
        await self._ledger.place_events(PlacedEvents(first, last, packed))
        crash_point("mirror.placed")

    def _check_topics(self) -> None:
        """Now and then: a topic may be removed, or made to forget."""
        if self._clock.elapsed_us() - self._checked_us < CHECK_EVERY_US:
            return
        self._checked_us = self._clock.elapsed_us()
        with self._teller.step("looking at the topics"):
            # Before those are made anew that are gone.
            with reading(self._config) as consumer:
                self._topics.require_whole(self._totals, consumer)
            # Others may have written to one that was made anew.
            self._sender.require_nothing_gone()
            self._topics.ensure([self._topics.commits, *self._totals])

    def _tell(self, *, at_once: bool = False) -> None:
        """Not before places are written down, which nobody waits for here."""
        if not at_once and not (self._teller.is_due and self._telling.done()):
            return
        self._telling.result()
        self._telling = self._begun(self._told(self._placing, self.reached))

    async def _told(self, placing: Future[None], reached: Head) -> None:
        await asyncio.wrap_future(placing)
        await self._teller.reached(reached.last_sequence, reached.received_at)
        self._there_are = (await self._ledger.head()).last_sequence

    def _ahead_from_here(self) -> Ahead:
        return Ahead(self._reader, self.reached, self._sender.partitions, self._begun)

    def _begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._begun(work).result()


def _totals_of(commit: CommitRecord) -> dict[str, int]:
    """How many messages each topic has, up to a commit."""
    return {topic: int(total) for topic, total in commit.totals.items()}


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future
