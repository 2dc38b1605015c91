"""What windows made of an event, and why.

What was late is told by the watermark before the event's commit, as far as the ledger shows it, by
the rows of what was put aside, and by a window that was closed already. What was counted is told by
the change of a row at the commit; a window that shows nothing before it closes leaves none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.config.durations import format_duration
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import Content
from tidemark.ops.explaining.event_times import Reached
from tidemark.ops.explaining.rows import RowHistory
from tidemark.ops.explaining.window_places import WindowPlace
from tidemark.pipeline.output.batch import ErrorRow
from tidemark.pipeline.windows.definition import IS_CLOSED, WindowDefinition

WindowOutcome: TypeAlias = Literal[
    "counted",
    "refired",
    "dropped",
    "put_aside",
    "corrected",
    "no_effect",
    "not_counted",
    "partly",
    "unknown",
]
WindowState: TypeAlias = Literal["open", "closed", "empty"]

_NULL: Final = msgspec.Raw(b"null")
# What is aggregated where nothing is but a count.
_COUNTED_ONLY: Final = "1"
_NOT_TAKEN: Final = "its condition was not true or its value null"
_TAKEN_OR_NOT: Final = "it was not late, but whether it was taken only the pipeline could tell"
_IN_TIME: Final = "it came in time: the window is as if its original had always been so"


class Aside(msgspec.Struct, frozen=True):
    """A row for what was too late for a window: what it would have added, and why it is there."""

    amount: str
    reason: str


class WindowVerdict(msgspec.Struct, frozen=True):
    """What became of an event in a window, or in all its windows of one definition, and why."""

    outcome: WindowOutcome
    reason: str


class WindowJudged(msgspec.Struct, frozen=True):
    """One content against one window: whether the watermark had passed it, or nobody knows.

    `is_passed` says that the watermark is known to have reached its time, `is_beyond` whether the
    window did not even refire any more, and `is_corrected` that the event was corrected since.
    """

    place: WindowPlace
    history: RowHistory
    state: WindowState
    late: bool | None
    is_passed: bool = False
    is_beyond: bool | None = None
    aside: Aside | None = None
    is_corrected: bool = False


class WindowEvidence(msgspec.Struct, frozen=True):
    """What is known of an event in the windows of one definition; see `Evidence`."""

    event: EventRow
    window: WindowDefinition
    judged: Sequence[WindowJudged]
    errors: Sequence[ErrorRow]
    overruled_by: EventRow | None = None


def takes(window: WindowDefinition, content: Content) -> bool:
    """Whether a content is one that the windows take, for all that can be told without Spark."""
    if window.where is not None:
        return False
    is_there = bytes(content.members.get(window.value, _NULL)) != bytes(_NULL)
    return window.value == _COUNTED_ONLY or (
        is_there and any(window.value == field.name for field in window.fields)
    )


def judge_window(
    window: WindowDefinition,
    place: WindowPlace,
    history: RowHistory,
    state: WindowState,
    reached: Reached,
    aside: Aside | None,
    *,
    is_corrected: bool = False,
) -> WindowJudged:
    """Whether a content was late for a window at the event's commit."""
    watermark = reached.watermark
    refires = window.late == "refire"
    is_passed = watermark is not None and watermark >= place.ts
    late: bool | None = None
    if aside is not None or is_passed or (not refires and _was_closed(history)):
        late = True
    elif reached.is_exact and (refires or not history.unknown):
        late = False
    elif window.late == "side_output" and takes(window, place.content):
        # It would have its row.
        late = False
    is_beyond: bool | None = None
    if refires:
        bound = place.end + window.refire_for_us
        is_beyond = watermark is not None and watermark >= bound
        if not is_beyond and not reached.is_exact:
            is_beyond = None
    return WindowJudged(place, history, state, late, is_passed, is_beyond, aside, is_corrected)


def window_verdict_of(evidence: WindowEvidence) -> WindowVerdict:
    """What the windows of one definition made of an event that the pipeline has folded."""
    for error in evidence.errors:
        return WindowVerdict("not_counted", f"{error.code}: {error.message}")
    if evidence.event.control is not None:
        return _correction(evidence)
    if not evidence.judged:
        return WindowVerdict(
            "unknown",
            f"its time is of the type {evidence.window.time_type}, which only the pipeline reads",
        )
    verdicts = [verdict_in_window(evidence.window, judged) for judged in evidence.judged]
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    if len(outcomes) == 1:
        return verdicts[0]
    told = ", ".join(f"{name.replace('_', ' ')} in {n}" for name, n in outcomes.items())
    return WindowVerdict("partly", f"{told} of its windows")


