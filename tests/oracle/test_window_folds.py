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
from tests.unit.window_runs import end, ledger, sent, void, window_of
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.time import stage
from tidemark.pipeline.windows import keeper

# Some in an ordinary run, fifty times as many in a thorough one.
SEEDS = range(settings().max_examples // 12)


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
) -> dict[str, dict[str, ViewRow]]:
    """Against the reference; gives all rows, also of views that nobody sees."""
    run = WindowRun(window, time)
    for batch in batches:
        run.take(batch)
    expected = fold_windows([commit for batch in batches for commit in batch], window, time)
    found = run.result()
    assert found.rows == expected.rows
    assert found.changes == expected.changes
    if window.late == "side_output":
        assert found.late == expected.late
    return run.views.rows


@pytest.mark.parametrize("controls", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_cut_of_a_ledger_gives_what_the_reference_gives(
    seed: int, controls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(seed)
    commits = random_stream(seed, StreamShape(source.randint(2, 16), 7, controls=controls))
    window, time = random_window(seed), times_of(source)
    # What is kept for the next batch is the same for every cut, too.
    whole = assert_folded(window, time, [commits])
    monkeypatch.setattr(stage, "MOVES_AT_ONCE", source.choice([1, 5, stage.MOVES_AT_ONCE]))
    monkeypatch.setattr(keeper, "PLACED_AT_ONCE", source.choice([1, 9, keeper.PLACED_AT_ONCE]))
    assert assert_folded(window, time, cut(source, commits)) == whole


def test_a_window_that_was_emptied_is_forgotten_wherever_the_ledger_is_cut() -> None:
    commits = ledger([[sent("a", 0)], [void("a")], [sent("b", 20)]])
    window = window_of(late="refire", refire_for_us=1_000)
    kept = [
        assert_folded(window, EventTime(), batches)["w__open"].keys()
        for batches in ([commits], [commits[:2], commits[2:]])
    ]
    assert kept[0] == kept[1] == {'["t1","1970-01-01T00:00:00.000020Z"]'}


def test_a_window_that_an_end_has_closed_stays_closed_when_it_is_emptied() -> None:
    commits = ledger([[sent("a", 5)], [end()], [void("a")], [sent("b", 6)]])
    window = window_of(late="refire", refire_for_us=1_000)
    for batches in ([commits], [commits[:1], commits[1:2], commits[2:3], commits[3:]]):
        assert_folded(window, EventTime(), batches)
