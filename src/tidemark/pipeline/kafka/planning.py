"""Which messages belong to the commits of a batch: pure, from what the topic of commits says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

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


def commits_after(
    values: Iterable[tuple[int, bytes]], frontier: Frontier | None, ledger_id: str
) -> list[CommitRecord]:
    """Those of a topic's records, in order, that the views do not have yet.

    `values` are offsets and records. Raises `KafkaDiffers` if one does not follow the one before.
    """
    reached, last = 0, 0
    if frontier is not None:
        reached, last = frontier.received_at, frontier.ingress_sequence
    commits = []
    for offset, value in values:
        commit = _decoded(offset, value)
        if commit.ledger_id != ledger_id:
            raise _differs(offset, f"is of the ledger {commit.ledger_id}, and not of {ledger_id}")
        if commit.received_at_us <= reached:
            continue
        if int(commit.first) != last + 1:
            raise _differs(
                offset, f"begins with sequence {commit.first}, and the one before ends with {last}"
            )
        reached, last = commit.received_at_us, commit.last_sequence
        commits.append(commit)
    return commits


def plans(
    commits: Sequence[CommitRecord], max_rows: int, read_to: dict[Partition, int]
) -> Iterator[BatchPlan]:
    """Batches of about so many events. `read_to` is where reading each partition goes on, and is
    moved: what lies between the messages of two batches is read as well, since somebody else may
    have written it."""
    batch: list[CommitRecord] = []
    count = 0
    for commit in commits:
        size = commit.last_sequence - int(commit.first) + 1
        if batch and count + size > max_rows:
            yield _plan(batch, read_to)
            batch, count = [], 0
        batch.append(commit)
        count += size
    if batch:
        yield _plan(batch, read_to)


def _plan(commits: Sequence[CommitRecord], read_to: dict[Partition, int]) -> BatchPlan:
    ranges: dict[Partition, Range] = {}
    for commit in commits:
        for topic, number, first, last in commit.runs():
            partition = (topic, number)
            known = ranges.get(partition)
            begin = read_to.get(partition, first) if known is None else known.first
            ranges[partition] = Range(min(begin, first), last + 1)
    read_to.update((partition, found.end) for partition, found in ranges.items())
    return BatchPlan(list(commits), ranges)


def _decoded(offset: int, value: bytes) -> CommitRecord:
    try:
        return decode_commit(value)
    except msgspec.MsgspecError as error:
        raise _differs(offset, f"is no commit of the mirror: {error}") from error


def _differs(offset: int, what: str) -> KafkaDiffers:
    return KafkaDiffers(
        f"the record at offset {offset} of the topic of commits {what}",
        hint="Somebody else has written to the topics of the mirror, or records of them are gone."
        " Have them mirrored anew (docs/howto/kafka.md), or set pipeline.source to ledger.",
    )
