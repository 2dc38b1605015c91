"""Which windows an event falls in, and the rows that show them."""

from __future__ import annotations

import msgspec

from tidemark.ops.explaining.contents import Content
from tidemark.ops.explaining.event_times import read_time
from tidemark.pipeline.output.encoding import bounded_key, row_key
from tidemark.pipeline.windows.definition import WindowDefinition, late_schema
from tidemark.timestamps import format_timestamp

_NULL = msgspec.Raw(b"null")


class WindowPlace(msgspec.Struct, frozen=True):
    """One window `[start, end)` that a content falls in, and the key of its row."""

    content: Content
    ts: int
    start: int
    end: int
    row_key: str


def time_in_window(window: WindowDefinition, content: Content, received_at: int) -> int | None:
    """When a content happened; None if it does not say so, or only the pipeline can read it.

    Without event time it is when the event was received, or the one that is corrected.
    """
    if window.time_column is None or window.time_type is None:
        return received_at
    return read_time(content.members.get(window.time_column), window.time_type)


def window_places(window: WindowDefinition, content: Content, ts: int) -> list[WindowPlace]:
    """The windows that a content falls in, the earliest first."""
    last = ts // window.every_us * window.every_us
    starts = range(last, ts - window.size_us, -window.every_us)
    return [
        WindowPlace(
            content, ts, start, start + window.size_us, window_row_key(window, content, start)
        )
        for start in reversed(starts)
    ]


def window_row_key(window: WindowDefinition, content: Content, start: int) -> str:
    """A group's value is written in a key as it is in an event's data, which is canonical."""
    values: list[object] = [
        content.event.tenant_id,
        *(content.members.get(name, _NULL) for name in window.group_by),
        format_timestamp(start),
    ]
    return bounded_key(msgspec.json.encode(values))


def late_row_key(window: WindowDefinition, place: WindowPlace, sequence: int, part: int) -> str:
    """The key of the row for what was too late for a window.

    `sequence` is that of the event or correction that was late; of a correction, part 0 takes back
    what was, and part 1 adds what is.
    """
    tenant = place.content.event.tenant_id
    return row_key(late_schema(window), [tenant, sequence, place.start, part])
