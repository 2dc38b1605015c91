"""What corrections do to windows, and windows that refire, rule by rule."""

from __future__ import annotations

import pytest

from tests.reference import eventtime
from tests.reference.windows import WindowFold
from tests.unit.window_runs import (
    Fold,
    amend,
    end,
    late,
    log,
    run,
    sent,
    values,
    void,
)


@pytest.fixture
def fold() -> Fold:
    """The reference; a planted mistake is called with in its place."""
    return WindowFold


def test_a_correction_in_time_moves_a_fact(fold: Fold) -> None:
    result = run(
        fold,
        *([sent("x", 9, "5")], [sent("y", 9, "2"), amend("y", 8, "1"), amend("x", 22, "4")]),
        [end()],
        settings=eventtime.EventTime(late_tolerance=10),
        emit="change",
    )
    assert log(result) == [
        *((0, "insert", 0, "5"), (1, "update", 0, "1"), (1, "insert", 20, "4")),
        *((2, "update", 0, "1"), (2, "update", 20, "4")),
    ]
    assert result.changes[-1].changed == ("is_closed",)


def test_an_emptied_window_has_no_row(fold: Fold) -> None:
    tolerant = eventtime.EventTime(late_tolerance=10)
    result = run(fold, [sent("x", 9)], [void("x")], [end()], settings=tolerant, emit="change")
    assert log(result) == [(0, "insert", 0, "1"), (1, "delete", 0, None)]
    refired = run(
        fold, [sent("x", 9)], [sent("y", 10)], [void("x")], late="refire", refire_for_us=9
    )
    assert log(refired) == [(1, "insert", 0, "1"), (2, "delete", 0, None)]


def test_a_correction_of_a_time_that_is_over_is_late(fold: Fold) -> None:
    """By its old time here."""
    result = run(
        fold, [sent("x", 5, "3")], [amend("x", 7, "4")], [end()], late="side_output", emit="change"
    )
    assert values(result) == {0: "3"}
    assert late(result) == [
        *((0, "2", 0, "-3", "amend", "a", "x"), (0, "2", 1, "4", "amend", "a", "x")),
    ]


def test_a_correction_to_a_time_that_is_over_is_late(fold: Fold) -> None:
    """Though the time it had is not."""
    result = run(
        fold,
        *([sent("x", 25, "3")], [amend("x", 4, "4")], [end()]),
        late="side_output",
        settings=eventtime.EventTime(late_tolerance=10),
    )
    assert values(result) == {20: "3"}
    assert late(result) == [
        *((20, "2", 0, "-3", "amend", "a", "x"), (0, "2", 1, "4", "amend", "a", "x")),
    ]


def test_a_late_correction_counts_nothing_otherwise(fold: Fold) -> None:
    result = run(fold, [sent("x", 5, "3")], [sent("y", 10)], [void("x")], late="side_output")
    assert values(result) == {0: "3"}
    assert late(result) == [(0, "3", 0, "-3", "void", "v", "x")]


def test_what_has_parted_is_late_for_ever(fold: Fold) -> None:
    """Even where the step is from a time that is not over to another such."""
    result = run(
        fold,
        *([sent("x", 25, "3")], [amend("x", 4, "4")], [amend("x", 30, "5", key="b")]),
        *([amend("x", 31, "6", key="c")], [end()]),
        late="side_output",
        settings=eventtime.EventTime(late_tolerance=10),
    )
    assert values(result) == {20: "3"}
    assert late(result)[2:] == [
        *((0, "3", 0, "-4", "amend", "b", "x"), (30, "3", 1, "5", "amend", "b", "x")),
        *((30, "4", 0, "-5", "amend", "c", "x"), (30, "4", 1, "6", "amend", "c", "x")),
    ]


def test_what_is_amended_at_once_counts_as_it_was_sent(fold: Fold) -> None:
    """Where the new time is over: the step is late, what was sent is not."""
    result = run(
        fold,
        *([sent("x", 15)], [sent("y", 18, "3"), amend("y", 4, "4")], [end()]),
        late="side_output",
    )
    assert values(result) == {10: "4"}
    assert late(result) == [
        *((10, "3", 0, "-3", "amend", "a", "y"), (0, "3", 1, "4", "amend", "a", "y")),
    ]


