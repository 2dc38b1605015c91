"""Which messages a batch from Kafka reads: all of its commits, and what lies between them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.port import CommitRow
from tidemark.mirror.messages import CommitRecord, commit_record, encode_commit, runs_of
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.planning import Partition, commits_after, plans
from tidemark.pipeline.output.batch import Frontier

LEDGER = "L"
SECOND = 1_000_000


def commits_of(
    seed: int, sizes: list[int]
) -> tuple[list[CommitRecord], dict[int, tuple[str, int, int]]]:
    """Commits of so many events, spread over partitions with holes, and where each event is."""
    source = random.Random(seed)
    ends: dict[tuple[str, int], int] = {}
    records, at, last = [], {}, 0
    for number, size in enumerate(sizes, start=1):
        places: dict[tuple[str, int], list[int]] = {}
        for sequence in range(last + 1, last + size + 1):
            partition = (source.choice("ab"), source.randrange(3))
            offset = ends.get(partition, 0) + (source.random() < 0.2)
            ends[partition] = offset + 1
            at[sequence] = (*partition, offset)
            places.setdefault(partition, []).append(offset)
        commit = CommitRow(number * SECOND, last + 1, last + size, bytes([number % 256]) * 32)
        runs = {target: runs_of(offsets) for target, offsets in places.items()}
        records.append(commit_record(LEDGER, commit, runs, number, {}))
        last += size
    return records, at


def as_read(records: list[CommitRecord]) -> list[tuple[int, bytes]]:
    return [(2 * n, encode_commit(record)) for n, record in enumerate(records)]


@given(st.integers(0, 1000), st.lists(st.integers(0, 5), min_size=1), st.integers(1, 12))
def test_each_message_is_read_by_the_batch_of_its_commit(
    seed: int, sizes: list[int], max_rows: int
) -> None:
    records, at = commits_of(seed, sizes)
    read_to: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    taken = []
    for plan in plans(commits_after(as_read(records), None, LEDGER), max_rows, read_to):
        assert plan.event_count <= max_rows or len([c for c in plan.commits if c.counts]) <= 1
        for sequence in range(plan.first_sequence, plan.last_sequence + 1):
            topic, number, offset = at[sequence]
            found = plan.ranges[topic, number]
            assert found.first <= offset < found.end
        for partition, found in plan.ranges.items():
            # Nothing is read twice, and nothing between is left out.
            assert found.first == ends.get(partition, found.first)
            ends[partition] = found.end
        taken += plan.commits
    assert taken == records
    assert ends == read_to


def test_commits_that_the_views_have_are_passed_over() -> None:
    records, _ = commits_of(1, [2, 0, 3, 1])
    frontier = Frontier(2, 2 * SECOND, b"", LEDGER)
    assert commits_after(as_read(records), frontier, LEDGER) == records[2:]
    assert commits_after(as_read(records[2:]), frontier, LEDGER) == records[2:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda read: read[:1] + read[2:],
            "begins with sequence 5, and the one before ends with 2",
        ),
        (lambda read: [*read[:1], (2, b"{}"), *read[1:]], "offset 2 .* is no commit"),
    ],
)
def test_a_commit_that_is_missing_or_is_none_is_named(change: object, said: str) -> None:
    records, _ = commits_of(1, [2, 2, 2])
    with pytest.raises(KafkaDiffers, match=said):
        commits_after(change(as_read(records)), None, LEDGER)  # type: ignore[operator]


def test_commits_of_another_ledger_are_refused() -> None:
    records, _ = commits_of(1, [2])
    with pytest.raises(KafkaDiffers, match="is of the ledger L, and not of M"):
        commits_after(as_read(records), None, "M")
