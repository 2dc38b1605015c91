"""A run drawn as a timeline: in order, to scale, and never wider than the terminal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len, set_cell_size

from tests.unit.planted import assert_catches
from tidemark.cli import timeline
from tidemark.cli.causality import Run, RunEvent, StreamCount, TenantCount, moment_of, summary_text
from tidemark.cli.output import one_line
from tidemark.cli.timeline import (
    ASCII,
    UNICODE,
    Moment,
    Scale,
    bar_text,
    cropped,
    duration_text,
    layout,
    marks_for,
    timeline_lines,
)

MS, SECOND, MINUTE = 1_000, 1_000_000, 60_000_000
HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE

# Letters of one cell, of two, of none, and what is written as an escape.
TEXTS = st.text(
    st.one_of(st.sampled_from("ab 日🙂é\u0301\u200d\t\x1b"), st.characters()), max_size=30
)


@st.composite
def runs(draw: st.DrawFn) -> list[Moment]:
    """Moments in order, which may share a time."""
    first = draw(st.integers(0, 2**52))
    gaps = draw(
        st.lists(st.sampled_from([0, 1, MS, SECOND, MINUTE, 3 * HOUR, 40 * DAY]), max_size=20)
    )
    moments, at_us = [], first
    for number, gap in enumerate([0, *gaps], draw(st.integers(1, 2**40))):
        at_us += gap
        stream, tenant, text = (one_line(draw(TEXTS)) for _ in range(3))
        flags = draw(st.tuples(st.booleans(), st.booleans()))
        moments.append(Moment(str(number), at_us, stream, tenant, text, *flags))
    return moments


def drawn(moments: list[Moment], columns: int, has_colour: bool = False) -> list[str]:
    scale = Scale(moments[0].at_us, moments[-1].at_us)
    widths = layout(
        columns,
        scale,
        sequences=[moments[-1].sequence],
        streams=[moment.stream for moment in moments],
        tenants=[moment.tenant for moment in moments],
    )
    return list(timeline_lines(moments, scale, widths, has_colour=has_colour))


Draw = Callable[[list[Moment], int], list[str]]


def fits(draw: Draw) -> Callable[[], None]:
    @given(runs(), st.integers(1, 200))
    def holds(moments: list[Moment], columns: int) -> None:
        lines = draw(moments, columns)
        assert len(lines) == len(moments)
        for line, moment in zip(lines, moments, strict=True):
            assert cell_len(line) <= columns
            assert "\n" not in line
            if columns > len(moment.sequence):
                assert line.split()[0] == moment.sequence

    return holds


test_a_line_for_each_event_in_order_and_never_wider_than_the_terminal = fits(drawn)


def test_a_line_that_is_cut_by_letters_and_not_by_cells_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        timeline, "cropped", lambda text, cells, marks=UNICODE: text[: max(0, cells)]
    )
    assert_catches(fits, drawn)


@given(runs(), st.integers(20, 200))
def test_colours_change_nothing_else(moments: list[Moment], columns: int) -> None:
    coloured = drawn(moments, columns, has_colour=True)
    plain = [click.unstyle(line).rstrip() for line in coloured]
    assert plain == [click.unstyle(line).rstrip() for line in drawn(moments, columns)]


Position = Callable[[Scale, int, int], int]


def goes_up(position: Position) -> Callable[[], None]:
    @given(
        st.lists(st.integers(0, 2**62), min_size=1, max_size=30).map(sorted), st.integers(1, 100)
    )
    @example([0, 2**62], 40)
    def holds(times: list[int], cells: int) -> None:
        scale = Scale(times[0], times[-1])
        places = [position(scale, at_us, cells) for at_us in times]
        assert all(earlier <= later for earlier, later in pairwise(places))
        assert places[0] == 0
        assert places[-1] == (cells - 1 if times[-1] > times[0] else 0)
        # To scale: no further from where it belongs than a cell.
        for at_us, place in zip(times, places, strict=True):
            exact = (at_us - times[0]) * (cells - 1)
            assert place * (times[-1] - times[0]) <= exact
            assert exact < (place + 1) * max(1, times[-1] - times[0])

    return holds


test_positions_go_up_with_time_from_the_first_cell_to_the_last = goes_up(Scale.position)


def test_a_position_by_order_and_not_by_time_is_found() -> None:
    assert_catches(goes_up, lambda scale, at_us, cells: 0 if at_us == scale.first_us else cells - 1)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 60))
def test_a_bar_has_its_mark_where_the_event_stands(one: int, other: int, more: int) -> None:
    before, position = sorted((one, other))
    bar = bar_text(before, position, position + more, "●")
    assert len(bar) == position + more
    assert bar.index("●") == position
    assert bar[:position] == " " * before + "─" * (position - before)


def test_the_marks_tell_events_from_controls_and_from_what_is_void() -> None:
    moments = [
        Moment("1", 0, "usage", "acme", "x", is_void=True),
        Moment("2", 0, "usage", "acme", "x"),
        Moment("3", 0, "usage", "acme", "void of 1", is_control=True),
    ]
    marks = [line.split()[3] for line in drawn(moments, 80)]
    assert marks == [UNICODE.void, UNICODE.event, UNICODE.control]


def test_a_terminal_too_narrow_for_a_scale_shows_none() -> None:
    moments = [Moment("1", 0, "usage", "acme", "x"), Moment("2", SECOND, "usage", "acme", "y")]
    assert drawn(moments, 30)[1] == "2   +1.0 s  usage  acme  y"


def test_what_comes_after_the_end_of_the_scale_stands_at_its_edge() -> None:
    scale = Scale(0, SECOND)
    assert (scale.position(-1, 10), scale.position(2 * SECOND, 10)) == (0, 9)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 ms"),
        (999, "0 ms"),
        (MS, "1 ms"),
        (SECOND - 1, "999 ms"),
        (SECOND, "1.0 s"),
        (1_299_999, "1.2 s"),
        (MINUTE - 1, "59.9 s"),
        (MINUTE, "1 min 0 s"),
        (184 * SECOND, "3 min 4 s"),
        (HOUR - 1, "59 min 59 s"),
        (2 * HOUR + 5 * MINUTE, "2 h 5 min"),
        (DAY - 1, "23 h 59 min"),
        (3 * DAY + 4 * HOUR, "3 d 4 h"),
        (1_234 * DAY, "1,234 d 0 h"),
    ],
)
def test_a_duration_in_words(us: int, text: str) -> None:
    assert duration_text(us) == text


@given(TEXTS, st.integers(0, 40))
def test_what_is_cut_says_so_and_fits(text: str, cells: int) -> None:
    cut = cropped(text, cells)
    assert cell_len(cut) <= cells
    if cut != text:
        assert cut == "" or cut.endswith("…")
        assert set_cell_size(text, cells).startswith(cut[:-1])


def test_a_terminal_without_the_marks_gets_others() -> None:
    assert marks_for("utf-8") == UNICODE
    assert marks_for("ascii") == marks_for("latin-1") == ASCII
    assert all(cell_len(mark) == 1 for mark in (*UNICODE, *ASCII))


def an_event(**fields: str) -> RunEvent:
    times = dict.fromkeys(("received_at", "occurred_at"), "2025-01-31T12:00:00.000001Z")
    names = {"ingress_sequence": "41", "tenant_id": "acme", "stream": "usage"}
    return RunEvent(**{**times, **names, "metric": "bytes", "quantity": "3", **fields})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "bytes 3"),
        ({"voided_by": "44"}, "voided by 44: bytes 3"),
        ({"amended_by": "44"}, "amended by 44: bytes 3"),
        ({"control": "void", "target": "k", "target_sequence": "7"}, "void of 7 bytes 3"),
        ({"control": "void", "target": "k"}, "void k bytes 3"),
        ({"metric": "\x1b[31m\n"}, "\\u001b[31m\\n 3"),
    ],
)
def test_an_event_says_how_it_hangs_together_with_others(fields: dict[str, str], text: str) -> None:
    moment = moment_of(an_event(**fields))
    assert moment.text == text
    assert (moment.is_control, moment.is_void) == ("control" in fields, "voided_by" in fields)


def a_run(count: int, *, tenants: int = 1, complete: bool = True) -> Run:
    return Run(
        causality_key="run",
        count=count,
        complete=complete,
        tenants=[TenantCount(f"t{n}", count) for n in range(tenants)],
        streams=[StreamCount("a", 1), StreamCount("b", count - 1)],
        last_sequence="9",
        first_received_at="",
        last_received_at="",
        received_duration_ms=184_500,
    )


def test_a_run_is_summed_up_on_a_line() -> None:
    assert summary_text(a_run(2000), 2000) == "2,000 events in 3 min 4 s: b 1,999, a 1; t0 2,000"
    assert summary_text(a_run(2000), 10).startswith("the first 10 of 2,000 events in 3 min 4 s: ")
    assert summary_text(a_run(9, complete=False), 9).startswith("at least 9 events in ")
    assert summary_text(a_run(7, tenants=8), 7).endswith(
        "; t0 7, t1 7, t2 7, t3 7, t4 7 and 3 more"
    )
