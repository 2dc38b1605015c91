"""What is in Kafka held against the ledger: every commit, and every message of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from confluent_kafka import Consumer

from tidemark.config import Config
from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.kafka import ANSWER_WITHIN_S
from tidemark.mirror.messages import (
    COMMITS_TOPIC,
    CommitRecord,
    checksum_of,
)
from tidemark.mirror.position import decoded, ends, messages, reading, sequence_of
from tidemark.pipeline.kafka.planning import Partition, plans
from tidemark.pipeline.landing.comparing import BlockDifference, Compared

NAME: Final = "kafka"
_ALL: Final = 1 << 62
_FOREIGN: Final = "the mirror has not written this message"


class _Differs(Exception):
    def __init__(self, difference: BlockDifference) -> None:
        super().__init__(difference.message)
        self.difference = difference


def compare_topics(
    config: Config,
    chunk_after: Callable[[int], Chunk],
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Compared | None:
    """None if it was stopped. Reads all of the topics, and all of the ledger that is in them.

    `chunk_after` is the next commits of the ledger after a time. A block is a commit here.
    """
    commits, events = 0, 0
    try:
        with reading(config) as of_commits, reading(config) as of_events:
            records = _records(of_commits, config.mirror.topic_prefix + COMMITS_TOPIC)
            read_to: dict[Partition, int] = {}
            received_at = 0
            while not stopped():
                chunk = chunk_after(received_at)
                found = list(islice(records, len(chunk.commits)))
                if not found:
                    _require_end(records, events)
                    _require_nothing_more(of_events, config, read_to, events)
                    return Compared(NAME, commits, events)
                for record, commit in zip(found, chunk.commits, strict=False):
                    _compare_commits(record, commit)
                kept = chunk.events.upto(found[-1].last_sequence)
                _compare_events(of_events, found, kept, read_to)
                commits += len(found)
                events = found[-1].last_sequence
                received_at = found[-1].received_at_us
                on_progress(events, max(events, chunk.commits[-1].last_sequence))
    except _Differs as differs:
        return Compared(NAME, commits, events, differs.difference)
    except MirrorRefused as error:
        return Compared(NAME, commits, events, BlockDifference("", error.message))
    return None


def _records(consumer: Consumer, topic: str) -> Iterator[CommitRecord]:
    low, high = ends(consumer, topic, 0)
    if low:
        raise _Differs(BlockDifference(topic, f"its records before offset {low} are gone"))
    for message in messages(consumer, topic, 0, low, high):
        yield decoded(message)


def _require_end(records: Iterator[CommitRecord], events: int) -> None:
    beyond = next(records, None)
    if beyond is not None:
        message = f"it goes on to sequence {beyond.last}, and the ledger ends at {events:,}"
        raise _Differs(BlockDifference(_name(beyond), message))


def _require_nothing_more(
    consumer: Consumer, config: Config, read_to: dict[Partition, int], last_sequence: int
) -> None:
    """Behind what was read there may be only what the mirror has written since."""
    there = consumer.list_topics(timeout=ANSWER_WITHIN_S).topics
    for topic in (config.mirror.topic_prefix + stream for stream in config.streams):
        for partition in there[topic].partitions if topic in there else ():
            low, high = ends(consumer, topic, partition)
            begin = read_to.get((topic, partition), low)
            for message in messages(consumer, topic, partition, begin, high):
                if (sequence_of(message) or 0) <= last_sequence:
                    place = f"{topic}[{partition}]@{message.offset()}"
                    raise _Differs(BlockDifference(place, _FOREIGN))


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
    consumer: Consumer,
    records: Sequence[CommitRecord],
    events: SpeltEvents,
    read_to: dict[Partition, int],
) -> None:
    [plan] = plans(records, _ALL, read_to)
    named = {
        (topic, partition, offset)
        for record in records
        for topic, partition, first, last in record.runs()
        for offset in range(first, last + 1)
    }
    found: dict[int, bytes] = {}
    for (topic, partition), wanted in plan.ranges.items():
        before = 0
        for message in messages(consumer, topic, partition, wanted.first, wanted.end):
            place = f"{topic}[{partition}]@{message.offset()}"
            if (topic, partition, message.offset()) not in named:
                raise _Differs(BlockDifference(place, _FOREIGN))
            sequence = sequence_of(message) or 0
            if sequence <= before:
                raise _Differs(BlockDifference(place, "a message is not in order", str(sequence)))
            before = sequence
            found[sequence] = message.value() or b""
    for sequence, (stream, value) in enumerate(
        zip(events.streams, events.values, strict=True), events.first_sequence
    ):
        there = found.get(sequence)
        if there != value:
            what = "a message is missing" if there is None else "a message differs"
            raise _Differs(BlockDifference(stream, what, str(sequence)))
    if sum(map(checksum_of, found.values())) != plan.checksum:
        raise _Differs(BlockDifference(_name(records[0]), "the checksum of a commit differs"))


def _name(record: CommitRecord) -> str:
    return f"commit {record.received_at}"
