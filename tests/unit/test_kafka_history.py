"""Whether what Kafka tells of is the history that the ledger has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.port import CommitRow
from tidemark.mirror.messages import CommitRecord, commit_record
from tidemark.pipeline.kafka import history
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.history import require_same_commits
from tidemark.pipeline.kafka.planning import Told
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import LedgerRewound

LEDGER = "L"
SECOND = 1_000_000
TICK = 0


def commits_of(
    sizes: Sequence[int], story: int = 0, begin: CommitRow | None = None
) -> list[CommitRow]:
    """Commits of so many events behind one. Another story has other chains."""
    last = begin or CommitRow(0, 1, 0, bytes(32))
    commits = []
    for size in sizes:
        first, chain = last.last_sequence + 1, bytes([story, len(commits)]) * 16
        last = CommitRow(last.received_at + SECOND, first, first + size - 1, chain)
        commits.append(last)
    return commits


def told(commits: Sequence[CommitRow]) -> list[Told]:
    return [Told(2 * n, record_of(commit)) for n, commit in enumerate(commits)]


def record_of(commit: CommitRow) -> CommitRecord:
    count = commit.last_sequence - commit.first_sequence + 1
    places = {("a", 0): [(commit.first_sequence, commit.last_sequence)]} if count else {}
    return commit_record(LEDGER, commit, places, 0, {})


class Asked:
    """A ledger that knows what it was asked."""

    def __init__(self, commits: Sequence[CommitRow]) -> None:
        self._commits = commits
        self.limits: list[int] = []

    def __call__(self, received_at: int, limit: int) -> list[CommitRow]:
        self.limits.append(limit)
        return [c for c in self._commits if c.received_at > received_at][:limit]


def frontier_at(commit: CommitRow) -> Frontier:
    return Frontier(commit.last_sequence, commit.received_at, commit.chain, LEDGER)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_the_same_commits_are_taken_wherever_the_views_stand(
    sizes: list[int], data: st.DataObject
) -> None:
    ledger = commits_of(sizes)
    stand = data.draw(st.integers(0, len(ledger)))
    upto = data.draw(st.integers(stand, len(ledger)))
    before = frontier_at(ledger[stand - 1]) if stand else None
    require_same_commits(told(ledger[stand:upto]), before, Asked(ledger))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_a_commit_that_the_ledger_has_and_kafka_has_not_is_named_with_its_place(
    sizes: list[int], data: st.DataObject
) -> None:
    ledger = [*commits_of(sizes), *commits_of([1], begin=commits_of(sizes)[-1])]
    gone = data.draw(st.integers(0, len(sizes) - 1))
    kept = [told_of for n, told_of in enumerate(told(ledger)) if n != gone]
    stand = data.draw(st.integers(0, gone))
    before = frontier_at(ledger[stand - 1]) if stand else None
    with pytest.raises(KafkaDiffers) as raised:
        require_same_commits(kept[stand:], before, Asked(ledger))
    second = ledger[gone].received_at // SECOND
    assert f"1970-01-01T00:00:{second:02}.000000Z is missing in Kafka" in raised.value.message
    assert f"before offset {2 * gone + 2} of the topic of commits" in raised.value.message


def test_it_is_told_whether_a_commit_that_is_missing_had_events() -> None:
    ledger = commits_of([2, TICK, 3, 1])
    records = told(ledger)
    with pytest.raises(KafkaDiffers, match="without events, after event 2"):
        require_same_commits(records[2:], frontier_at(ledger[0]), Asked(ledger))
    with pytest.raises(KafkaDiffers, match="with the events 3 to 5"):
        require_same_commits(records[3:], frontier_at(ledger[1]), Asked(ledger))


LEFT = commits_of([2, TICK, 3])
LOST = commits_of([1, 2], story=1, begin=LEFT[-1])


@pytest.mark.parametrize(
    "since",
    [
        [],
        commits_of([1], story=2, begin=LEFT[-1]),
        commits_of([1, 2], story=2, begin=LEFT[-1]),
        commits_of([TICK, 1, 1, 1], story=2, begin=LEFT[-1]),
        [CommitRow(LEFT[-1].received_at + 1, 6, 6, bytes([3]) * 32)],
    ],
    ids=["nothing", "one", "as much", "more", "at another time"],
)
def test_what_the_ledger_has_lost_is_refused_whatever_it_has_had_since(
    since: list[CommitRow],
) -> None:
    with pytest.raises(
        LedgerRewound, match="at offset 0 of the topic of commits and up to event 6"
    ):
        require_same_commits(told(LOST), frontier_at(LEFT[-1]), Asked([*LEFT, *since]))


@pytest.mark.parametrize(
    "other",
    [
        CommitRow(LOST[0].received_at, 6, 6, bytes(32)),
        CommitRow(LOST[0].received_at, 6, 7, LOST[0].chain),
        CommitRow(LOST[0].received_at, 7, 6, LOST[0].chain),
    ],
    ids=["chain", "last", "first"],
)
def test_each_thing_that_a_commit_has_is_looked_at(other: CommitRow) -> None:
    with pytest.raises(LedgerRewound):
        require_same_commits(told(LOST), frontier_at(LEFT[-1]), Asked([*LEFT, other]))


def test_a_ledger_that_went_on_otherwise_before_the_views_is_noticed() -> None:
    """It was restored while the pipeline ran."""
    stands = frontier_at(LOST[0])
    for ledger in (LEFT, [*LEFT, *commits_of([1, 2], story=2, begin=LEFT[-1])]):
        with pytest.raises(LedgerRewound, match="the commit at which the views stand"):
            require_same_commits(told(LOST[1:]), stands, Asked(ledger))


def test_however_many_commits_there_are_some_are_read_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "COMMITS_AT_ONCE", 3)
    ledger = commits_of([1, TICK, 1, 1, 1, TICK, 1, 1])
    asked = Asked(ledger)
    require_same_commits(told(ledger[1:7]), frontier_at(ledger[0]), asked)
    assert asked.limits == [3, 3, 1]
    asked = Asked(ledger)
    require_same_commits(told(ledger[:6]), None, asked)
    assert asked.limits == [3, 3]
    with pytest.raises(LedgerRewound):
        require_same_commits(told(ledger), None, Asked(ledger[:6]))
