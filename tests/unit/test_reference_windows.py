"""The reference of windows gives what the shared vectors say, and planted mistakes are noticed by
these, by the rules one by one and by generated ledgers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generated.eventtimes import event_times, random_event_time
from tests.generated.streams import StreamShape, random_stream, stream_ledgers
from tests.generated.windows import PARTS, STREAM_TIMES, WINDOWS, random_window, windows, windows_of
from tests.reference import eventtime
from tests.reference.amounts import parse_amount
from tests.reference.instants import format_instant
from tests.reference.tables import EventTime, Field, StreamCommit, StreamEvent
from tests.reference.window_definitions import Value, Window
from tests.reference.window_rows import ViewResult, ViewRow
from tests.reference.windows import WindowFold, fold_windows
from tests.unit import test_reference_window_corrections as corrections
from tests.unit import test_reference_window_rules as rules
from tests.unit import window_mutants as planted
from tests.unit.window_runs import Fold

VECTORS = Path(__file__).parents[1] / "vectors/windows.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
SECOND = 1_000_000


def assert_case_passes(case: dict[str, Any], fold: Fold = WindowFold) -> None:
    names = case.get("row", ["value", "ts"])
    fields = (Field("amount", "decimal"), Field("at", "bigint"), Field("group", "string", False))
    told = {"value": "amount", "ts": "at", "group": "group"}
    commits: list[StreamCommit] = []
    for number, row in enumerate([*case["rows"], None]):
        members = {} if row is None else dict(zip((told[n] for n in names), row, strict=True))
        event = StreamEvent(
            seq=number + 1,
            key=f"k{number}",
            tenant_id="t1",
            stream="s",
            control="end" if row is None else None,
            target=None,
            event=None,
            ts=None,
            data=json.dumps(members),
        )
        commits.append((number, [event]))
    window = Window(
        name="vector",
        stream="s",
        fields=fields,
        size_us=case["size"] * SECOND,
        every_us=case["size"] * SECOND,
        group_by=("group",) if "group" in names else (),
        aggregate=case["aggregate"],
        value=Value("amount", lambda values: values["amount"]),
        time=EventTime("at", "unixtimestamp_s", lambda value: value * SECOND),
    )
    settings = eventtime.EventTime(late_tolerance=case["lateTolerance"] * SECOND)
    result = fold_windows(commits, window, settings, fold)
    assert {change.op for change in result.changes} == {"insert"}
    expected = {int(number): rows for number, rows in case["closed_after_row"].items()}
    expected[len(case["rows"])] = case["at_end"]
    for number in range(len(commits)):
        changes = [change for change in result.changes if change.received_at == number]
        wanted = expected.get(number, [])
        assert len(changes) == len(wanted)
        for change, row in zip(changes, wanted, strict=True):
            found = json.loads(change.row or "")
            start = {"window_start": format_instant(row["window_start"] * SECOND)}
            assert found.items() >= {**row, **start, "is_closed": True}.items()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    assert_case_passes(case)


Case = Callable[[Fold], None]


def vector(name: str) -> Case:
    (case,) = (case for case in CASES if case["name"] == name)
    return lambda fold: assert_case_passes(case, fold)


NOTICED: list[tuple[Fold, Case]] = [
    (planted.JudgesLateInsideTheCommit, rules.test_lateness_is_judged_by_the_commit_before),
    (
        planted.TakesTheWatermarkItselfForInTime,
        rules.test_a_time_that_the_watermark_has_just_reached_is_late,
    ),
    (planted.ClosesOneMicrosecondLate, vector("sum over 10 s, tolerance 7 s")),
    (
        planted.ClosesOneMicrosecondLate,
        rules.test_a_window_closes_when_the_watermark_reaches_its_end,
    ),
    (planted.ForgetsTheEnd, vector("stopping closes nothing, ending does")),
    (planted.EndsForOneCommitOnly, corrections.test_an_ended_window_refires_and_stays_closed),
    (planted.EndsWhatComesLater, rules.test_after_an_end_other_windows_open_and_close_as_ever),
    (planted.EndsAllTenants, rules.test_an_end_closes_what_is_there),
    (planted.EndsBeforeTheFactsOfTheCommit, rules.test_an_end_closes_what_is_there),
    (
        planted.EndsWithAGreatestWatermark,
        rules.test_after_an_end_other_windows_open_and_close_as_ever,
    ),
    (planted.CountsInWindowsThatHaveEnded, rules.test_an_ended_window_takes_no_more_facts),
    (planted.SharesTheWatermarkAmongTenants, rules.test_tenants_have_times_of_their_own),
    (planted.LetsOnlyFactsMoveTheWatermark, rules.test_what_is_no_fact_moves_the_watermark_too),
    (planted.LetsAmendsMoveTheWatermark, rules.test_what_an_amend_says_moves_no_watermark),
    (planted.DoesNotSeeTicks, rules.test_a_silent_lane_closes_by_ticks),
    (
        planted.DoesNotSeeTicks,
        rules.test_without_event_time_an_event_has_the_time_it_is_received,
    ),
    (planted.DropsWhatIsLateInOneWindow, rules.test_a_fact_can_be_late_in_some_of_its_windows),
    (planted.TakesNothingForLate, vector("a late row is not counted")),
    (
        planted.TakesOpenWindowsForInTime,
        rules.test_a_time_that_the_watermark_has_just_reached_is_late,
    ),
    (
        planted.LetsLateStepsTouchTheCountedSet,
        corrections.test_a_late_correction_counts_nothing_otherwise,
    ),
    (planted.ForgetsThatItParted, corrections.test_what_has_parted_is_late_for_ever),
    (
        planted.JudgesStepsByTheOldSideOnly,
        corrections.test_a_correction_to_a_time_that_is_over_is_late,
    ),
    (
        planted.JudgesStepsByTheNewSideOnly,
        corrections.test_a_correction_of_a_time_that_is_over_is_late,
    ),
    (
        planted.TakesWhatIsAmendedAtOnceForWhatWasSent,
        corrections.test_what_is_amended_at_once_counts_as_it_was_sent,
    ),
    (planted.RefiresForEver, corrections.test_a_window_refires_until_its_bound),
    (planted.RefiresFromTheTimeOfTheFact, corrections.test_a_window_refires_until_its_bound),
    (planted.RefiresOneMicrosecondLonger, corrections.test_a_window_refires_until_its_bound),
    (
        planted.RefiresAllOrNothing,
        corrections.test_corrections_refire_in_the_windows_that_still_take_them,
    ),
    (
        planted.RefiresFactsButNoCorrections,
        corrections.test_corrections_refire_in_the_windows_that_still_take_them,
    ),
    (
        planted.LetsTheLastCorrectionWin,
        corrections.test_a_void_wins_for_ever_and_the_first_is_named,
    ),
    (planted.LetsTheFirstAmendWin, corrections.test_the_last_amend_wins_and_only_the_step_matters),
    (planted.NamesTheLastVoid, corrections.test_a_void_wins_for_ever_and_the_first_is_named),
    (planted.GivesAmendsTheirOwnSequence, rules.test_of_equal_times_the_higher_sequence_is_last),
    (
        planted.GivesAmendsTheTimeTheyAreReceived,
        rules.test_without_event_time_an_amend_keeps_the_time_of_its_original,
    ),
    (
        planted.TakesTheTimeThatWasSaid,
        rules.test_without_event_time_an_event_has_the_time_it_is_received,
    ),
    (planted.ForgetsTheOldestHop, rules.test_hops_overlap_and_begin_before_1970),
    (planted.HasNoWindowsBefore1970, rules.test_hops_overlap_and_begin_before_1970),
    (planted.HasTheEndInTheWindow, rules.test_a_window_has_its_start_and_not_its_end),
    (planted.HasNoGroupForNull, rules.test_null_is_a_group_of_its_own),
    (planted.TakesUnknownForTrue, rules.test_only_what_passes_for_certain_is_a_fact),
    (planted.KeepsTheRowsOfEmptiedWindows, corrections.test_an_emptied_window_has_no_row),
    (planted.EmitsWhatIsNotClosed, vector("stopping closes nothing, ending does")),
    (
        planted.DoesNotSayThatItIsClosed,
        rules.test_with_every_change_a_row_says_whether_it_is_closed,
    ),
    (
        planted.WritesOneLateRowForAllWindows,
        rules.test_a_late_fact_has_a_row_for_each_of_its_windows,
    ),
    (
        planted.NamesTheOriginalInLateRows,
        corrections.test_a_late_correction_counts_nothing_otherwise,
    ),
    (
        planted.DoesNotTakeTheOldSideBack,
        corrections.test_a_late_correction_counts_nothing_otherwise,
    ),
]


@pytest.mark.parametrize(
    ("mutant", "case"), NOTICED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_mistake_fails_its_case(mutant: Fold, case: Case) -> None:
    with pytest.raises(AssertionError):
        case(mutant)


def test_every_planted_mistake_has_a_case() -> None:
    assert {mutant for mutant, _ in NOTICED} == set(planted.MUTANTS)


SHAPE = StreamShape(max_commits=16, max_entries=7)


@pytest.mark.parametrize("mutant", planted.MUTANTS, ids=lambda mutant: mutant.__name__)
def test_generated_ledgers_and_windows_notice_every_planted_mistake(mutant: Fold) -> None:
    def is_noticed(seed: int) -> bool:
        commits, settings = random_stream(seed, SHAPE), random_event_time(seed)
        window = random_window(seed)
        expected = fold_windows(commits, window, settings)
        return fold_windows(commits, window, settings, mutant) != expected

    assert any(map(is_noticed, range(400)))


def test_the_fixed_windows_have_every_aggregate_and_every_policy() -> None:
    for time in STREAM_TIMES:
        own = windows_of(time)
        assert {window.aggregate for window in own} == set(PARTS["aggregate"])
        assert len({(window.emit, window.late) for window in own}) == 6
        assert {window.time for window in own} == {time}
    assert windows_of(WINDOWS[0].time) == WINDOWS
    assert random_window(7) == random_window(7)


@given(
    commits=stream_ledgers(StreamShape(max_commits=8, max_entries=5)),
    settings=event_times(),
    window=st.sampled_from(STREAM_TIMES).flatmap(lambda time: windows(time, late="side_output")),
)
def test_what_is_counted_and_what_is_late_are_all_there_is(
    commits: list[StreamCommit], settings: eventtime.EventTime, window: Window
) -> None:
    """In each window they add up to what would be counted if nothing was ever late."""
    watched = fold_windows(commits, replace(window, emit="change"), settings)
    never_late = replace(window, emit="change", late="refire", refire_for_us=2**62)
    everything = fold_windows(commits, never_late, settings)
    found = total(window, watched, "agg_sum")
    found.update(total(window, watched.late, "amount"))
    expected = total(window, everything, "agg_sum")
    assert {slot: n for slot, n in found.items() if n} == {
        slot: n for slot, n in expected.items() if n
    }


@given(
    commits=stream_ledgers(StreamShape(max_commits=8, max_entries=5)),
    settings=event_times(),
    window=st.sampled_from(STREAM_TIMES).flatmap(windows),
)
def test_the_changes_lead_to_the_rows(
    commits: list[StreamCommit], settings: eventtime.EventTime, window: Window
) -> None:
    result = fold_windows(commits, window, settings)
    for view in (result, result.late):
        rows: dict[str, ViewRow] = {}
        for change in view.changes:
            assert change.old_row == (rows[change.key].text if change.key in rows else None)
            if change.row is None:
                del rows[change.key]
            else:
                rows[change.key] = ViewRow(change.row, change.received_at)
        assert rows == view.rows
        places = [(change.received_at, change.key) for change in view.changes]
        assert places == sorted(set(places))
    assert {change.op for change in result.late.changes} <= {"insert"}


def total(window: Window, view: ViewResult, column: str) -> Counter[str]:
    """What the rows of a window have in a column, added up, in billionths."""
    totals: Counter[str] = Counter()
    for row in view.rows.values():
        members = json.loads(row.text)
        names = ("tenant_id", *window.group_by, "window_start")
        totals[json.dumps([members[name] for name in names])] += parse_amount(members[column])
    return totals
