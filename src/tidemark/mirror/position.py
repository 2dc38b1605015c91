"""How far the topics are, read from the topics themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import starmap
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidemark.config import Config
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.kafka import ANSWER_WITHIN_S, consumer, failure
from tidemark.mirror.messages import SEQUENCE_HEADER, CommitRecord, Target, decode_commit
from tidemark.mirror.places import Place

T = TypeVar("T")

COMMITS_AT_ONCE: Final = 2_000
EVENTS_AT_ONCE: Final = 100_000
_FIRST_LOOK: Final = 64
_FURTHER: Final = 16
_MOST_DIGITS: Final = len(str(2**63 - 1))
_ANSWER_POLL_S: Final = 0.5
_TOLD_WITHIN_S: Final = 5.0
_AGAIN_AFTER_S: Final = 0.1
_NOT_YET: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        # What the client itself says before a broker has told it of the topic, or of its leader.
        KafkaError._NOENT,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class MessagesGone(MirrorUnavailable):
    """Where reading is to begin, a partition has nothing any more."""


@contextmanager
def reading(config: Config, *, sees_all: bool = False) -> Iterator[Consumer]:
    found = consumer(config, sees_all=sees_all)
    try:
        yield found
    finally:
        found.close()


def last_commit(consumer: Consumer, topic: str) -> CommitRecord | None:
    """The last one in its topic; None only if that is empty."""
    found = last_commits(consumer, topic, 1)
    return found[-1] if found else None


def last_commits(consumer: Consumer, topic: str, count: int) -> list[CommitRecord]:
    """The last ones in their topic, at least so many if there are."""
    low, high = ends(consumer, topic, 0)
    commits: list[CommitRecord] = []
    for first in _looks_back(low, high):
        commits = [decoded(message) for message in messages(consumer, topic, 0, first, high)]
        if len(commits) >= count:
            break
    return commits


def commits_after(consumer: Consumer, topic: str, sequence: int) -> Iterator[list[CommitRecord]]:
    """All behind a sequence in order, some at a time: in between the consumer may read elsewhere.

    There is at least one in each list.
    """
    low, high = ends(consumer, topic, 0)
    position = low
    for position in _looks_back(low, high):
        begins = next(messages(consumer, topic, 0, position, high), None)
        if begins is not None and decoded(begins).last_sequence <= sequence:
            break
    while position < high:
        found: list[CommitRecord] = []
        for message in messages(consumer, topic, 0, position, high):
            position = (message.offset() or 0) + 1
            commit = decoded(message)
            if int(commit.first) > sequence:
                found.append(commit)
            if found and _is_enough(found):
                break
        else:
            position = high
        if found:
            yield found


def _looks_back(low: int, high: int) -> Iterator[int]:
    """Offsets ever further from the end, up to the beginning."""
    look = _FIRST_LOOK
    while high - look > low:
        yield high - look
        look *= _FURTHER
    yield low


def _is_enough(commits: list[CommitRecord]) -> bool:
    events = commits[-1].last_sequence - int(commits[0].first)
    return len(commits) >= COMMITS_AT_ONCE or events >= EVENTS_AT_ONCE


def decoded(message: Received) -> CommitRecord:
    try:
        return decode_commit(message.value() or b"")
    except msgspec.MsgspecError as error:
        raise MirrorRefused(
            f"the message at offset {message.offset()} of {message.topic()} is no commit: {error}",
            hint="Somebody else has written to this topic. Only the mirror may: remove all topics"
            " of the mirror to have them written anew, or set mirror.topic_prefix.",
            field="mirror.topic_prefix",
        ) from error


def places_in(consumer: Consumer, commits: Iterable[CommitRecord]) -> Iterator[tuple[int, Place]]:
    """Where each event of commits that follow one another is, by its sequence, if it still is."""
    for (topic, partition), runs in joined(commits).items():
        low, high = ends(consumer, topic, partition)
        for first, last in runs:
            begin, end = max(low, first), min(high, last + 1)
            for message in messages(consumer, topic, partition, begin, end):
                sequence = sequence_of(message)
                if sequence is not None:
                    yield sequence, Place(partition, message.offset() or 0)


def last_ones(
    consumer: Consumer, partitions: Collection[Target], since_ms: int
) -> Iterator[tuple[Received, int]]:
    """The last messages of each partition that say which event they are of, with its sequence: at
    least one, if there is any of that time or later."""
    asked = [TopicPartition(*partition, since_ms) for partition in partitions]
    for found in _asked_again(
        lambda: consumer.offsets_for_times(asked, timeout=ANSWER_WITHIN_S),
        "the topics of the mirror",
    ):
        if found.error is not None:
            raise failure(found.error, f"asking for times in {found.topic}")
        if found.offset < 0:
            continue
        # From their ends back: a time that somebody else has made up may be at the beginning.
        high = ends(consumer, found.topic, found.partition)[1]
        for first in _looks_back(found.offset, high):
            there = [
                (message, sequence)
                for message in messages(consumer, found.topic, found.partition, first, high)
                if (sequence := sequence_of(message)) is not None
            ]
            yield from there
            if there:
                break


def is_at(consumer: Consumer, sequence: int, topic: str, place: Place) -> bool:
    """Whether an event is there, for all to see."""
    partition, offset = place
    low, high = ends(consumer, topic, partition)
    if not low <= offset < high:
        return False
    return sequence in map(sequence_of, messages(consumer, topic, partition, offset, offset + 1))


def is_forgotten(consumer: Consumer, topic: str, place: Place) -> bool:
    """Whether its topic has forgotten what was there."""
    return place.offset < ends(consumer, topic, place.partition)[0]


def count_told_and_there(consumer: Consumer, commits: Iterable[CommitRecord]) -> tuple[int, int]:
    """How many messages commits tell of, and how many of those there are. One is counted once,
    though somebody may have written a commit again. Each partition is read in one go: for commits
    that were sent one by one that is far quicker than one run after the other."""
    how_many = found = 0
    for (topic, partition), runs in joined(commits).items():
        told = {offset for first, last in runs for offset in range(first, last + 1)}
        how_many += len(told)
        low, high = ends(consumer, topic, partition)
        first, end = max(low, min(told)), min(high, max(told) + 1)
        span = messages(consumer, topic, partition, first, end)
        found += sum(message.offset() in told for message in span)
    return how_many, found


def joined(commits: Iterable[CommitRecord]) -> dict[Target, list[list[int]]]:
    """The runs of each partition. What one transaction has written there is mostly one of them."""
    found: dict[Target, list[list[int]]] = {}
    for commit in commits:
        for topic, partition, first, last in commit.runs():
            runs = found.setdefault((topic, partition), [])
            if runs and runs[-1][1] + 1 == first:
                runs[-1][1] = last
            else:
                runs.append([first, last])
    return found


def sequence_of(message: Received) -> int | None:
    """Of the event that a message is of; None if it is not the mirror's."""
    try:
        headers = message.headers() or []
    except SystemError:
        # The name of one is no text, so it is of somebody else. To ask once more ends the process.
        return None
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if name == SEQUENCE_HEADER and isinstance(value, bytes) and value.isdigit():
            # Else it is of somebody else, and may be more than Python reads.
            return int(value) if len(value) <= _MOST_DIGITS else None
    return None


