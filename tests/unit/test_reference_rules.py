"""The rules of meters that the shared vectors do not reach, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.generated.meters import AT_LEAST_ONE
from tests.reference.definitions import Aggregate, Meter
from tests.reference.fingerprint import MeterResult, Row
from tests.reference.history import Commit, Content, Control, Event, check_history
from tests.reference.instants import parse_instant
from tests.reference.meters import fold_meters
from tests.reference.periods import HOUR_US

NOVEMBER = "2025-11-01T00:00:00.000000Z"
OCTOBER = "2025-10-01T00:00:00.000000Z"


def at(text: str) -> int:
    """`10` is the tenth of November 2025, `10-28` is another month."""
    return parse_instant(f"2025-{text if '-' in text else f'11-{text}'}T00:00:00Z")


def entry(key: str, control: Control | None = None, **fields: Any) -> Event:
    event = Event(
        seq=0,
        key=key,
        tenant_id="t1",
        stream="usage",
        metric="m",
        customer_ref="c1",
        resource_id=None,
        quantity=None,
        ts=0,
        meta=None,
        control=control,
    )
    event.update(fields)  # type: ignore[typeddict-item]
    return event


def used(key: str, day: str, quantity: str, meta: Mapping[str, Any] | None = None) -> Event:
    return entry(key, ts=at(day), quantity=quantity, meta=meta)


def void(target: str, key: str = "v") -> Event:
    return entry(key, "void", target=target)


def amend(
    target: str, day: str, quantity: str, key: str = "a", meta: Mapping[str, Any] | None = None
) -> Event:
    content = Content(ts=at(day), quantity=quantity, meta=meta, resource_id=None)
    return entry(key, "amend", target=target, event=content)


def adjust(key: str, day: str, quantity: str, reason: str = "goodwill") -> Event:
    return entry(key, "adjust", period_start=at(day), quantity=quantity, reason=reason)


def run(*commits: Sequence[Event], received: Sequence[str] = (), **meter: Any) -> MeterResult:
    """The result of meter `m` over these commits, numbered in order."""
    ledger: list[Commit] = []
    seq = 0
    for number, events in enumerate(commits):
        for event in events:
            seq += 1
            event["seq"] = seq
        ledger.append((at(received[number]) if received else at("15") + number, events))
    check_history(ledger)
    return fold_meters(ledger, [Meter("m", "m", **meter)])["m"]


def row_of(result: MeterResult, period: str = NOVEMBER, *groups: str | None) -> Row:
    return result.rows["t1", "m", "c1", *groups, period]


def shown(result: MeterResult, period: str = NOVEMBER, *groups: str | None) -> tuple[Any, ...]:
    row = row_of(result, period, *groups)
    return row["counted"], row["adjusted"], row["total"]


def written(result: MeterResult) -> list[tuple[str, str, str, str, str | None]]:
    return [
        tuple(
            row[name]
            for name in ("period_start", "amount", "reason", "idempotency_key", "original_key")
        )
        for row in result.adjustments
    ]


def test_a_late_fact_is_in_the_total_and_not_in_the_counters() -> None:
    result = run([used("x", "10", "5")], [used("y", "01", "3")])
    assert shown(result) == ("5", "3", "8")
    assert row_of(result)["agg_count"] == 1
    assert written(result) == [(NOVEMBER, "3", "late", "y", None)]


def test_a_late_fact_below_the_maximum_adjusts_a_maximum_by_nothing() -> None:
    result = run([used("x", "10", "5")], [used("y", "01", "3")], aggregate="max")
    assert shown(result) == ("5", "0", "5")
    assert len(result.changes) == 1


def test_a_period_is_closed_by_the_commit_before_and_ticks_count() -> None:
    close = 48 * HOUR_US
    late = run(
        *([used("x", "30", "5")], [], [used("y", "30", "3")]),
        received=("30", "12-04", "12-05"),
        close_after_us=close,
    )
    assert written(late) == [(NOVEMBER, "3", "closed", "y", None)]
    in_time = run(
        *([used("x", "30", "5")], [used("y", "30", "3")]),
        received=("30", "12-05"),
        close_after_us=close,
    )
    assert written(in_time) == []


def test_a_period_is_still_open_at_the_very_moment_of_its_close() -> None:
    result = run(
        *([], [used("x", "30", "5")]), received=("12-03", "12-04"), close_after_us=48 * HOUR_US
    )
    assert written(result) == []


def test_a_first_fact_after_the_close_makes_a_row_without_counters() -> None:
    result = run([], [used("x", "10", "5")], received=("12-03", "12-04"), close_after_us=0)
    row = row_of(result)
    assert (row["agg_sum"], row["agg_count"]) == ("0", 0)
    nulls = ("agg_max", "agg_min", "agg_last", "watermark_ts")
    assert [row[name] for name in nulls] == [None] * 4
    assert shown(result) == ("0", "5", "5")


def test_behind_the_watermark_comes_before_after_the_close() -> None:
    result = run(
        *([used("x", "10", "5")], [], [used("y", "01", "3")]),
        received=("15", "12-03", "12-04"),
        close_after_us=0,
    )
    assert written(result) == [(NOVEMBER, "3", "late", "y", None)]


def test_a_late_amend_takes_the_old_back_and_adds_the_new() -> None:
    result = run([used("x", "01", "5")], [used("y", "10", "9")], [amend("x", "10-20", "4")])
    assert shown(result) == ("14", "-5", "9")
    assert shown(result, OCTOBER) == ("0", "4", "4")
    assert sorted(written(result)) == [
        (OCTOBER, "4", "amend", "a", "x"),
        (NOVEMBER, "-5", "amend", "a", "x"),
    ]
    assert {row["original_sequence"] for row in result.adjustments} == {"1"}
    assert {row["ingress_sequence"] for row in result.adjustments} == {"3"}


def test_an_amend_is_late_if_only_its_new_time_is() -> None:
    result = run([used("x", "10", "5")], [amend("x", "01", "4")])
    assert shown(result) == ("5", "-1", "4")
    assert len(result.adjustments) == 2


def test_an_adjusted_event_stays_adjusted_whatever_its_amends_say() -> None:
    result = run(
        [used("x", "10", "5")],
        [used("y", "01", "3")],
        [amend("y", "10", "4", "a1")],
        [amend("y", "11", "6", "a2")],
        [void("y")],
    )
    assert shown(result) == ("5", "0", "5")
    assert row_of(result)["watermark_ts"] == "2025-11-10T00:00:00.000000Z"
    assert [row[1] for row in written(result)] == ["3", "-3", "4", "-4", "6", "-6"]


def test_after_a_late_amend_the_counters_keep_what_they_had_for_ever() -> None:
    result = run(
        [used("x", "01", "5")],
        [used("y", "10", "9")],
        [amend("x", "10", "4", "a1")],
        [amend("x", "10", "1", "a2")],
    )
    assert row_of(result)["agg_sum"] == "14"
    assert shown(result) == ("14", "-4", "10")


def test_an_amend_in_time_moves_the_watermark_of_its_new_period_only() -> None:
    result = run([used("x", "10", "5")], [amend("x", "10-31", "5")], [used("y", "08", "1")])
    assert row_of(result)["watermark_ts"] == "2025-11-10T00:00:00.000000Z"
    assert row_of(result, OCTOBER)["watermark_ts"] == "2025-10-31T00:00:00.000000Z"
    assert row_of(result)["agg_count"] == 1


def test_only_the_net_step_of_a_commit_matters() -> None:
    once = run([used("x", "10", "5")], [amend("x", "10", "1", "a1"), amend("x", "10", "2", "a2")])
    assert shown(once) == ("2", "0", "2")
    ended = run([used("x", "10", "5")], [void("x"), amend("x", "12", "2")])
    assert shown(ended) == ("0", "0", "0")
    assert row_of(ended)["watermark_ts"] == "2025-11-10T00:00:00.000000Z"


def test_of_two_late_amends_in_one_commit_only_the_last_is_written() -> None:
    result = run(
        [used("x", "01", "5")],
        [used("y", "10", "9")],
        [amend("x", "01", "1", "a1"), amend("x", "01", "2", "a2")],
    )
    assert {row[1:4] for row in written(result)} == {("-5", "amend", "a2"), ("2", "amend", "a2")}


def test_of_two_voids_in_one_commit_the_first_is_named() -> None:
    result = run([used("x", "01", "5")], [used("y", "10", "9")], [void("x", "v1"), void("x", "v2")])
    assert written(result) == [(NOVEMBER, "-5", "void", "v1", "x")]


def test_a_late_fact_and_its_void_in_one_commit_write_two_adjustments() -> None:
    result = run([used("x", "10", "5")], [used("y", "01", "3"), void("y")])
    assert written(result) == [
        (NOVEMBER, "3", "late", "y", None),
        (NOVEMBER, "-3", "void", "v", "y"),
    ]
    assert shown(result) == ("5", "0", "5")


def test_a_correction_of_the_same_commit_is_judged_by_the_state_before() -> None:
    result = run([used("x", "20", "5"), used("y", "01", "3"), amend("y", "02", "4")])
    assert shown(result) == ("9", "0", "9")


def test_a_late_amend_to_the_same_content_is_written_all_the_same() -> None:
    result = run([used("x", "01", "5")], [used("y", "10", "9")], [amend("x", "01", "5")])
    assert {row[1] for row in written(result)} == {"-5", "5"}
    assert shown(result) == ("14", "0", "14")
    assert len(result.changes) == 2


def test_an_amended_event_keeps_its_place_among_equal_times() -> None:
    result = run([used("x", "10", "5")], [used("y", "10", "6")], [amend("x", "10", "7")])
    assert row_of(result)["agg_last"] == "6"


def test_an_amend_is_complete_and_inherits_no_group() -> None:
    result = run(
        [used("x", "10", "5", {"region": "eu"})], [amend("x", "10", "4")], group_by=("region",)
    )
    assert shown(result, NOVEMBER, "eu") == ("0", "0", "0")
    assert shown(result, NOVEMBER, None) == ("4", "0", "4")


def test_groups_have_watermarks_of_their_own_and_odd_values_are_json() -> None:
    result = run(
        [used("x", "10", "5", {"region": "eu"})],
        [used("y", "01", "3", {"region": ""}), used("z", "01", "1", {"region": None})],
        [used("w", "01", "2", {"region": 7})],
        group_by=("region",),
    )
    assert {key[3] for key in result.rows} == {"eu", "", None, "7"}
    assert result.adjustments == []


def test_a_side_that_fails_the_condition_plays_no_part() -> None:
    into = run(
        *([used("x", "10", "0")], [used("y", "20", "1")], [amend("x", "20", "4")]),
        where=AT_LEAST_ONE,
    )
    # The old content was no fact, so that its time is late does not matter.
    assert shown(into) == ("5", "0", "5")
    out = run([used("x", "20", "5")], [amend("x", "01", "0")], where=AT_LEAST_ONE)
    assert shown(out) == ("0", "0", "0")


def test_an_event_that_never_passes_the_condition_leaves_no_trace() -> None:
    result = run(
        *([used("x", "20", "0")], [amend("x", "20", "0.5")], [void("x")]), where=AT_LEAST_ONE
    )
    assert (result.rows, result.changes, result.adjustments) == ({}, [], [])


def test_an_adjusted_event_can_leave_and_enter_by_its_condition() -> None:
    result = run(
        [used("x", "01", "5")],
        [used("y", "20", "1")],
        [amend("x", "20", "0", "a1")],
        [amend("x", "20", "3", "a2")],
        where=AT_LEAST_ONE,
    )
    assert [row[1] for row in written(result)] == ["-5", "3"]
    assert shown(result) == ("6", "-2", "4")


def test_an_operators_adjustment_is_in_the_total_until_it_is_voided() -> None:
    commits = [[used("x", "10", "5")], [adjust("o", "28", "-2", "sorry")], [void("o")]]
    result = run(*commits)
    assert [rows["t1", "m", "c1", NOVEMBER]["total"] for rows in result.rows_after] == [
        *("5", "3", "5")
    ]
    assert written(result) == [
        (NOVEMBER, "-2", "sorry", "o", None),
        (NOVEMBER, "2", "void", "v", "o"),
    ]


def test_an_operators_adjustment_belongs_to_no_group() -> None:
    result = run(
        [used("x", "10", "5", {"region": "eu"}), adjust("o", "10", "1")], group_by=("region",)
    )
    assert shown(result, NOVEMBER, "eu") == ("5", "0", "5")
    assert shown(result, NOVEMBER, None) == ("0", "1", "1")


def test_of_nothing_a_maximum_is_null_and_so_is_what_adjusts_it() -> None:
    emptied = run([used("x", "10", "5")], [void("x")], aggregate="max")
    assert shown(emptied) == (None, None, None)
    helped = run([adjust("o", "10", "2")], aggregate="max")
    assert shown(helped) == (None, "2", "2")
    back = run([adjust("o", "10", "2")], [void("o")], aggregate="max")
    assert shown(back) == (None, None, None)


def test_a_late_void_of_the_only_fact_leaves_a_total_of_null() -> None:
    result = run(
        *([used("x", "10", "5")], [], [void("x")]),
        received=("15", "12-03", "12-04"),
        close_after_us=0,
        aggregate="max",
    )
    assert shown(result) == ("5", "-5", None)


def test_each_aggregate_is_what_its_name_says() -> None:
    facts = [used("a", "10", "2"), used("b", "09", "2.0"), used("c", "08", "-1")]
    aggregates: dict[Aggregate, str] = {
        "sum": "3",
        "max": "2",
        "min": "-1",
        "count": "3",
        "last": "2",
        "avg": "1",
        "unique": "2",
    }
    for name, expected in aggregates.items():
        assert shown(run(facts, aggregate=name)) == (expected, "0", expected)


def test_an_average_is_rounded_when_it_is_shown() -> None:
    result = run(
        [used("a", "10", "1"), used("b", "10", "0"), used("c", "10", "1")],
        [used("d", "01", "9")],
        aggregate="avg",
    )
    assert shown(result) == ("0.666666667", "2.083333333", "2.75")


def test_sums_are_exact_at_any_size() -> None:
    big = "9999999999999999999.999999999"
    result = run([used(f"k{n}", "10", big) for n in range(9)] + [used("s", "10", "0.000000001")])
    assert row_of(result)["agg_sum"] == "89999999999999999999.999999992"


def test_the_log_has_one_net_change_a_commit_and_none_where_nothing_changed() -> None:
    result = run(
        [used("x", "10", "5"), amend("x", "10", "6")],
        [used("y", "09", "0"), void("y")],
        [used("z", "12", "1"), void("z", "v2")],
    )
    ops = [(change.op, change.received_at - at("15")) for change in result.changes]
    # At the second commit a fact came and went; at the third one left its watermark behind.
    assert ops == [("INSERT", 0), ("UPDATE", 2)]


def test_other_metrics_streams_and_ends_move_nothing() -> None:
    other = used("y", "10", "5")
    other["metric"] = "other"
    trade = entry("z", ts=at("10"), stream="trades", metric=None, customer_ref=None)
    ended = entry("e", "end", metric=None, customer_ref=None)
    result = run([used("x", "10", "5")], [other, trade, ended])
    assert len(result.changes) == 1
