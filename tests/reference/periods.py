"""Calendar periods in a time zone.

A day, a week or a month begins at local midnight (a week's on Monday) and ends where the next one
begins, so a day may have 23 or 25 hours. A midnight that occurs twice is the first of the two; one
that a clock change skips is the moment of the change. An hour begins where the local clock shows a
full hour and lasts one hour: of the hour that a clock change repeats there are two.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from tests.reference.instants import instant_us, moment_of

PeriodName = Literal["hour", "day", "week", "month"]

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * SECOND_US


class Period(NamedTuple):
    """From `start`, inclusive, to `end`, exclusive."""

    start: int
    end: int


def period_of(ts: int, period: PeriodName, zone: str) -> Period:
    """The period in which an instant lies."""
    local = moment_of(ts).astimezone(ZoneInfo(zone))
    if period == "hour":
        start = ts - (local.minute * 60 + local.second) * SECOND_US - local.microsecond
        return Period(start, start + HOUR_US)
    day = local.date()
    if period == "day":
        first, following = day, day + timedelta(days=1)
    elif period == "week":
        first = day - timedelta(days=day.weekday())
        following = first + timedelta(days=7)
    else:
        first = day.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    return Period(_midnight(first, zone), _midnight(following, zone))


def _midnight(day: date, zone: str) -> int:
    return instant_us(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)))
