"""Windows as the driver folds them, against the reference, for every cut of a ledger."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import settings

from tests.folding.windows import WindowRun
from tests.generated.ledgers import DAY, HOUR
from tests.generated.streams import StreamShape, random_stream
from tests.generated.windows import random_window
from tests.reference.eventtime import EventTime
from tests.reference.tables import StreamCommit
from tests.reference.window_definitions import Window
from tests.reference.windows import fold_windows

# Some in an ordinary run, fifty times as many in a thorough one.
SEEDS = range(settings().max_examples // 4)


def times_of(source: random.Random) -> EventTime:
    return EventTime(
        source.choice([0, 1, 1_000_000, HOUR]),
        source.choice([None, HOUR]),
        source.choice([None, HOUR, DAY]),
    )


def cut(source: random.Random, commits: Sequence[StreamCommit]) -> list[Sequence[StreamCommit]]:
    ends = sorted(source.sample(range(1, len(commits)), source.randint(0, len(commits) - 1)))
    return [commits[a:b] for a, b in zip([0, *ends], [*ends, len(commits)], strict=True)]


def assert_folded(
    window: Window, time: EventTime, batches: Sequence[Sequence[StreamCommit]]
) -> None:
    run = WindowRun(window, time)
    for batch in batches:
        run.take(batch)
    expected = fold_windows([commit for batch in batches for commit in batch], window, time)
    found = run.result()
    assert found.rows == expected.rows
    assert found.changes == expected.changes
    if window.late == "side_output":
        assert found.late == expected.late


@pytest.mark.parametrize("controls", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_cut_of_a_ledger_gives_what_the_reference_gives(seed: int, controls: bool) -> None:
    source = random.Random(seed)
    commits = random_stream(seed, StreamShape(source.randint(2, 16), 7, controls=controls))
    assert_folded(random_window(seed), times_of(source), cut(source, commits))