def test_a_correction_in_a_window_that_has_ended_is_late(fold: Fold) -> None:
    result = run(
        fold,
        *([sent("x", 5)], [end()], [void("x")]),
        late="side_output",
        settings=eventtime.EventTime(late_tolerance=10),
    )
    assert values(result) == {0: "1"}
    assert late(result) == [(0, "3", 0, "-1", "void", "v", "x")]


def test_a_void_wins_for_ever_and_the_first_is_named(fold: Fold) -> None:
    result = run(
        fold,
        [sent("x", 5, "3")],
        [amend("x", 5, "4"), void("x"), void("x", "v2"), amend("x", 5, "9", key="b")],
        [amend("x", 5, "5", key="c"), void("x", "v3")],
        late="side_output",
    )
    assert late(result) == [(0, "3", 0, "-3", "void", "v", "x")]


def test_the_last_amend_wins_and_only_the_step_matters(fold: Fold) -> None:
    result = run(
        fold,
        [sent("x", 5, "3")],
        [amend("x", 5, "4"), amend("x", 5, "9", key="b")],
        late="side_output",
    )
    assert late(result) == [
        *((0, "3", 0, "-3", "amend", "b", "x"), (0, "3", 1, "9", "amend", "b", "x")),
    ]


def test_a_side_that_is_no_fact_plays_no_part(fold: Fold) -> None:
    """An event without a value can become a fact in time, however old it would have been."""
    result = run(
        fold,
        *([sent("x", 4, None)], [amend("x", 22, "5")], [amend("x", 23, None, key="b")]),
        *([amend("x", 24, "6", key="c")], [end()]),
        late="side_output",
        emit="change",
    )
    assert log(result)[:3] == [
        (1, "insert", 20, "5"),
        (2, "delete", 20, None),
        (3, "insert", 20, "6"),
    ]
    assert late(result) == []


def test_a_late_amend_to_what_is_no_fact_takes_the_old_back(fold: Fold) -> None:
    result = run(fold, [sent("x", 5, "3")], [amend("x", None, "4")], late="side_output")
    assert late(result) == [(0, "2", 0, "-3", "amend", "a", "x")]
    assert result.errors == [(2, "invalid_event_time")]


def test_a_window_refires_until_its_bound(fold: Fold) -> None:
    """The bound counts from its end, and W as it was before."""
    result = run(
        fold,
        *([sent("x", 5)], [sent("y", 14)], [sent("z", 2, "10")], [sent("u", 15, None)]),
        [sent("v", 9, "100")],
        late="refire",
        refire_for_us=5,
    )
    assert log(result) == [(1, "insert", 0, "1"), (2, "update", 0, "11")]
    assert result.late.rows == {}


def test_a_first_fact_may_come_after_the_close(fold: Fold) -> None:
    result = run(fold, [sent("x", 14)], [sent("y", 2)], late="refire", refire_for_us=5)
    assert log(result) == [(1, "insert", 0, "1")]


def test_corrections_refire_in_the_windows_that_still_take_them(fold: Fold) -> None:
    """Others stay as they are."""
    result = run(
        fold,
        *([sent("x", 7, "3")], [sent("y", 17, "0")], [amend("x", 8, "4")]),
        every_us=5,
        late="refire",
        refire_for_us=5,
    )
    assert log(result) == [
        *((1, "insert", 0, "3"), (1, "insert", 5, "3")),
        (2, "update", 5, "4"),
    ]


def test_an_ended_window_refires_and_stays_closed(fold: Fold) -> None:
    """Also after it was empty for a while."""
    result = run(
        fold,
        *([sent("x", 5)], [end()], [void("x")], [sent("y", 7)]),
        late="refire",
        refire_for_us=5,
    )
    assert log(result) == [(1, "insert", 0, "1"), (2, "delete", 0, None), (3, "insert", 0, "1")]
