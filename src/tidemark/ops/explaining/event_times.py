"""Times of events as the pipeline reads them, for all types that need no Spark.

The types are those of `pipeline.time.registry`, which reads them in columns. A user's own type is a
function over such a column, so what it makes of a value nobody knows here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import Final

import msgspec

from tidemark.errors import EventRejected
from tidemark.ledger.port import EventRow
from tidemark.ops.explaining.contents import content_of
from tidemark.pipeline.time.plans import StreamTime
from tidemark.timestamps import MAX_TIMESTAMP_US, MIN_TIMESTAMP_US, parse_timestamp

ISO_8601: Final = "iso8601"
_MICROSECONDS: Final = {
    "unixtimestamp_s": Fraction(1_000_000),
    "unixtimestamp_ms": Fraction(1_000),
    "unixtimestamp_us": Fraction(1),
    "unixtimestamp_ns": Fraction(1, 1_000),
}
READABLE: Final = frozenset({ISO_8601, *_MICROSECONDS})
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,48})?(?:[eE][+-]?[0-9]{1,2})?").fullmatch


class Reached(msgspec.Struct, frozen=True):
    """How far the time of a tenant had come in a stream before a commit.

    `watermark` is None where it had not begun. Unless it `is_exact` it may have come further.
    """

    watermark: int | None
    is_exact: bool


def read_time(raw: msgspec.Raw | None, kind: str) -> int | None:
    """The time that a member of an event's data says; None if it says none, or nobody knows."""
    if raw is None or kind not in READABLE:
        return None
    value = msgspec.json.decode(raw)
    text = value if isinstance(value, str) else bytes(raw).decode()
    if kind == ISO_8601:
        try:
            return parse_timestamp(text, truncate=True)
        except EventRejected:
            return None
    if _NUMBER(text) is None:
        return None
    us = floor(Fraction(text) * _MICROSECONDS[kind])
    return us if MIN_TIMESTAMP_US <= us <= MAX_TIMESTAMP_US else None


def reached_after(events: Sequence[EventRow], time: StreamTime, *, are_all: bool) -> Reached:
    """How far time has come after events of one tenant in one stream.

    `are_all` says that there were no others before.
    """
    assert time.column is not None
    assert time.type is not None
    latest: int | None = None
    for event in events:
        content = content_of(event) if event.control is None else None
        ts = None if content is None else read_time(content.members.get(time.column), time.type)
        bound = time.future_bound_us
        if ts is not None and (bound is None or ts <= event.received_at + bound):
            latest = ts if latest is None else max(latest, ts)
    return Reached(
        None if latest is None else latest - time.late_tolerance_us,
        # Who is silent for long is moved by the commits of others, which are not looked at.
        are_all and time.type in READABLE and time.idle_after_us is None,
    )
