"""Which messages belong to the commits of a batch: pure, from what the topic of commits says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemark.mirror.messages import CommitRecord, decode_commit
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.output.batch import Frontier

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class Range(NamedTuple):
    """Offsets from the first to the one behind the last."""

    first: int
    end: int


class BatchPlan(msgspec.Struct, frozen=True):
    """Commits that follow one another, and where their messages are."""

    commits: Sequence[CommitRecord]
    ranges: dict[Partition, Range]

    @property
    def first_sequence(self) -> int:
        return int(self.commits[0].first)

    @property
    def last_sequence(self) -> int:
        return self.commits[-1].last_sequence

    @property
    def event_count(self) -> int:
        return self.last_sequence - self.first_sequence + 1

    @property
    def checksum(self) -> int:
        return sum(int(commit.checksum) for commit in self.commits)

    def is_within(self, ranges: Mapping[Partition, Range]) -> bool:
        """Whether all of its messages are in there."""
        nothing = Range(0, 0)
        return ranges == self.ranges or all(
            found.first <= first and last < found.end
            for commit in self.commits
            for topic, number, first, last in commit.runs()
            for found in [ranges.get((topic, number), nothing)]
        )


class Told(NamedTuple):
    """A commit, and the offset of the record that tells of it."""

    offset: int
    commit: CommitRecord


class NewCommits(msgspec.Struct, frozen=True):
    """What records of the topic of commits tell that the views do not have yet."""

    told: Sequence[Told]
    belated: Sequence[Told]
    """Those of a commit that is no later than the one before, which the mirror never writes."""
    latest: int
    """When the last commit was received of which they tell, new or not."""

    @property
    def commits(self) -> Sequence[CommitRecord]:
        return [commit for _, commit in self.told]


def commits_after(
    values: Iterable[tuple[int, bytes]],
    frontier: Frontier | None,
    ledger_id: str,
    latest: int = 0,
) -> NewCommits:
    """Those of a topic's records, in order, that the views do not have yet.

    `values` are offsets and records, `latest` is that of the records before them. Raises
    `KafkaDiffers` if one does not follow the one before.
    """
    reached, last = 0, 0
    if frontier is not None:
        reached, last = frontier.received_at, frontier.ingress_sequence
    told: list[Told] = []
    belated: list[Told] = []
    for offset, value in values:
        commit = _decoded(offset, value)
        if commit.ledger_id != ledger_id:
            raise _differs(offset, f"is of the ledger {commit.ledger_id}, and not of {ledger_id}")
        received_at = commit.received_at_us
        if received_at <= latest:
            belated.append(Told(offset, commit))
        latest = max(latest, received_at)
        if received_at <= reached:
            continue
        if int(commit.first) != last + 1:
            raise _differs(
                offset, f"begins with sequence {commit.first}, and the one before ends with {last}"
            )
        reached, last = received_at, commit.last_sequence
        told.append(Told(offset, commit))
    return NewCommits(told, belated, latest)


def plans(
    commits: Sequence[CommitRecord],
    max_rows: int,
    read_to: dict[Partition, int],
    elsewhere: int | None = None,
) -> Iterator[BatchPlan]:
    """Batches of about so many events. `read_to` is where reading each partition goes on, and is
    moved: what lies between the messages of two batches is read as well, since somebody else may
    have written it. A partition that is not in it is read from `elsewhere` on, or else from the
    first message."""
    batch: list[CommitRecord] = []
    count = 0
    for commit in commits:
        size = commit.last_sequence - int(commit.first) + 1
        if batch and count + size > max_rows:
            yield _plan(batch, read_to, elsewhere)
            batch, count = [], 0
        batch.append(commit)
        count += size
    if batch:
        yield _plan(batch, read_to, elsewhere)


def _plan(
    commits: Sequence[CommitRecord], read_to: dict[Partition, int], elsewhere: int | None
) -> BatchPlan:
    ranges: dict[Partition, Range] = {}
    for commit in commits:
        for topic, number, first, last in commit.runs():
            partition = (topic, number)
            known = ranges.get(partition)
            unread = first if elsewhere is None else elsewhere
            begin = read_to.get(partition, unread) if known is None else known.first
            ranges[partition] = Range(min(begin, first), last + 1)
    read_to.update((partition, found.end) for partition, found in ranges.items())
    return BatchPlan(list(commits), ranges)


def _decoded(offset: int, value: bytes) -> CommitRecord:
    """Without its totals, which nobody asks for here: many commits are kept, and each has as many
    of these as there are streams."""
    try:
        return replace(decode_commit(value), totals={})
    except msgspec.MsgspecError as error:
        raise _differs(offset, f"is no commit of the mirror: {error}") from error


def _differs(offset: int, what: str) -> KafkaDiffers:
    return KafkaDiffers(
        f"the record at offset {offset} of the topic of commits {what}",
        hint="Somebody else has written to the topics of the mirror, or records of them are gone."
        " Have them mirrored anew (docs/howto/kafka.md), or set pipeline.source to ledger.",
    )
