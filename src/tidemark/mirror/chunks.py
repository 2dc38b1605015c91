"""Commits of the ledger as they are sent in one transaction, made ready before it is their turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.messages import Messages, Target, checksum_of, event_messages
from tidemark.mirror.partitioning import chosen, in_turn

T = TypeVar("T")


class Routes(NamedTuple):
    """Where the events of commits go."""

    targets: Sequence[Target]
    """Of each event. The same is in the next two."""
    topics: Sequence[str]
    partitions: Sequence[int]
    shares: Sequence[Mapping[Target, int]]
    """Of each commit: how many of its events go where, in the order of the first of each."""

    @classmethod
    def of(
        cls,
        commits: Iterable[CommitRow],
        events: SpeltEvents,
        partitions: Mapping[str, Sequence[Target]],
    ) -> Routes:
        """`partitions` has those of each stream."""
        first, keys, streams = events.first_sequence, events.causality_keys, {*events.streams}
        if len(streams) == 1 and keys.count(None) == len(keys):
            targets = in_turn(first, len(keys), partitions[streams.pop()])
        else:
            targets = chosen(first, keys, map(partitions.__getitem__, events.streams))
        return cls(
            targets,
            [topic for topic, _ in targets],
            [partition for _, partition in targets],
            [Counter(each) for each in by_commit(commits, targets)],
        )


class Chunk(NamedTuple):
    """Commits that follow one another, and all of their events."""

    commits: Sequence[CommitRow]
    events: SpeltEvents
    messages: Messages
    checksums: Sequence[int]
    """That of each commit."""
    streams: Sequence[str]
    """Each that an event is of, once."""
    routes: Routes | None
    """None where the partitions of a stream were not known."""

    @classmethod
    def of(
        cls,
        commits: Sequence[CommitRow],
        events: SpeltEvents,
        partitions: Mapping[str, Sequence[Target]],
    ) -> Chunk:
        """`partitions` has those of each stream, as far as they are known."""
        checksums = [sum(map(checksum_of, values)) for values in by_commit(commits, events.values)]
        streams = [*dict.fromkeys(events.streams)]
        is_known = all(stream in partitions for stream in streams)
        routes = Routes.of(commits, events, partitions) if is_known else None
        return cls(commits, events, event_messages(commits, events), checksums, streams, routes)


def by_commit(commits: Iterable[CommitRow], of_events: Iterable[T]) -> Iterator[Iterator[T]]:
    """What there is one of for each event, for one commit after the other. Each must be read before
    the next."""
    rest = iter(of_events)
    for commit in commits:
        yield islice(rest, commit.last_sequence - commit.first_sequence + 1)
