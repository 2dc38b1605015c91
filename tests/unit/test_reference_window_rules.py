"""The rules of windows one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reference import eventtime
from tests.reference.tables import Condition, Field, StreamCommit, StreamEvent
from tests.reference.timetypes import read_time, time_in
from tests.reference.window_definitions import ONE, Value, Window
from tests.reference.windows import WindowFold, fold_windows
from tests.unit.window_runs import (
    FIELDS,
    STREAM,
    Fold,
    amend,
    end,
    late,
    log,
    rows_of,
    run,
    sent,
    text,
    values,
    void,
)


@pytest.fixture
def fold() -> Fold:
    """The reference; a planted mistake is called with in its place."""
    return WindowFold


def test_a_row_is_the_text_that_views_hold(fold: Fold) -> None:
    result = run(
        fold,
        [sent("x", 5, "2.50", "a"), sent("y", 7, "-1", "a")],
        [sent("z", 10, "0")],
        group_by=("g",),
    )
    key = '["t1","a","1970-01-01T00:00:00.000000Z"]'
    assert list(result.rows) == [key]
    assert result.rows[key].changed_at == 1001
    assert result.rows[key].text == (
        '{"agg_count":"2","agg_last":"-1","agg_max":"2.5","agg_min":"-1","agg_sum":"1.5","g":"a",'
        '"is_closed":true,"tenant_id":"t1","value":"1.5","window_end":"1970-01-01T00:00:00.000010Z"'
        ',"window_start":"1970-01-01T00:00:00.000000Z"}'
    )
    assert result.late.rows == {}


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        *(("sum", "5"), ("max", "3"), ("min", "-1"), ("count", "3"), ("last", "3")),
        *(("avg", "1.666666667"), ("unique", "2")),
    ],
)
def test_every_aggregate_is_that_of_meters(aggregate: str, value: str) -> None:
    events = [sent("x", 9, "3"), sent("y", 9, "3.0"), sent("z", 2, "-1")]
    assert values(run(WindowFold, events, [end()], aggregate=aggregate)) == {0: value}


def test_of_equal_times_the_higher_sequence_is_last(fold: Fold) -> None:
    """Also if the other one is amended after it."""
    result = run(
        fold,
        [sent("x", 5, "1"), sent("y", 5, "2"), amend("x", 5, "3")],
        [end()],
        aggregate="last",
    )
    assert values(result) == {0: "2"}


def test_a_window_has_its_start_and_not_its_end(fold: Fold) -> None:
    result = run(fold, [sent("x", 0), sent("y", 9), sent("z", 10)], [end()])
    assert values(result) == {0: "2", 10: "1"}


def test_a_window_closes_when_the_watermark_reaches_its_end(fold: Fold) -> None:
    settings = eventtime.EventTime(late_tolerance=3)
    result = run(fold, [sent("x", 5)], [sent("y", 12)], [sent("z", 13)], settings=settings)
    assert log(result) == [(2, "insert", 0, "1")]


def test_hops_overlap_and_begin_before_1970(fold: Fold) -> None:
    """The size is no multiple of the distance, so a time has two windows or three."""
    result = run(fold, [sent("x", 1), sent("y", 7)], [end()], every_us=4)
    assert values(result) == {-8: "1", -4: "1", 0: "2", 4: "1"}
    assert rows_of(result)[0]["window_start"] == "1969-12-31T23:59:59.999992Z"


def test_lateness_is_judged_by_the_commit_before(fold: Fold) -> None:
    result = run(fold, [sent("x", 25), sent("y", 5)], [sent("z", 6)])
    assert values(result) == {0: "1"}


def test_a_time_that_the_watermark_has_just_reached_is_late(fold: Fold) -> None:
    """Though its window is open."""
    result = run(fold, [sent("x", 5)], [sent("y", 5, "10"), sent("z", 6, "100")], [end()])
    assert values(result) == {0: "101"}


def test_tenants_have_times_of_their_own(fold: Fold) -> None:
    result = run(fold, [sent("x", 5)], [sent("y", 50, tenant="t2")], [sent("z", 6)], emit="change")
    assert [(row["tenant_id"], row["value"]) for row in rows_of(result)] == [
        *(("t1", "2"), ("t2", "1")),
    ]
    assert not any(row["is_closed"] for row in rows_of(result))


def test_what_is_no_fact_moves_the_watermark_too(fold: Fold) -> None:
    """Its time can be read, and more is not asked for."""
    broken = text("y", '{"t":"10","n":"many"}')
    result = run(fold, [sent("x", 5)], [broken], [sent("z", 6)])
    assert values(result) == {0: "1"}
    assert result.errors == [(2, "invalid_field")]


def test_what_an_amend_says_moves_no_watermark(fold: Fold) -> None:
    result = run(fold, [sent("x", 5)], [amend("x", 50)], [sent("z", 6)], emit="change")
    assert values(result) == {0: "2"}


def test_a_silent_lane_closes_by_ticks(fold: Fold) -> None:
    settings = eventtime.EventTime(idle_after=20)
    result = run(fold, [sent("x", 25)], [], [], received=(30, 49, 50), settings=settings)
    assert log(result, first=0) == [(50, "insert", 20, "1")]


def test_an_end_closes_what_is_there(fold: Fold) -> None:
    """Facts of its own commit too, and nothing of another tenant."""
    result = run(fold, [sent("x", 5), sent("y", 5, tenant="t2")], [sent("z", 15), end()])
    assert log(result) == [(1, "insert", 0, "1"), (1, "insert", 10, "1")]
    assert {row["tenant_id"] for row in rows_of(result)} == {"t1"}


def test_after_an_end_other_windows_open_and_close_as_ever(fold: Fold) -> None:
    result = run(fold, [sent("x", 5)], [end()], [sent("y", 15)], [sent("z", 20)])
    assert log(result) == [(1, "insert", 0, "1"), (3, "insert", 10, "1")]


def test_an_ended_window_takes_no_more_facts(fold: Fold) -> None:
    """Not even those that the watermark has not reached."""
    result = run(fold, [sent("x", 5)], [end()], [], [sent("y", 7)], late="side_output")
    assert values(result) == {0: "1"}
    assert late(result) == [(0, "3", 0, "1", "late", "y", None)]


def test_a_fact_can_be_late_in_some_of_its_windows(fold: Fold) -> None:
    result = run(
        fold,
        *([sent("x", 1)], [end()], [sent("y", 6, "10")], [end("end2")]),
        every_us=5,
        late="side_output",
    )
    assert values(result) == {-5: "1", 0: "1", 5: "10"}
    assert late(result) == [(0, "3", 0, "10", "late", "y", None)]


def test_a_fact_that_is_late_in_one_window_has_parted(fold: Fold) -> None:
    result = run(
        fold,
        *([sent("x", 1)], [end()], [sent("y", 6, "10")], [amend("y", 12, "7")], [end("end2")]),
        every_us=5,
        late="side_output",
        settings=eventtime.EventTime(late_tolerance=5),
    )
    assert values(result) == {-5: "1", 0: "1", 5: "10"}
    assert late(result)[1:] == [
        *((0, "4", 0, "-10", "amend", "a", "y"), (5, "4", 0, "-10", "amend", "a", "y")),
        *((5, "4", 1, "7", "amend", "a", "y"), (10, "4", 1, "7", "amend", "a", "y")),
    ]


def test_late_facts_are_dropped(fold: Fold) -> None:
    result = run(fold, [sent("x", 5)], [sent("y", 12)], [sent("z", 5)])
    assert values(result) == {0: "1"}
    assert len(result.changes) == 1
    assert result.late.rows == {}


def test_a_late_fact_has_a_row_for_each_of_its_windows(fold: Fold) -> None:
    result = run(
        fold,
        *([sent("x", 50)], [sent("y", 12, "2.5", "a")]),
        every_us=5,
        late="side_output",
        group_by=("g",),
    )
    assert late(result) == [
        *((5, "2", 0, "2.5", "late", "y", None), (10, "2", 0, "2.5", "late", "y", None)),
    ]
    key = '["t1","2","1970-01-01T00:00:00.000005Z",0]'
    assert result.late.rows[key].text == (
        '{"amount":"2.5","event_ts":"1970-01-01T00:00:00.000012Z","g":"a","idempotency_key":"y",'
        '"ingress_sequence":"2","original_key":null,"part":0,"reason":"late","tenant_id":"t1",'
        '"window_end":"1970-01-01T00:00:00.000015Z","window_start":"1970-01-01T00:00:00.000005Z"}'
    )
    assert [(change.received_at, change.op) for change in result.late.changes] == [
        *((1001, "insert"), (1001, "insert")),
    ]


def test_with_every_change_a_row_says_whether_it_is_closed(fold: Fold) -> None:
    result = run(fold, [sent("x", 5)], [sent("y", 7)], [sent("z", 10)], emit="change")
    assert log(result) == [
        *((0, "insert", 0, "1"), (1, "update", 0, "2"), (2, "update", 0, "2")),
        (2, "insert", 10, "1"),
    ]
    changed = [change.changed for change in result.changes]
    assert changed == [None, ("agg_sum", "agg_count", "value"), ("is_closed",), None]


def test_null_is_a_group_of_its_own(fold: Fold) -> None:
    events = [sent("x", 5, "1", None), sent("y", 5, "2", ""), sent("z", 5, "4", "null")]
    result = run(fold, [*events, sent("u", 6, "8", None)], [end()], group_by=("g",))
    keys = [f'["t1",{group},"1970-01-01T00:00:00.000000Z"]' for group in ('""', '"null"', "null")]
    assert [change.key for change in result.changes] == keys
    assert [json.loads(result.rows[key].text)["value"] for key in keys] == ["2", "4", "9"]


def test_groups_of_a_tenant_share_its_time(fold: Fold) -> None:
    result = run(
        fold,
        [sent("x", 5, "1", "a")],
        [sent("y", 10, "2", "b")],
        [sent("z", 6, "4", "a")],
        group_by=("g",),
    )
    assert [(row["g"], row["value"]) for row in rows_of(result)] == [("a", "1")]


def test_two_groups_are_two_columns(fold: Fold) -> None:
    result = run(fold, [sent("x", 5, "1.50", None)], [end()], group_by=("n", "g"), value=ONE)
    assert list(result.rows) == ['["t1","1.5",null,"1970-01-01T00:00:00.000000Z"]']


def test_only_what_passes_for_certain_is_a_fact(fold: Fold) -> None:
    of_a = Condition("g = 'a'", lambda row: None if row["g"] is None else row["g"] == "a")
    events = [sent("x", 5, "1", "a"), sent("y", 5, "2", "b"), sent("z", 5, "4"), sent("u", 5, None)]
    assert values(run(fold, events, [end()], where=of_a)) == {0: "1"}


def test_without_event_time_an_event_has_the_time_it_is_received(fold: Fold) -> None:
    """So no fact is late, and any commit closes, a tick too."""
    said: StreamEvent = {**sent("y", 3), "ts": 15}
    result = run(
        fold, [sent("x", 99)], [said], [sent("z", 1)], [], received=(5, 6, 12, 20), time=None
    )
    assert log(result, first=0) == [(12, "insert", 0, "2"), (20, "insert", 10, "1")]


def test_without_event_time_an_amend_keeps_the_time_of_its_original(
    fold: Fold,
) -> None:
    result = run(
        fold,
        *([sent("x", None, "3")], [amend("x", None, "4")], [void("x")]),
        received=(5, 12, 13),
        time=None,
        late="refire",
        refire_for_us=3,
    )
    assert log(result, first=0) == [(12, "insert", 0, "4"), (13, "delete", 0, None)]
    dropped = run(
        fold, [sent("x", None, "3")], [amend("x", None, "4")], received=(5, 12), time=None
    )
    assert values(dropped) == {0: "3"}


def test_without_event_time_an_end_closes_and_what_comes_after_is_late(
    fold: Fold,
) -> None:
    result = run(
        fold,
        [sent("x", 0)],
        [end()],
        [sent("y", 0, "2")],
        received=(5, 6, 7),
        time=None,
        late="side_output",
    )
    assert values(result) == {0: "1"}
    assert late(result) == [(0, "3", 0, "2", "late", "y", None)]


def test_each_kind_of_error_has_its_code() -> None:
    large = Value("n * 10", lambda row: row["n"] * 10 if row["n"] else 1 / row["n"])
    events = [
        text("a", "[]"),
        text("b", '{"t":"x"}'),
        sent("c", None),
        sent("d", 1, "0"),
        sent("e", 1, "9999999999999999999"),
        sent("f", 1, "1"),
    ]
    result = run(WindowFold, events, [amend("f", 1, "0")], [void("f"), end()], value=large)
    assert result.errors == [
        *((1, "undecodable"), (2, "invalid_field"), (3, "invalid_event_time")),
        *((4, "expression_failed"), (5, "value_out_of_range"), (7, "expression_failed")),
    ]
    needed = (Field("t", "bigint"),)
    window = Window("w", STREAM, needed, 10, 10)
    commits: list[StreamCommit] = [(1, [text("a", "{}")])]
    assert fold_windows(commits, window, eventtime.EventTime()).errors == [(0, "missing_field")]


def test_what_does_not_pass_has_no_value_that_could_fail() -> None:
    never = Condition("false", lambda _: False)
    failing = Value("1 / 0", lambda _: 1 // 0)
    assert run(WindowFold, [sent("x", 5)], where=never, value=failing).errors == []
    assert run(WindowFold, [sent("x", 5)], value=failing).errors == [(1, "expression_failed")]


def test_values_are_rounded_to_billionths_half_away_from_zero() -> None:
    half = Value("n / 2", lambda row: row["n"] / 2)
    events = [sent("x", 5, "0.000000005"), sent("y", 15, "-0.000000005")]
    result = run(WindowFold, events, [end()], value=half)
    assert values(result) == {0: "0.000000003", 10: "-0.000000003"}


@pytest.mark.parametrize(
    ("kind", "said", "us"),
    [
        ("iso8601", "1970-01-01T00:00:01.5Z", 1_500_000),
        ("iso8601", "1970-01-01t01:00:00.1234569+01:00", 123_456),
        ("iso8601", "1970-02-30T00:00:00Z", None),
        ("iso8601", "1969-12-31T23:59:59Z", None),
        ("iso8601", "1970-01-01T00:00:00", None),
        ("unixtimestamp_s", "1.0000019", 1_000_001),
        ("unixtimestamp_s", "1e3", 1_000_000_000),
        ("unixtimestamp_ms", "-1", None),
        ("unixtimestamp_us", str(2**63), None),
        ("unixtimestamp_ns", "1999", 1),
        ("unixtimestamp_ns", " 1", None),
    ],
)
def test_times_are_read_from_their_text(kind: str, said: str, us: int | None) -> None:
    assert read_time(kind, said) == us


def test_a_time_is_read_whatever_else_is_in_the_event() -> None:
    assert time_in('{"t":5,"n":{}}', "t", "unixtimestamp_us") == 5
    assert time_in('{"t":null}', "t", "unixtimestamp_us") is None
    assert time_in('{"t":5', "t", "unixtimestamp_us") is None


@pytest.mark.parametrize(
    "parts",
    [
        {"size_us": 10, "every_us": 11},
        {"size_us": 10, "every_us": 0},
        {"size_us": 1001, "every_us": 1},
        {"size_us": 10, "every_us": 10, "late": "refire"},
        {"size_us": 10, "every_us": 10, "refire_for_us": 1},
        {"size_us": 10, "every_us": 10, "group_by": ("g", "g")},
        {"size_us": 10, "every_us": 10, "group_by": ("amount",)},
    ],
    ids=str,
)
def test_what_is_no_window_cannot_be_made(parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no windows|only what refires|no column names"):
        Window("w", STREAM, FIELDS, **parts)