def verdict_in_window(window: WindowDefinition, judged: WindowJudged) -> WindowVerdict:
    """What became of an event in one window."""
    if judged.aside is not None:
        return WindowVerdict("put_aside", f"{_why_late(judged)}: it is a row of {window.late_view}")
    if window.late == "refire" and judged.is_beyond:
        bound = format_duration(window.refire_for_us)
        return WindowVerdict(
            "dropped", f"the watermark was {bound} or more beyond the end of its window"
        )
    if window.late == "side_output" and judged.late:
        return WindowVerdict("not_counted", _NOT_TAKEN)
    if window.late == "drop" and judged.late:
        return WindowVerdict("dropped", _why_late(judged))
    if judged.state == "empty" and not judged.is_corrected:
        return _not_counted(judged)
    shows_each = window.emit == "change" or _was_closed(judged.history)
    if shows_each and not judged.history.unknown:
        return _by_count(window, judged)
    return _unseen(window, judged)


def _by_count(window: WindowDefinition, judged: WindowJudged) -> WindowVerdict:
    """Of a window whose row shows every change: whether it counts one event more because of it."""
    more, others = judged.history.counted_events, judged.history.neighbours
    if others.corrections or not others.complete or more not in (0, others.events + 1):
        return WindowVerdict(
            "unknown",
            f"the row counts {more} more after its commit, which has {others.count} others that may"
            " be for it: which of them, only the pipeline could tell",
        )
    if more and judged.late:
        return WindowVerdict("refired", f"{_why_late(judged)}, but its window still refires")
    if more:
        return WindowVerdict("counted", "it was not late")
    if window.late == "drop" and judged.late is None and takes(window, judged.place.content):
        return WindowVerdict("dropped", "it was late: its row does not count it")
    return _not_counted(judged)


def _not_counted(judged: WindowJudged) -> WindowVerdict:
    """Of an event that is not among those that its window counts."""
    maybe = "it was late, or " if judged.late is None else ""
    return WindowVerdict("not_counted", f"{maybe}{_NOT_TAKEN}")


def _unseen(window: WindowDefinition, judged: WindowJudged) -> WindowVerdict:
    """Of a window that shows nothing of an event when it comes."""
    is_in = judged.is_beyond is False if window.late == "refire" else judged.late is False
    if is_in and takes(window, judged.place.content):
        if window.late == "refire" and judged.late:
            return WindowVerdict("refired", f"{_why_late(judged)}, but its window still refires")
        if judged.state == "open":
            return WindowVerdict("counted", "it was not late: its window shows it when it closes")
        return WindowVerdict("counted", "it was not late")
    if is_in:
        return WindowVerdict("unknown", _TAKEN_OR_NOT)
    if judged.history.unknown:
        return WindowVerdict("unknown", judged.history.unknown)
    return WindowVerdict("unknown", "how far time had come before its commit is not known")


def _correction(evidence: WindowEvidence) -> WindowVerdict:
    window, judged = evidence.window, evidence.judged
    by = evidence.overruled_by
    if by is not None:
        how = "had voided" if by.control == "void" else "was the later to amend"
        return WindowVerdict("no_effect", f"{by.ingress_sequence} {how} the original")
    if any(it.aside is not None for it in judged):
        return WindowVerdict(
            "put_aside", f"it came too late: rows of {window.late_view} say what it would change"
        )
    if any(it.history.change is not None for it in judged):
        return WindowVerdict("corrected", _IN_TIME)
    refires = window.late == "refire"
    late = [it.is_beyond if refires else it.late for it in judged]
    # Each window that refires is asked for itself; else one that is passed decides for all.
    if judged and (all(late) if refires else any(late)):
        return WindowVerdict("dropped", "it came too late: what is counted stays as it is")
    for it in judged:
        if it.history.unknown:
            return WindowVerdict("unknown", it.history.unknown)
    if not judged or any(it is None for it in late):
        return WindowVerdict("unknown", "how far time had come before its commit is not known")
    if window.emit == "close" and any(it.state == "open" for it in judged):
        if not any(takes(window, it.place.content) for it in judged):
            return WindowVerdict("unknown", _TAKEN_OR_NOT)
        return WindowVerdict("corrected", f"{_IN_TIME}, and shows it when it closes")
    return WindowVerdict("no_effect", "the row is as it was before")


def _was_closed(history: RowHistory) -> bool:
    """Whether a window was closed before the commit; False also where nobody knows."""
    before = history.before
    return before is not None and bytes(before.get(IS_CLOSED, _NULL)) == b"true"


def _why_late(judged: WindowJudged) -> str:
    if judged.is_passed:
        return "the watermark had reached its time"
    return "its window was closed" if _was_closed(judged.history) else "it was late"