def messages(
    consumer: Consumer, topic: str, partition: int, first: int, end: int
) -> Iterator[Received]:
    """What the consumer sees in `[first, end)` of a partition, but for what says nothing.

    Raises `MessagesGone` if the partition begins behind `first`, or ends before.
    """
    if first >= end:
        return
    try:
        consumer.assign([TopicPartition(topic, partition, first)])
        deadline = time.monotonic() + ANSWER_WITHIN_S
        passed = first
        while time.monotonic() < deadline:
            message = consumer.poll(_ANSWER_POLL_S)
            if message is None:
                # What was given up takes time too, and is not shown.
                [at] = consumer.position([TopicPartition(topic, partition)])
                if at.offset >= end:
                    return
                if at.offset > passed:
                    passed = at.offset
                    deadline = time.monotonic() + ANSWER_WITHIN_S
                continue
            error = message.error()
            if error is None and (message.offset() or 0) < end:
                if message.value() is not None:
                    yield message
                # What is done with a message takes as long as it does.
                deadline = time.monotonic() + ANSWER_WITHIN_S
            elif error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise MessagesGone(
                    f"{topic}[{partition}] has nothing at offset {message.offset()} any more",
                    hint="Its messages were removed: by its retention, by somebody, or with the"
                    " topic. The mirror reads it anew, and says what it finds.",
                    field="mirror.topic_prefix",
                )
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise failure(error, f"reading {topic}")
            # Behind the last message there may be marks of transactions, that are not shown.
            [at] = consumer.position([TopicPartition(topic, partition)])
            if at.offset >= end or (error is not None and _end_of(message) >= end):
                return
    except KafkaException as error:
        raise failure(error, f"reading {topic}") from error
    raise MirrorUnavailable(
        f"{topic} was not read to its end within {ANSWER_WITHIN_S:.0f} s",
        hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by itself.",
        field="mirror.bootstrap_servers",
    )


