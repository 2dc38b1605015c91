"""What can be told of an event in windows without Spark: its time, its windows, and what became."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.timetypes import read_time as reference_time
from tests.unit.planted import assert_catches
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import Content, content_of
from tidemark.ops.explaining.event_times import READABLE, Reached, reached_after, read_time
from tidemark.ops.explaining.rows import Neighbours, RowHistory, row_members
from tidemark.ops.explaining.window_places import time_in_window, window_places
from tidemark.ops.explaining.window_verdicts import (
    Aside,
    WindowEvidence,
    WindowState,
    WindowVerdict,
    judge_window,
    verdict_in_window,
    window_verdict_of,
)
from tidemark.pipeline.output.batch import ErrorRow
from tidemark.pipeline.output.encoding import row_key
from tidemark.pipeline.output.schema import Column
from tidemark.pipeline.time.plans import StreamTime
from tidemark.pipeline.windows.definition import WindowDefinition, window_schema
from tidemark.views.port import ChangeRow

SECOND, MINUTE = 1_000_000, 60_000_000
WINDOW = WindowDefinition(
    name="volume",
    stream="trades",
    fields=(
        Column("symbol", "string"),
        Column("number", "decimal"),
        Column("quantity", "decimal"),
        Column("at", "bigint"),
    ),
    size_us=MINUTE,
    every_us=MINUTE,
    group_by=("symbol", "number"),
    aggregate="sum",
    value="quantity",
    where=None,
    emit="change",
    late="drop",
    refire_for_us=0,
    time_column="at",
    time_type="unixtimestamp_us",
)


def window(**changes: Any) -> WindowDefinition:
    return msgspec.structs.replace(WINDOW, **changes)


def event(sequence: int = 5, **fields: Any) -> EventRow:
    data = {"symbol": "TIDE", "quantity": "2", "at": str(10 * SECOND)}
    values: dict[str, Any] = {
        **dict.fromkeys(EventRow.__struct_fields__),
        "ingress_sequence": sequence,
        "received_at": sequence * SECOND,
        "occurred_at": 0,
        "content_hash": b"\1" * 32,
        "tenant_id": "acme",
        "stream": "trades",
        "idempotency_key": f"key-{sequence}",
        "data": json.dumps({**data, **fields.pop("changes", {})}),
    }
    return EventRow(**{**values, **fields})


def content(**changes: Any) -> Content:
    found = content_of(event(changes=changes))
    assert found is not None
    return found


# Times.

DIGITS = st.text("0123456789", min_size=1, max_size=20)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(lambda digits: f".{digits}")),
    st.sampled_from(["", "e3", "E-2", "e", "x"]),
)
INSTANTS = st.builds(
    "{}-{:02}-{:02}{}{:02}:30:{:02}{}{}".format,
    st.sampled_from(["1969", "1970", "2025", "2261", "2262", "02025"]),
    st.integers(0, 13),
    st.integers(0, 32),
    st.sampled_from("Tt _"),
    st.integers(0, 24),
    st.integers(0, 59),
    st.sampled_from(["", ".1", ".123456", ".123456789", "."]),
    st.sampled_from(["Z", "z", "+01:00", "-23:59", "+24:00", ""]),
)
ReadTime = Callable[[msgspec.Raw | None, str], int | None]


def reads_as_the_reference(read: ReadTime) -> Callable[[], None]:
    @given(st.one_of(NUMBERS, INSTANTS, st.text(max_size=5)), st.sampled_from(sorted(READABLE)))
    def holds(text: str, kind: str) -> None:
        assert read(msgspec.Raw(msgspec.json.encode(text)), kind) == reference_time(kind, text)

    return holds


test_a_time_is_read_as_the_reference_reads_it = reads_as_the_reference(read_time)


def test_a_time_that_is_rounded_is_found() -> None:
    def rounded(raw: msgspec.Raw | None, kind: str) -> int | None:
        exact = read_time(raw, kind)
        return exact if exact is None or kind != "unixtimestamp_ns" else exact + 1

    assert_catches(reads_as_the_reference, rounded)


@pytest.mark.parametrize(
    ("raw", "kind", "expected"),
    [
        (b"1.5", "unixtimestamp_s", 1_500_000),
        (b'"1.5"', "unixtimestamp_s", 1_500_000),
        (b"1.9", "unixtimestamp_us", 1),
        (b"1999", "unixtimestamp_ns", 1),
        (b"true", "unixtimestamp_s", None),
        (b"null", "iso8601", None),
        (None, "iso8601", None),
        (b"1", "of our own", None),
    ],
)
def test_a_time_as_it_stands_in_json(raw: bytes | None, kind: str, expected: int | None) -> None:
    assert read_time(None if raw is None else msgspec.Raw(raw), kind) == expected


def timed(sequence: int, at: object, **fields: Any) -> EventRow:
    return event(sequence, changes={"at": at}, **fields)


def test_time_comes_as_far_as_the_latest_event_less_the_tolerance() -> None:
    time = StreamTime("at", "unixtimestamp_us", 100, future_bound_us=SECOND)
    events = [
        timed(1, 500),
        timed(2, 900),
        timed(3, 700),
        timed(4, "no time"),
        # Too far in the future, and a correction: neither moves it.
        timed(5, 6 * SECOND + 1),
        event(6, control="void", target_key="key-1"),
    ]
    assert reached_after(events, time, are_all=True) == Reached(800, is_exact=True)
    assert reached_after(events, time, are_all=False) == Reached(800, is_exact=False)
    assert reached_after([], time, are_all=True) == Reached(None, is_exact=True)
    for changes in ({"idle_after_us": SECOND}, {"type": "of our own"}):
        loose = msgspec.structs.replace(time, **changes)
        assert not reached_after(events, loose, are_all=True).is_exact


# Places.


@given(st.integers(0, 10**9), st.integers(1, 50), st.integers(1, 50))
def test_an_event_is_in_every_window_that_spans_its_time(ts: int, size: int, every: int) -> None:
    size, every = max(size, every), min(size, every)
    own = window(size_us=size * SECOND, every_us=every * SECOND)
    places = window_places(own, content(), ts)
    starts = [place.start for place in places]
    around = range(-size, ts // (every * SECOND) + 2)
    assert starts == [
        number * every * SECOND
        for number in around
        if number * every * SECOND <= ts < (number * every + size) * SECOND
    ]
    assert all(place.end - place.start == size * SECOND for place in places)


def test_the_row_of_a_window_is_that_of_tenant_groups_and_start() -> None:
    said = content(number="1.5")
    [place] = window_places(WINDOW, said, 90 * SECOND)
    expected = row_key(window_schema(WINDOW), ["acme", "TIDE", Decimal("1.5"), MINUTE])
    assert place.row_key == expected
    [place] = window_places(WINDOW, content(symbol=None), 0)
    assert place.row_key == row_key(window_schema(WINDOW), ["acme", None, None, 0])


def test_the_time_of_an_event_is_in_its_column_or_when_it_was_received() -> None:
    assert time_in_window(WINDOW, content(), 7) == 10 * SECOND
    assert time_in_window(window(time_column=None), content(), 7) == 7
    assert time_in_window(WINDOW, content(at="no time"), 7) is None
    assert time_in_window(window(time_type="of our own"), content(), 7) is None


# Verdicts.

PASSED, NOT_PASSED = Reached(10 * SECOND, True), Reached(10 * SECOND - 1, True)
UNSURE = Reached(None, False)
BEYOND = Reached(3 * MINUTE, False)


def row(count: int, *, is_closed: bool = False) -> str:
    return json.dumps({"agg_count": str(count), "is_closed": is_closed})


def history(
    before: int | None, after: int | None = None, *, was_closed: bool = False, **more: Any
) -> RowHistory:
    """A row that counted so many events before the commit, and so many after it."""
    old = None if before is None else row(before, is_closed=was_closed)
    change = None
    if after is not None:
        change = ChangeRow(5 * SECOND, "key", "update", old, row(after), ("agg_count",))
    return RowHistory("key", before=row_members(old), change=change, **more)


UNKNOWN = RowHistory("key", unknown="why not")
QUIET, UP, CLOSED = history(1), history(1, 2), history(1, was_closed=True)
AMONG = history(1, 2, neighbours=Neighbours(events=1))
REFIRE = {"late": "refire", "refire_for_us": 2 * MINUTE}


@pytest.mark.parametrize(
    ("changes", "reached", "past", "outcome"),
    [
        ({}, NOT_PASSED, UP, "counted"),
        ({}, UNSURE, UP, "counted"),
        ({}, PASSED, QUIET, "dropped"),
        ({}, NOT_PASSED, CLOSED, "dropped"),
        ({}, UNSURE, CLOSED, "dropped"),
        # Its row does not count it, and there is no other reason.
        ({}, UNSURE, QUIET, "dropped"),
        ({"where": "true"}, UNSURE, QUIET, "not_counted"),
        ({"where": "true"}, NOT_PASSED, QUIET, "not_counted"),
        ({"where": "true"}, NOT_PASSED, UP, "counted"),
        ({"value": "quantity * 2"}, NOT_PASSED, UNKNOWN, "unknown"),
        ({}, NOT_PASSED, AMONG, "unknown"),
        ({}, UNSURE, UNKNOWN, "unknown"),
        ({"emit": "close"}, NOT_PASSED, QUIET, "counted"),
        ({"emit": "close"}, UNSURE, QUIET, "unknown"),
        ({"emit": "close"}, PASSED, QUIET, "dropped"),
        ({"emit": "close", "where": "true"}, NOT_PASSED, QUIET, "unknown"),
        ({"late": "side_output"}, UNSURE, UNKNOWN, "counted"),
        ({"late": "side_output"}, PASSED, QUIET, "not_counted"),
        (REFIRE, PASSED, UP, "refired"),
        (REFIRE, NOT_PASSED, UP, "counted"),
        (REFIRE, BEYOND, QUIET, "dropped"),
        ({**REFIRE, "emit": "close"}, PASSED, QUIET, "refired"),
        ({**REFIRE, "emit": "close"}, UNSURE, QUIET, "unknown"),
    ],
)
def test_what_became_of_an_event_in_a_window(
    changes: dict[str, Any], reached: Reached, past: RowHistory, outcome: str
) -> None:
    own = window(**changes)
    [place] = window_places(own, content(), 10 * SECOND)
    judged = judge_window(own, place, past, "open", reached, None)
    verdict = verdict_in_window(own, judged)
    assert verdict.outcome == outcome
    assert verdict.reason


def test_an_event_in_a_window_that_counts_nothing_is_not_counted() -> None:
    own = window(emit="close", where="true")
    [place] = window_places(own, content(), 10 * SECOND)

    def outcome(reached: Reached, *, is_corrected: bool = False) -> WindowVerdict:
        judged = judge_window(
            own, place, history(None), "empty", reached, None, is_corrected=is_corrected
        )
        return verdict_in_window(own, judged)

    not_taken = "its condition was not true or its value null"
    assert outcome(NOT_PASSED) == WindowVerdict("not_counted", not_taken)
    assert outcome(UNSURE) == WindowVerdict("not_counted", f"it was late, or {not_taken}")
    # It may have been counted, and taken out again.
    assert outcome(NOT_PASSED, is_corrected=True).outcome == "unknown"


def test_what_is_put_aside_was_late_whatever_else_is_known() -> None:
    own = window(late="side_output")
    [place] = window_places(own, content(), 10 * SECOND)
    judged = judge_window(own, place, UNKNOWN, "closed", UNSURE, Aside("2", "late"))
    assert judged.late
    assert verdict_in_window(own, judged) == WindowVerdict(
        "put_aside", "it was late: it is a row of volume_late"
    )


def test_windows_that_differ_are_told_together() -> None:
    own = window(every_us=20 * SECOND)
    places = window_places(own, content(), 50 * SECOND)
    pasts = [CLOSED, UP, UP]
    judged = [
        judge_window(own, place, past, "open", NOT_PASSED, None)
        for place, past in zip(places, pasts, strict=True)
    ]
    verdict = window_verdict_of(WindowEvidence(event(), own, judged, []))
    assert verdict == WindowVerdict("partly", "dropped in 1, counted in 2 of its windows")


def correction(
    past: RowHistory,
    reached: Reached = NOT_PASSED,
    state: WindowState = "closed",
    aside: Aside | None = None,
    **changes: Any,
) -> str:
    own = window(**changes)
    [place] = window_places(own, content(), 10 * SECOND)
    judged = [judge_window(own, place, past, state, reached, aside)]
    void = event(9, control="void", target_key="key-5")
    return window_verdict_of(WindowEvidence(void, own, judged, [])).outcome


def test_what_became_of_a_correction() -> None:
    assert correction(UP) == "corrected"
    assert correction(QUIET) == "no_effect"
    assert correction(QUIET, PASSED) == "dropped"
    assert correction(QUIET, UNSURE) == "unknown"
    assert correction(UNKNOWN) == "unknown"
    assert correction(QUIET, state="open", emit="close") == "corrected"
    assert correction(QUIET, state="open", emit="close", where="true") == "unknown"
    assert correction(QUIET, aside=Aside("-2", "void"), late="side_output") == "put_aside"
    assert correction(QUIET, PASSED, **REFIRE) == "no_effect"
    assert correction(QUIET, BEYOND, **REFIRE) == "dropped"


def test_a_correction_that_another_overruled_has_no_effect() -> None:
    earlier = event(8, control="void", target_key="key-5")
    evidence = WindowEvidence(event(9, control="amend"), WINDOW, [], [], earlier)
    assert window_verdict_of(evidence) == WindowVerdict("no_effect", "8 had voided the original")


def test_what_the_pipeline_could_not_take_or_only_it_can_read_says_so() -> None:
    said = ("expression_failed", "it fails")
    error = ErrorRow(5, "window volume", 5 * SECOND, *said, "acme", "trades", "key-5")
    verdict = window_verdict_of(WindowEvidence(event(), WINDOW, [], [error]))
    assert verdict == WindowVerdict("not_counted", "expression_failed: it fails")
    own = window(time_type="of_our_own")
    verdict = window_verdict_of(WindowEvidence(event(), own, [], []))
    assert (verdict.outcome, "of_our_own" in verdict.reason) == ("unknown", True)
