"""Several commits of a history that are placed at once, against the same commits one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.events import draft
from tests.unit.planted import assert_catches
from tests.unit.test_sequencer import SUBMISSIONS, Check, Digests, Group, Sequencer, Store
from tidemark.errors import ImportRefused
from tidemark.ingress.drafts import Submission
from tidemark.ledger.sequencer import (
    GENESIS_CHAIN,
    Head,
    Placement,
    Stored,
    digests_of,
    place,
    place_history,
)

PlaceHistory = Callable[
    [Sequence[Submission], Digests, Mapping[bytes, Stored], Head, Sequence[int]], list[Placement]
]


def commits_at_once_are_what_they_are_one_by_one(place_at_once: PlaceHistory) -> Check:
    @given(st.lists(st.lists(SUBMISSIONS, max_size=5), max_size=4))
    def check(transactions: list[list[Submission]]) -> None:
        one_by_one, at_once = Store(Sequencer()), Store(Sequencer())
        clock = count(7, 3)
        for commits in transactions:
            times = list(islice(clock, len(commits)))
            expected = [
                one_by_one.append(Group(time, [commit]))
                for time, commit in zip(times, commits, strict=True)
            ]
            submissions, digests = at_once.prepared(commits)
            before = dict(at_once.stored)
            placements = place_at_once(submissions, digests, before, at_once.head, times)
            assert placements == expected
            assert before == at_once.stored, "what it was given is not its own"
            for placement in placements:
                at_once.keep(placement)
        assert at_once.commits == one_by_one.commits
        assert at_once.stored == one_by_one.stored
        assert at_once.head == one_by_one.head

    return check


def test_commits_at_once_are_what_they_are_one_by_one() -> None:
    commits_at_once_are_what_they_are_one_by_one(place_history)()


# The planted bugs.


def commits_that_do_not_see_each_other(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    received_at: Sequence[int],
) -> list[Placement]:
    placements = []
    for submission, of_commit, time in zip(submissions, digests, received_at, strict=True):
        placements.append(place([submission], [of_commit], stored, head, time))
        head = placements[-1].head
    return placements


def commits_with_the_time_of_the_last(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    received_at: Sequence[int],
) -> list[Placement]:
    times = range(received_at[-1], received_at[-1] + len(received_at)) if received_at else ()
    return place_history(submissions, digests, stored, head, times)


def commits_with_one_chain_link(
    submissions: Sequence[Submission],
    digests: Digests,
    stored: Mapping[bytes, Stored],
    head: Head,
    received_at: Sequence[int],
) -> list[Placement]:
    placements = place_history(submissions, digests, stored, head, received_at)
    hashes = b"".join(event.content_hash for p in placements for event in p.drafts)
    chain = hashlib.sha256(head.chain + hashes).digest()
    return [
        msgspec.structs.replace(p, head=msgspec.structs.replace(p.head, chain=chain))
        if p.drafts
        else p
        for p in placements
    ]


@pytest.mark.parametrize(
    "broken",
    [
        commits_that_do_not_see_each_other,
        commits_with_the_time_of_the_last,
        commits_with_one_chain_link,
    ],
)
def test_placing_at_once_with_a_bug_is_caught(broken: PlaceHistory) -> None:
    assert_catches(commits_at_once_are_what_they_are_one_by_one, broken)


@pytest.mark.parametrize("times", [(5, 6), (6, 6), (7, 6)], ids=["ledger", "equal", "earlier"])
def test_a_commit_that_is_not_later_than_the_one_before_it_is_refused(
    times: tuple[int, int],
) -> None:
    submissions = [Submission("import", [draft(key)]) for key in "ab"]
    digests = [digests_of(submission) for submission in submissions]
    with pytest.raises(ImportRefused):
        place_history(submissions, digests, {}, Head(0, 5, GENESIS_CHAIN), times)
