"""A run drawn as a timeline: one line an event, to scale, never wider than the terminal.

    41    +0 ms  ○                       usage   acme  voided by 44: api_calls cus_42 12.5
    42  +120 ms  ──●                     trades  acme  {"trade_id":"t-1"}
    44   +1.2 s    ───────────────────◆  usage   acme  void of 41 {"reason":"was a test"}

A line leads from where the event before stands to where this one stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import click
from rich.cells import cell_len, set_cell_size

_GAP: Final = "  "
_WIDEST_BAR: Final = 40
# What is narrower shows no scale.
_NARROWEST_BAR: Final = 4
# A name takes no more than this part of a line.
_NAME_SHARE: Final = 6

_MS: Final = 1000
_SECOND: Final = 1000 * _MS
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


class Marks(NamedTuple):
    """What a timeline is drawn with, each one cell wide."""

    event: str
    control: str
    void: str
    line: str
    cut: str


UNICODE: Final = Marks("●", "◆", "○", "─", "…")
ASCII: Final = Marks("*", "+", "o", "-", "~")


class Moment(NamedTuple):
    """An event as it stands on a timeline. Its texts are printable, each on one line."""

    sequence: str
    at_us: int
    stream: str
    tenant: str
    text: str
    is_control: bool = False
    is_void: bool = False


class Scale(NamedTuple):
    """The time that a timeline spans."""

    first_us: int
    last_us: int

    def position(self, at_us: int, cells: int) -> int:
        """Where a time stands among so many cells; what lies beyond stands at the edge."""
        span = self.last_us - self.first_us
        if span <= 0:
            return 0
        return max(0, min(cells - 1, (at_us - self.first_us) * (cells - 1) // span))


class Layout(NamedTuple):
    """How many cells a line has, and each of its columns; one with none is left out."""

    line: int
    sequence: int
    elapsed: int
    bar: int
    stream: int
    tenant: int
    text: int


def marks_for(encoding: str) -> Marks:
    """What can be drawn with in an encoding."""
    try:
        "".join(UNICODE).encode(encoding)
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


def layout(
    columns: int,
    scale: Scale,
    *,
    sequences: Iterable[str],
    streams: Iterable[str],
    tenants: Iterable[str],
) -> Layout:
    """Columns as wide as what stands in them; the bar and the text share the rest."""
    sequence = _widest(sequences)
    elapsed = _elapsed_width(scale.last_us - scale.first_us)
    stream, tenant = (min(_widest(names), columns // _NAME_SHARE) for names in (streams, tenants))
    taken = sum(width + len(_GAP) for width in (sequence, elapsed, stream, tenant) if width)
    rest = columns - taken
    bar = min(_WIDEST_BAR, (rest - len(_GAP)) // 2)
    if bar < _NARROWEST_BAR:
        return Layout(columns, sequence, elapsed, 0, stream, tenant, max(0, rest))
    return Layout(columns, sequence, elapsed, bar, stream, tenant, rest - bar - len(_GAP))


def timeline_lines(
    moments: Iterable[Moment],
    scale: Scale,
    widths: Layout,
    marks: Marks = UNICODE,
    *,
    has_colour: bool = False,
) -> Iterator[str]:
    """A line for each moment, in their order."""
    before = 0
    for moment in moments:
        bar = ""
        if widths.bar:
            position = scale.position(moment.at_us, widths.bar)
            bar = bar_text(before, position, widths.bar, _mark_of(moment, marks), marks)
            before = position
        since = f"+{duration_text(max(0, moment.at_us - scale.first_us))}"
        yield _joined(
            [
                (moment.sequence.rjust(widths.sequence), {"fg": "cyan"}),
                (since.rjust(widths.elapsed), {"dim": True}),
                (bar, {}),
                (_filled(moment.stream, widths.stream, marks), {"bold": True}),
                (_filled(moment.tenant, widths.tenant, marks), {}),
                (cropped(moment.text, widths.text, marks), {}),
            ],
            widths.line,
            marks,
            has_colour=has_colour,
        )


def bar_text(before: int, position: int, cells: int, mark: str, marks: Marks = UNICODE) -> str:
    """A bar of so many cells: a line from where the event before stands, and a mark at its end."""
    return f"{' ' * before}{marks.line * (position - before)}{mark}".ljust(cells)


def duration_text(us: int) -> str:
    """`0 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`. What is left over is dropped."""
    if us < _SECOND:
        return f"{us // _MS} ms"
    if us < _MINUTE:
        return f"{us // _SECOND}.{us % _SECOND * 10 // _SECOND} s"
    if us < _HOUR:
        return f"{us // _MINUTE} min {us % _MINUTE // _SECOND} s"
    if us < _DAY:
        return f"{us // _HOUR} h {us % _HOUR // _MINUTE} min"
    return f"{us // _DAY:,} d {us % _DAY // _HOUR} h"


def cropped(text: str, cells: int, marks: Marks = UNICODE) -> str:
    """The text, cut so that it takes no more than so many cells."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, cells - 1).rstrip() + marks.cut if cells > 0 else ""


def _filled(text: str, cells: int, marks: Marks) -> str:
    """The text in exactly so many cells."""
    shown = cropped(text, cells, marks)
    return shown + " " * (cells - cell_len(shown))


def _joined(
    columns: Iterable[tuple[str, dict[str, Any]]], cells: int, marks: Marks, *, has_colour: bool
) -> str:
    """Columns beside each other, as far as the line reaches."""
    line, left = "", cells
    for text, style in columns:
        gap = _GAP if line else ""
        shown = cropped(text, left - len(gap), marks)
        if shown:
            left -= len(gap) + cell_len(shown)
            line += gap + (click.style(shown, **style) if has_colour and style else shown)
    return line.rstrip()


def _mark_of(moment: Moment, marks: Marks) -> str:
    if moment.is_control:
        return marks.control
    return marks.void if moment.is_void else marks.event


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _elapsed_width(span_us: int) -> int:
    """Room for every time up to the end: the text of an earlier one may be the longer."""
    if span_us < _MINUTE:
        return len("+999 ms")
    return max(len("+59 min 59 s"), len(f"+{span_us // _DAY:,} d 23 h"))
