"""The two ways to tell time, and what each stream is set to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config import Config

PlanName: TypeAlias = Literal["ProcessTimeWatermark", "EventtimeWatermark"]

PROCESS_TIME: Final[PlanName] = "ProcessTimeWatermark"
EVENTTIME: Final[PlanName] = "EventtimeWatermark"

PLANS: Final[dict[PlanName, str]] = {
    PROCESS_TIME: (
        "The time of an event is when it was received. The watermark is the time of the latest "
        "commit of any stream, so no event is ever late and none waits."
    ),
    EVENTTIME: (
        "The time of an event is in its stream's column. Each tenant of a stream has a watermark "
        "of its own: the latest time seen less `lateTolerance`. Events wait until it reaches them "
        "and are late if it had. Streams without a column go by when events were received."
    ),
}
_OFF: Final = "off"
_NOT_APPLICABLE: Final = "–"


class StreamTime(msgspec.Struct, frozen=True):
    """How the time of one stream is told; without a column, by when its events were received."""

    column: str | None = None
    type: str | None = None
    late_tolerance_us: int = 0
    future_bound_us: int | None = None
    idle_after_us: int | None = None

    def __post_init__(self) -> None:
        if self.late_tolerance_us < 0:
            raise ValueError("a tolerance cannot be negative")
        # A commit with data is never idle, which takes a silence of some length.
        if self.idle_after_us is not None and self.idle_after_us < 1:
            raise ValueError("a stream cannot be idle at once")


class TimePlan(msgspec.Struct, frozen=True):
    """A plan, and what it means for each stream."""

    name: PlanName
    streams: dict[str, StreamTime]

    @property
    def timed(self) -> dict[str, StreamTime]:
        """The streams whose events have a time of their own."""
        return {name: time for name, time in self.streams.items() if time.column is not None}


def plan_of(config: Config) -> TimePlan:
    """The plan that a configuration asks for."""
    eventtime = config.pipeline.eventtime
    if not eventtime.enabled:
        return TimePlan(PROCESS_TIME, {name: StreamTime() for name in sorted(config.streams)})
    streams = {}
    for name, stream in sorted(config.streams.items()):
        if stream.eventtime is None:
            streams[name] = StreamTime()
            continue
        streams[name] = StreamTime(
            column=stream.eventtime.column,
            type=stream.eventtime.type,
            late_tolerance_us=eventtime.late_tolerance_us,
            future_bound_us=eventtime.future_bound_us,
            idle_after_us=stream.idle_after_us,
        )
    return TimePlan(EVENTTIME, streams)


def describe(plan: TimePlan) -> str:
    """The plan for people: its name, what it means, and a table of the streams."""
    head = ("stream", "column", "type", "lateTolerance", "futureBound", "idleAfter")
    rows = [head, *(_described(name, time) for name, time in sorted(plan.streams.items()))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    table = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([plan.name, PLANS[plan.name], "", *table])


def _described(name: str, time: StreamTime) -> tuple[str, ...]:
    from tidemark.config.durations import format_duration

    if time.column is None:
        return (name, "(received at)", *(_NOT_APPLICABLE,) * 4)
    return (
        name,
        time.column,
        time.type or _NOT_APPLICABLE,
        format_duration(time.late_tolerance_us),
        *(
            _OFF if micros is None else format_duration(micros)
            for micros in (time.future_bound_us, time.idle_after_us)
        ),
    )