def _end_of(message: Received) -> int:
    """Where a partition is said to end."""
    return message.offset() or 0


def partitions_of(consumer: Consumer, topic: str) -> Collection[int]:
    """Those of a topic; it has none if it was removed."""
    deadline = time.monotonic() + _TOLD_WITHIN_S
    doing = f"asking for the topic {topic}"
    while True:
        try:
            found = consumer.list_topics(topic, timeout=ANSWER_WITHIN_S).topics[topic]
        except KafkaException as error:
            raise failure(error, doing) from error
        if found.error is None:
            return [*found.partitions]
        # A broker may not know yet of one that was just made.
        if found.error.code() not in _NOT_YET or time.monotonic() >= deadline:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return ()
            raise failure(found.error, doing)
        time.sleep(_AGAIN_AFTER_S)


def ends(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset there is and the one behind the last."""
    asked = TopicPartition(topic, partition)
    return _asked_again(
        lambda: consumer.get_watermark_offsets(asked, timeout=ANSWER_WITHIN_S), topic
    )


def ends_of(
    admin: AdminClient,
    partitions: Collection[Target],
    *,
    sees_all: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[Target, int]:
    """Behind the last that a reader sees in each partition, all asked for at once. `meanwhile` is
    called each time before an answer is waited for."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = dict.fromkeys(starmap(TopicPartition, partitions), latest)
    level = IsolationLevel.READ_UNCOMMITTED if sees_all else IsolationLevel.READ_COMMITTED

    def ask() -> dict[Target, int]:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_WITHIN_S)
        meanwhile()
        return {
            (found.topic, found.partition): answer.result().offset
            for found, answer in answers.items()
        }

    # It goes by what it knows of leaders, and does not find out anew by itself.
    return _asked_again(
        ask, "the topics of the mirror", lambda: admin.list_topics(timeout=ANSWER_WITHIN_S)
    )


def _asked_again(ask: Callable[[], T], what: str, find_out: Callable[[], Any] | None = None) -> T:
    """The answer, when there is one: a topic was just made, or its broker has just died."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    doing = f"asking for the ends of {what}"
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() >= deadline:
                raise failure(error, doing) from error
        # Out here: what the client raises while an exception is handled keeps that for ever.
        if find_out is not None:
            try:
                find_out()
            except KafkaException as error:
                raise failure(error, doing) from error
        time.sleep(_AGAIN_AFTER_S)
