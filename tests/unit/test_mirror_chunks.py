"""What is known of a transaction before it is sent: where its events go, and where they will be."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.chunks import Chunk, Routes
from tidemark.mirror.messages import Target, checksum_of, runs_of
from tidemark.mirror.partitioning import chosen
from tidemark.mirror.watching import Foreseen

PARTITIONS = {
    "usage": [("t.usage", n) for n in range(3)],
    "trades": [("t.trades", n) for n in range(2)],
    "quiet": [("t.quiet", 0)],
}
streams = st.sampled_from(sorted(PARTITIONS))
keys = st.sampled_from([None, None, "a", "b"])


def several(count: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """All are different, or all the same."""
    return st.one_of(
        st.lists(values, min_size=count, max_size=count),
        values.map(lambda value: [value] * count),
    )


@st.composite
def commits_and_events(draw: st.DrawFn) -> tuple[list[CommitRow], SpeltEvents]:
    """Some commits have no events."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    first = draw(st.integers(1, 10**12))
    count = sum(sizes)
    ends = [*itertools.accumulate(sizes, initial=first)]
    commits = [
        CommitRow(1_000 + number, begin, end - 1, b"")
        for number, (begin, end) in enumerate(itertools.pairwise(ends))
    ]
    events = SpeltEvents(
        first,
        draw(several(count, streams)),
        draw(several(count, keys)),
        [b"value %d" % number for number in range(count)],
    )
    return commits, events


@given(commits_and_events(), st.data())
def test_what_is_foreseen_of_commits_is_what_the_places_of_their_events_are(
    made: tuple[list[CommitRow], SpeltEvents], data: st.DataObject
) -> None:
    commits, events = made
    routes = Routes.of(commits, events, PARTITIONS)
    assert routes.targets == [*zip(routes.topics, routes.partitions, strict=True)]
    of_events = [PARTITIONS[stream] for stream in events.streams]
    assert routes.targets == chosen(events.first_sequence, events.causality_keys, of_events)
    following = {target: data.draw(st.integers(0, 100)) for target in {*routes.targets}}
    foreseen = Foreseen(routes, following)
    places = foreseen.places()
    assert [*places.partitions] == routes.partitions
    # Those of a partition follow one another, from the first that is free.
    for target, first in following.items():
        offsets = [
            offset
            for of, offset in zip(routes.targets, places.offsets, strict=True)
            if of == target
        ]
        assert offsets == [*range(first, first + len(offsets))]
    for commit, share, runs in zip(commits, routes.shares, foreseen.runs(), strict=True):
        of_commit: dict[Target, list[int]] = {}
        for sequence in range(commit.first_sequence, commit.last_sequence + 1):
            index = sequence - events.first_sequence
            of_commit.setdefault(routes.targets[index], []).append(places.offsets[index])
        assert [*runs.items()] == [(of, runs_of(offsets)) for of, offsets in of_commit.items()]
        assert share == {target: len(offsets) for target, offsets in of_commit.items()}


@given(commits_and_events(), st.sets(streams))
def test_a_chunk_has_checksums_by_commit_and_routes_if_all_its_streams_are_known(
    made: tuple[list[CommitRow], SpeltEvents], known: set[str]
) -> None:
    commits, events = made
    chunk = Chunk.of(commits, events, {stream: PARTITIONS[stream] for stream in known})
    first = events.first_sequence
    assert chunk.checksums == [
        sum(
            checksum_of(value)
            for value in events.values[
                commit.first_sequence - first : commit.last_sequence + 1 - first
            ]
        )
        for commit in commits
    ]
    assert sorted(chunk.streams) == sorted({*events.streams})
    wanted = Routes.of(commits, events, PARTITIONS) if known >= {*events.streams} else None
    assert chunk.routes == wanted
