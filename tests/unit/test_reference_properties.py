"""What is true of meters over any ledger, and the planted mistakes that break it.

A property here is a function of the fold, so that it can be tried on broken ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, cast

import pytest
from hypothesis import given

from tests.generated.ledgers import ledgers, random_ledger
from tests.generated.meters import meters, random_meter
from tests.reference.definitions import Meter
from tests.reference.facts import group_value
from tests.reference.fingerprint import Key, MeterResult, Row
from tests.reference.history import Commit, Content, Event, target_of
from tests.reference.instants import format_instant
from tests.reference.meters import MeterFold, fold_meters
from tests.reference.periods import period_of
from tests.unit.meter_mutants import (
    CountsInUtc,
    FindsOriginalsByKeyAlone,
    ForgetsLateVoids,
    InheritsMetaInAmends,
    JudgesLateInsideTheCommit,
    KeepsVoidedOperatorAdjustments,
    LetsTheFirstAmendWin,
    LetsTheLastCorrectionWin,
    MovesTheWatermarkBack,
    TakesUnknownForTrue,
)

Fold = type[MeterFold]
Property = Callable[[Sequence[Commit], Meter, Fold], None]


def run(commits: Sequence[Commit], meter: Meter, fold: Fold) -> MeterResult:
    return fold_meters(commits, [meter], fold)[meter.name]


def number(text: str | None) -> Fraction:
    return Fraction(text or "0")


def counted_and_adjusted_are_the_total(commits: Sequence[Commit], meter: Meter, fold: Fold) -> None:
    for rows in run(commits, meter, fold).rows_after:
        for row in rows.values():
            assert number(row["counted"]) + number(row["adjusted"]) == number(row["total"])


def a_sum_is_adjusted_by_what_its_adjustments_amount_to(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    result = run(commits, replace(meter, aggregate="sum"), fold)
    amounts: dict[Key, Fraction] = {}
    columns = ("tenant_id", "metric", "customer_ref", *meter.group_by, "period_start")
    for row in result.adjustments:
        key = tuple(row[name] for name in columns)
        amounts[key] = amounts.get(key, Fraction(0)) + number(row["amount"])
    for key, row in result.rows.items():
        assert row["counted"] == row["agg_sum"]
        assert number(row["adjusted"]) == amounts.pop(key, 0)
    assert not amounts


def the_total_of_a_sum_is_what_the_ledger_says_as_a_whole(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    summed = replace(meter, aggregate="sum")
    stands = what_stands([event for _, events in commits for event in events], summed)
    for key, row in run(commits, summed, fold).rows.items():
        assert number(row["total"]) == stands.pop(key, 0)
    assert not stands


def what_stands(events: Sequence[Event], meter: Meter) -> dict[Key, Fraction]:
    voided = {target_of(event) for event in events if event["control"] == "void"}
    amended: dict[tuple[str, str], Content] = {}
    for event in events:
        content = event.get("event")
        if content is not None:
            amended[target_of(event)] = content
    totals: dict[Key, Fraction] = {}
    for event in events:
        name = (event["tenant_id"], event["key"])
        if event["metric"] != meter.metric or name in voided:
            continue
        groups: list[str | None]
        if event["control"] == "adjust":
            ts, value = event.get("period_start"), event["quantity"]
            groups = [None for _ in meter.group_by]
        elif event["control"] is None:
            now = event.copy()
            if name in amended:
                now.update(cast(Any, amended[name]))
            if meter.where is not None and not meter.where.holds(now):
                continue
            ts, value = now["ts"], meter.value.of(now)
            groups = [group_value(now["meta"], field) for field in meter.group_by]
        else:
            continue
        assert ts is not None
        start = format_instant(period_of(ts, meter.period, meter.zone).start)
        key = (event["tenant_id"], event["metric"], event["customer_ref"], *groups, start)
        totals[key] = totals.get(key, Fraction(0)) + number(value)
    return totals


def lateness_moves_nothing_in_or_out_of_the_total(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    patient = replace(meter, lateness_us=10**18, close_after_us=None)
    judged, folded = run(commits, meter, fold), run(commits, patient, fold)
    assert judged.rows.keys() == folded.rows.keys()
    for key, row in folded.rows.items():
        assert judged.rows[key]["total"] == row["total"]
    # Where nothing is late, only operators adjust.
    operators = {
        event["seq"] for _, events in commits for event in events if event["control"] == "adjust"
    }
    for row in folded.adjustments:
        assert int(row["original_sequence"] or row["ingress_sequence"]) in operators


def the_log_tells_the_rows_after_every_commit(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    result = run(commits, meter, fold)
    rows: dict[Key, Row] = {}
    pending = list(result.changes)
    for (received_at, _), expected in zip(commits, result.rows_after, strict=True):
        changed: set[Key] = set()
        while pending and pending[0].received_at == received_at:
            change = pending.pop(0)
            assert change.key not in changed
            changed.add(change.key)
            assert change.row is not None
            assert change.old_row == rows.get(change.key)
            assert change.row != change.old_row
            assert change.op == ("INSERT" if change.old_row is None else "UPDATE")
            rows[change.key] = change.row
        assert rows == expected
    assert not pending


def a_watermark_never_moves_back(commits: Sequence[Commit], meter: Meter, fold: Fold) -> None:
    for change in run(commits, meter, fold).changes:
        if change.old_row is not None and change.row is not None:
            before, after = change.old_row["watermark_ts"], change.row["watermark_ts"]
            assert before is None or (after is not None and before <= after)


def what_comes_later_does_not_change_what_was(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    whole = run(commits, meter, fold)
    for length in (len(commits) // 2, len(commits) - 1):
        part = run(commits[:length], meter, fold)
        assert whole.rows_after[: len(part.rows_after)] == part.rows_after
        assert whole.changes[: len(part.changes)] == part.changes
        assert whole.adjustments[: len(part.adjustments)] == part.adjustments


def events_of_a_commit_can_be_handed_over_in_any_order(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    """As long as they keep their sequences."""
    expected = run(commits, meter, fold)
    backwards = [(received_at, list(reversed(events))) for received_at, events in commits]
    assert run(backwards, meter, fold) == expected
    source = random.Random(0)
    mixed = [(at, source.sample(list(events), len(events))) for at, events in commits]
    assert run(mixed, meter, fold) == expected


def numbers_inside_a_commit_decide_only_ties(
    commits: Sequence[Commit], meter: Meter, fold: Fold
) -> None:
    """Had the usage events of one commit come in another order, only `last` could differ, and the
    sequences that adjustments name."""
    if meter.aggregate == "last":
        meter = replace(meter, aggregate="sum")
    source = random.Random(0)
    renumbered = [(at, renumber(events, source)) for at, events in commits]
    found, expected = run(renumbered, meter, fold), run(commits, meter, fold)
    for mine, other in zip(found.rows_after, expected.rows_after, strict=True):
        assert mine.keys() == other.keys()
        for key in mine:
            assert less(mine[key], "agg_last") == less(other[key], "agg_last")
    numbers = ("ingress_sequence", "original_sequence")
    mine_rows = sorted(str(less(row, *numbers)) for row in found.adjustments)
    assert mine_rows == sorted(str(less(row, *numbers)) for row in expected.adjustments)


def renumber(events: Sequence[Event], source: random.Random) -> list[Event]:
    """The usage events of a commit take one another's sequences; the rest keep theirs."""
    numbers = [event["seq"] for event in events if event["control"] is None]
    source.shuffle(numbers)
    copies = [event.copy() for event in events]
    for event in copies:
        if event["control"] is None:
            event["seq"] = numbers.pop()
    return sorted(copies, key=lambda event: event["seq"])


