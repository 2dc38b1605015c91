"""Where messages are, and where one was that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Final, NamedTuple

from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.messages import CommitRecord
from tidemark.mirror.partitioning import chosen

_MOST_PARTITIONS: Final = 1_000


class TopicPlace(NamedTuple):
    """Where a message is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


def places_of(commit: CommitRecord) -> Iterator[TopicPlace]:
    """All that the record of a commit tells of."""
    for topic, partition, first, last in commit.runs():
        for offset in range(first, last + 1):
            yield TopicPlace(topic, partition, offset)


def sent_to(
    topic: str,
    likely_partitions: int,
    sequence: int,
    record: CommitRecord,
    events: SpeltEvents,
    there: Mapping[int, TopicPlace],
) -> TopicPlace | None:
    """Where the message of an event was, by its turn among those of its commit.

    A record tells where its messages are, but not which is which, nor how many partitions its topic
    had: that is the first number, the likely one before all others, that spreads the events of the
    commit in the way that the record tells of and that those which are `there` bear out.
    """
    told = {
        int(number): [n for first, last in runs for n in range(int(first), int(last) + 1)]
        for number, runs in record.offsets.get(topic, {}).items()
    }
    if not told:
        return None
    # In the order of the first event of each.
    shares = [(partition, len(offsets)) for partition, offsets in told.items()]
    first = int(record.first)
    begin = first - events.first_sequence
    of_commit = slice(begin, begin + record.last_sequence - first + 1)
    keys, streams = events.causality_keys[of_commit], events.streams[of_commit]
    is_beside = [stream == streams[sequence - first] for stream in streams]
    beside = [*compress(range(first, record.last_sequence + 1), is_beside)]
    likeliest: TopicPlace | None = None
    for count in (likely_partitions, *range(max(told) + 1, _MOST_PARTITIONS)):
        partitions = [*compress(chosen(first, keys, repeat(range(count))), is_beside)]
        if [*Counter(partitions).items()] != shares:
            continue
        places = dict(zip(beside, _in_turn(topic, partitions, told), strict=True))
        if all(there.get(n, place) == place for n, place in places.items()):
            return places[sequence]
        likeliest = likeliest or places[sequence]
    return likeliest


def _in_turn(
    topic: str, partitions: Iterable[int], told: Mapping[int, Sequence[int]]
) -> Iterator[TopicPlace]:
    rest = {partition: iter(offsets) for partition, offsets in told.items()}
    for partition in partitions:
        yield TopicPlace(topic, partition, next(rest[partition]))
