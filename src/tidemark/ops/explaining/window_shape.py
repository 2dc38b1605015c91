"""What became of an event in windows, as it is answered."""

from __future__ import annotations

import msgspec

from tidemark.ops.explaining.gathering import WindowFinding
from tidemark.ops.explaining.row_shapes import MovedShown, moved_shown, shown_time
from tidemark.ops.explaining.window_verdicts import WindowJudged, verdict_in_window
from tidemark.pipeline.stream_columns import TENANT_ID
from tidemark.pipeline.windows.definition import WINDOW_START
from tidemark.timestamps import format_timestamp


class AsideShown(msgspec.Struct, rename="camel", omit_defaults=True):
    """The row for what was too late: what it would have added, and why it is there."""

    amount: str
    reason: str


class WindowJudgedShown(msgspec.Struct, rename="camel", omit_defaults=True):
    """One content of the event against one window: what it made of it, and whether it is open now.

    `outcome` and `reason` are of an event; a correction has one for all its windows.
    """

    said_by: str
    ts: str
    window_start: str
    window_end: str
    state: str
    late: bool | None
    outcome: str | None = None
    reason: str | None = None
    refires_until: str | None = None
    put_aside: AsideShown | None = None


class WindowShown(msgspec.Struct, rename="camel", omit_defaults=True):
    """What became of the event in the windows of one definition.

    `watermark_ts` is how far time had come before its commit; at least, if it is not exact.
    """

    window: str
    outcome: str
    reason: str
    late_policy: str
    watermark_ts: str | None = None
    watermark_is_exact: bool = False
    judged: list[WindowJudgedShown] = []
    moved: list[MovedShown] = []


def window_shown(finding: WindowFinding) -> WindowShown:
    window, reached = finding.window, finding.reached
    watermark = None if reached is None else reached.watermark
    return WindowShown(
        window.name,
        finding.verdict.outcome,
        finding.verdict.reason,
        window.late,
        None if watermark is None else shown_time(max(0, watermark)),
        reached is not None and reached.is_exact,
        [_judged_window(finding, judged) for judged in finding.judged],
        moved_shown(
            (judged.history for judged in finding.judged),
            (TENANT_ID, *window.group_by, WINDOW_START),
        ),
    )


def _judged_window(finding: WindowFinding, judged: WindowJudged) -> WindowJudgedShown:
    window, place, aside = finding.window, judged.place, judged.aside
    shown = WindowJudgedShown(
        said_by=str(place.content.event.ingress_sequence),
        ts=format_timestamp(place.ts),
        window_start=format_timestamp(place.start),
        window_end=format_timestamp(place.end),
        state=judged.state,
        late=judged.late,
        put_aside=None if aside is None else AsideShown(aside.amount, aside.reason),
    )
    if window.late == "refire":
        shown.refires_until = format_timestamp(place.end + window.refire_for_us)
    if finding.is_of_event:
        verdict = verdict_in_window(window, judged)
        shown.outcome, shown.reason = verdict.outcome, verdict.reason
    return shown