def less(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def tenants_do_not_see_each_other(commits: Sequence[Commit], meter: Meter, fold: Fold) -> None:
    alone = [(at, [e for e in events if e["tenant_id"] == "t1"]) for at, events in commits]
    mine = [change for change in run(commits, meter, fold).changes if change.key[0] == "t1"]
    assert run(alone, meter, fold).changes == mine


def ticks_matter_only_to_the_close(commits: Sequence[Commit], meter: Meter, fold: Fold) -> None:
    meter = replace(meter, close_after_us=None)
    without = [commit for commit in commits if commit[1]]
    expected = run(without, meter, fold).changes
    assert run(commits, meter, fold).changes == expected
    ticked: list[Commit] = []
    for received_at, events in without:
        if not ticked or ticked[-1][0] < received_at - 1:
            ticked.append((received_at - 1, []))
        ticked.append((received_at, events))
    assert run(ticked, meter, fold).changes == expected


PROPERTIES: Final[tuple[Property, ...]] = (
    counted_and_adjusted_are_the_total,
    a_sum_is_adjusted_by_what_its_adjustments_amount_to,
    the_total_of_a_sum_is_what_the_ledger_says_as_a_whole,
    lateness_moves_nothing_in_or_out_of_the_total,
    the_log_tells_the_rows_after_every_commit,
    a_watermark_never_moves_back,
    what_comes_later_does_not_change_what_was,
    events_of_a_commit_can_be_handed_over_in_any_order,
    numbers_inside_a_commit_decide_only_ties,
    tenants_do_not_see_each_other,
    ticks_matter_only_to_the_close,
)


@given(ledgers(), meters())
def test_what_must_be_true_of_any_ledger_is(commits: list[Commit], meter: Meter) -> None:
    # One generated case serves all: making it takes longer than any of them.
    for holds in PROPERTIES:
        holds(commits, meter, MeterFold)


@pytest.mark.parametrize(
    ("holds", "mutant"),
    [
        (a_sum_is_adjusted_by_what_its_adjustments_amount_to, ForgetsLateVoids),
        (a_sum_is_adjusted_by_what_its_adjustments_amount_to, KeepsVoidedOperatorAdjustments),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, LetsTheLastCorrectionWin),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, LetsTheFirstAmendWin),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, InheritsMetaInAmends),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, CountsInUtc),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, TakesUnknownForTrue),
        (the_total_of_a_sum_is_what_the_ledger_says_as_a_whole, KeepsVoidedOperatorAdjustments),
        (tenants_do_not_see_each_other, FindsOriginalsByKeyAlone),
        (a_watermark_never_moves_back, MovesTheWatermarkBack),
        (events_of_a_commit_can_be_handed_over_in_any_order, JudgesLateInsideTheCommit),
        (numbers_inside_a_commit_decide_only_ties, JudgesLateInsideTheCommit),
    ],
    ids=lambda value: value.__name__,
)
def test_a_planted_mistake_breaks_a_property(holds: Property, mutant: Fold) -> None:
    def try_many() -> None:
        for seed in range(500):
            holds(random_ledger(seed), random_meter(seed), mutant)

    with pytest.raises(AssertionError):
        try_many()
