"""Generated ledgers are valid, repeatable, and go where the rules change."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tests.generated.ledgers import (
    FIRST_INSTANT,
    LAST_INSTANT,
    REASONS,
    Shape,
    ledgers,
    random_ledger,
)
from tests.generated.meters import meters, random_meter
from tests.reference.definitions import Meter
from tests.reference.fingerprint import MeterResult
from tests.reference.history import Commit, check_history
from tests.reference.meters import MeterFold, fold_meters
from tests.unit.meter_mutants import MUTANTS, JudgesLateInsideTheCommit

# Enough of them for the rarest mistake to show.
SEEDS = range(400)


@pytest.fixture(scope="module")
def folded() -> list[tuple[list[Commit], Meter, MeterResult]]:
    """Some ledgers, each with a meter and what it comes to."""
    found = []
    for seed in SEEDS:
        commits, meter = random_ledger(seed), random_meter(seed)
        found.append((commits, meter, fold_meters(commits, [meter])[meter.name]))
    return found


@given(ledgers(Shape(streams=("usage", "trades"))))
def test_a_generated_ledger_is_valid(commits: list[Commit]) -> None:
    check_history(commits)


@given(st.integers(), st.booleans(), st.booleans())
def test_a_seeded_ledger_is_valid_and_repeatable(seed: int, controls: bool, far: bool) -> None:
    shape = Shape(max_commits=9, max_entries=6, controls=controls, far_times=far)
    commits = random_ledger(seed, shape)
    check_history(commits)
    assert commits == random_ledger(seed, shape)
    assert len(commits) == 9
    events = [event for _, events in commits for event in events]
    assert controls or all(event["control"] is None for event in events)
    times = [event["ts"] for event in events]
    assert all(FIRST_INSTANT <= ts <= LAST_INSTANT for ts in times)


def test_generated_ledgers_reach_every_kind_of_adjustment(
    folded: list[tuple[list[Commit], Meter, MeterResult]],
) -> None:
    reasons: Counter[str] = Counter()
    crossed = 0
    for _, _, result in folded:
        reasons.update(row["reason"] for row in result.adjustments)
        periods: dict[str, set[str]] = {}
        for row in result.adjustments:
            periods.setdefault(row["ingress_sequence"], set()).add(row["period_start"])
        crossed += sum(len(starts) > 1 for starts in periods.values())
    assert set(reasons) == {"late", "closed", "amend", "void", *REASONS}
    assert min(reasons.values()) > 20
    assert crossed > 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_generated_ledgers_tell_a_planted_mistake_from_the_truth(
    mutant: type[MeterFold], folded: list[tuple[list[Commit], Meter, MeterResult]]
) -> None:
    assert any(
        fold_meters(commits, [meter], mutant)[meter.name] != expected
        for commits, meter, expected in folded
    )


def test_what_hypothesis_finds_is_made_small() -> None:
    def is_told_apart(case: tuple[list[Commit], Meter]) -> bool:
        commits, meter = case
        right = fold_meters(commits, [meter])
        return right != fold_meters(commits, [meter], JudgesLateInsideTheCommit)

    commits, meter = find(
        st.tuples(ledgers(Shape(max_commits=3, max_entries=3)), meters(lateness_us=0)),
        is_told_apart,
        settings=settings(
            max_examples=2000,
            database=None,
            derandomize=True,
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    assert len(commits) == 1
    assert sum(len(events) for _, events in commits) == 2
    assert (meter.aggregate, meter.zone, meter.close_after_us) == ("sum", "UTC", None)
