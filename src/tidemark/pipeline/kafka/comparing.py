"""What is in Kafka held against the ledger: every commit, and every message of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import Message as Received

from tidemark.config import Config
from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.kafka import ANSWER_WITHIN_S, failure
from tidemark.mirror.messages import (
    COMMITS_TOPIC,
    CommitRecord,
    checksum_of,
)
from tidemark.mirror.position import (
    MessagesGone,
    decoded,
    ends,
    messages,
    partitions_of,
    reading,
    sequence_of,
)
from tidemark.pipeline.kafka.places import TopicPlace, places_of, sent_to
from tidemark.pipeline.kafka.planning import Partition, Range, plans
from tidemark.pipeline.landing.comparing import BlockDifference, Compared

NAME: Final = "kafka"
_ALL: Final = 1 << 62
_NOTHING: Final = Range(0, 0)
_FOREIGN: Final = "the mirror has not written this message"
_MISSING: Final = "a message is missing"


class _Differs(Exception):
    def __init__(self, difference: BlockDifference) -> None:
        super().__init__(difference.message)
        self.difference = difference


@dataclass
class _Reached:
    """How far all is right."""

    commits: int = 0
    events: int = 0
    gone: int = 0
    received_at: int = 0

    def compared(self, difference: BlockDifference | None = None) -> Compared:
        return Compared(NAME, self.commits, self.events, difference, self.gone)


def compare_topics(
    config: Config,
    chunk_after: Callable[[int], Chunk],
    placed_upto: int,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Compared | None:
    """None if it was stopped. Reads all of the topics, and all of the ledger that is in them.

    `chunk_after` is the next commits of the ledger after a time; `placed_upto` how far the ledger
    knew where its events are before this began. A block is a commit here.
    """
    reached = _Reached()
    try:
        with (
            reading(config) as of_commits,
            reading(config) as of_events,
            reading(config, sees_all=True) as of_ends,
        ):
            topics = _Topics(config, of_events, of_ends)
            records = _records(of_commits, topics, reached)
            first_told = reached.events + 1
            # Before the first message that is told of, there is one only of commits that are gone.
            unread = 0 if first_told == 1 else None
            while not stopped():
                chunk = chunk_after(reached.received_at)
                found = list(islice(records, len(chunk.commits)))
                if not found:
                    _require_end(records, reached.events)
                    topics.require_nothing_more(first_told, reached.events)
                    if not reached.commits:
                        _require_nothing_untold(of_commits, topics)
                    _require_all_placed(topics, reached.events, placed_upto)
                    return reached.compared()
                for record, commit in zip(found, chunk.commits, strict=False):
                    _compare_commits(record, commit)
                kept = chunk.events.upto(found[-1].last_sequence)
                reached.gone += _compare_events(topics, found, kept, unread)
                reached.commits += len(found)
                reached.events = found[-1].last_sequence
                reached.received_at = found[-1].received_at_us
                on_progress(reached.events, max(reached.events, chunk.commits[-1].last_sequence))
    except _Differs as differs:
        return reached.compared(differs.difference)
    except MirrorRefused as error:
        return reached.compared(BlockDifference("", error.message))
    return None


class _Topics:
    """The topics of the streams, as they are now."""

    def __init__(self, config: Config, consumer: Consumer, of_ends: Consumer) -> None:
        """`of_ends` sees all that is there, also what is not committed yet."""
        self._consumer = consumer
        self._of_ends = of_ends
        self._prefix = config.mirror.topic_prefix
        self._streams = config.streams
        self._made_with = config.mirror.partitions
        self._removed: set[str] = set()
        self.may_forget = config.mirror.allow_short_retention
        self.commits = self.of_stream(COMMITS_TOPIC)
        self.read_to: dict[Partition, int] = {}

    def of_stream(self, stream: str) -> str:
        return self._prefix + stream

    def bounds(self, partition: Partition) -> Range:
        """What there is of a partition: nothing, if it was removed."""
        topic, number = partition
        is_there = number in self._partitions_of(topic)
        return Range(*ends(self._of_ends, topic, number)) if is_there else _NOTHING

    def left(self, partition: Partition, wanted: Range, there: Range) -> Iterator[Received]:
        """What is left of a range in what there is of its partition."""
        position, end = max(wanted.first, there.first), min(wanted.end, there.end)
        while True:
            try:
                for message in messages(self._consumer, *partition, position, end):
                    position = (message.offset() or 0) + 1
                    yield message
                return
            except MessagesGone as error:
                refused = error
            # More was removed meanwhile.
            first = self.bounds(partition).first
            if first <= position:
                raise refused
            position = first

    def likely_partitions(self, topic: str) -> int:
        """How many partitions a topic has, or else may have had."""
        return len(self._partitions_of(topic)) or self._made_with

    def why_missing(self, place: TopicPlace) -> str:
        """Nothing, if it is gone from among others that are there."""
        there = self.bounds((place.topic, place.partition))
        if place.topic in self._removed:
            return ": its topic is gone"
        if place.offset >= there.end:
            return ": its topic was made anew"
        return f": all before offset {there.first} are gone" if place.offset < there.first else ""

    def require_nothing_more(self, first_told: int, last_sequence: int) -> None:
        """Behind what was read there may be only what the mirror has written since, and where
        nothing was read, what commits told of that are forgotten."""
        for partition in self._partitions():
            low, high = ends(self._consumer, *partition)
            begin = max(low, self.read_to.get(partition, low))
            for message in messages(self._consumer, *partition, begin, high):
                sequence = sequence_of(message) or 0
                if not sequence or first_told <= sequence <= last_sequence:
                    raise _Differs(BlockDifference(str(_place(message)), _FOREIGN))

    def first_event(self) -> tuple[int, str] | None:
        """The first sequence that a partition begins with, and where that is."""
        begins = []
        for partition in self._partitions():
            low, high = ends(self._consumer, *partition)
            for message in islice(messages(self._consumer, *partition, low, high), 1):
                sequence = sequence_of(message)
                if sequence is not None:
                    begins.append((sequence, str(_place(message))))
        return min(begins, default=None)

    def _partitions_of(self, topic: str) -> Collection[int]:
        if topic in self._removed:
            return ()
        found = partitions_of(self._of_ends, topic)
        if not found:
            # It is waited for once.
            self._removed.add(topic)
        return found

    def _partitions(self) -> Iterator[Partition]:
        try:
            there = self._of_ends.list_topics(timeout=ANSWER_WITHIN_S).topics
        except KafkaException as error:
            raise failure(error, "asking for the topics") from error
        known = {*map(self.of_stream, self._streams), *(topic for topic, _ in self.read_to)}
        for topic in sorted(known & there.keys()):
            for number in there[topic].partitions:
                yield topic, number


def _records(consumer: Consumer, topics: _Topics, reached: _Reached) -> Iterator[CommitRecord]:
    """All that there are. What is before the first of them, if it may be gone, is reached."""
    topic = topics.commits
    low, high = ends(consumer, topic, 0) if partitions_of(consumer, topic) else _NOTHING
    found = map(decoded, messages(consumer, topic, 0, low, high))
    first = next(found, None)
    if low and (first is None or not topics.may_forget):
        raise _Differs(BlockDifference(topic, f"its records before offset {low} are gone"))
    if first is None:
        return found
    if low:
        reached.events = reached.gone = int(first.first) - 1
        reached.received_at = first.received_at_us - 1
    return chain([first], found)


def _require_end(records: Iterator[CommitRecord], events: int) -> None:
    beyond = next(records, None)
    if beyond is not None:
        message = f"it goes on to sequence {beyond.last}, and the ledger ends at {events:,}"
        raise _Differs(BlockDifference(_name(beyond), message))


def _require_nothing_untold(consumer: Consumer, topics: _Topics) -> None:
    """Where there is no commit, there is no event either."""
    first = topics.first_event()
    if first is None:
        return
    # The mirror may have begun meanwhile.
    topic = topics.commits
    if partitions_of(consumer, topic) and ends(consumer, topic, 0)[1]:
        return
    sequence, place = first
    raise _Differs(BlockDifference(place, f"no commit in {topic} tells of it", str(sequence)))


def _require_all_placed(topics: _Topics, events: int, placed_upto: int) -> None:
    """Topics that are all gone look as if nothing had been mirrored; the ledger knows better."""
    if events < placed_upto:
        what = f"it ends with event {events:,}, and {placed_upto:,} were mirrored"
        raise _Differs(BlockDifference(topics.commits, what, str(events + 1)))


def _compare_commits(record: CommitRecord, commit: CommitRow) -> None:
    pairs: dict[str, tuple[object, object]] = {
        "receivedAt": (record.received_at_us, commit.received_at),
        "first": (record.first, str(commit.first_sequence)),
        "last": (record.last, str(commit.last_sequence)),
        "chain": (record.chain, commit.chain.hex()),
    }
    for column, (theirs, ours) in pairs.items():
        if theirs != ours:
            raise _Differs(
                BlockDifference(
                    _name(record),
                    "a commit differs",
                    column=column,
                    ledger=str(ours),
                    landed=str(theirs),
                )
            )


def _compare_events(
    topics: _Topics, records: Sequence[CommitRecord], events: SpeltEvents, unread: int | None
) -> int:
    """How many messages are gone that may be. `unread` is where a partition begins."""
    [plan] = plans(records, _ALL, topics.read_to, unread)
    named = {place for record in records for place in places_of(record)}
    sequences = range(events.first_sequence, events.first_sequence + len(events.values))
    found: dict[int, Received] = {}
    cut_off: set[str] = set()
    for partition, wanted in plan.ranges.items():
        there = topics.bounds(partition)
        if there.end < wanted.end:
            cut_off.add(partition[0])
        before = 0
        for message in topics.left(partition, wanted, there):
            sequence = sequence_of(message) or 0
            if _place(message) not in named or sequence not in sequences:
                raise _Differs(BlockDifference(str(_place(message)), _FOREIGN))
            if sequence <= before:
                what = "a message is not in order"
                raise _Differs(BlockDifference(str(_place(message)), what, str(sequence)))
            before = sequence
            found[sequence] = message
    gone = 0
    for sequence, stream, value in zip(sequences, events.streams, events.values, strict=True):
        topic, message_there = topics.of_stream(stream), found.get(sequence)
        if message_there is None:
            # Retention and compaction take what is old, and neither a topic nor its end.
            if not topics.may_forget or topic in cut_off:
                raise _Differs(_missing(topics, topic, sequence, records, events, found))
            gone += 1
        elif (message_there.topic(), message_there.value()) != (topic, value):
            what = "a message differs"
            raise _Differs(BlockDifference(str(_place(message_there)), what, str(sequence)))
    if sum(map(checksum_of, events.values)) != plan.checksum:
        raise _Differs(BlockDifference(_name(records[0]), "the checksum of a commit differs"))
    return gone


def _missing(
    topics: _Topics,
    topic: str,
    sequence: int,
    records: Sequence[CommitRecord],
    events: SpeltEvents,
    found: Mapping[int, Received],
) -> BlockDifference:
    record = next(record for record in records if record.last_sequence >= sequence)
    there = {number: _place(message) for number, message in found.items()}
    likely = topics.likely_partitions(topic)
    place = sent_to(topic, likely, sequence, record, events, there)
    if place is None:
        return BlockDifference(topic, _MISSING, str(sequence))
    return BlockDifference(str(place), _MISSING + topics.why_missing(place), str(sequence))


def _place(message: Received) -> TopicPlace:
    return TopicPlace(message.topic() or "", message.partition() or 0, message.offset() or 0)


def _name(record: CommitRecord) -> str:
    return f"commit {record.received_at}"
