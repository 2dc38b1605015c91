"""Calendar periods in a time zone.

A day, a week or a month begins at local midnight (a week's on Monday) and ends where the next one
begins, so a day may have 23 or 25 hours. A midnight that occurs twice is the first of the two; one
that a clock change skips is the moment of the change. An hour begins where the local clock shows a
full hour and lasts one hour: of the hour that a clock change repeats there are two.

Times are microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

Period: TypeAlias = Literal["hour", "day", "week", "month"]

_SECOND_US: Final = 1_000_000
HOUR_US: Final = 3_600 * _SECOND_US

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Many rows share their period; the bound keeps a reader of scattered times from growing it.
_CACHED_PERIODS: Final = 65_536


def period_start(ts_us: int, period: Period, zone: str) -> int:
    """Where the period begins in which an instant lies."""
    local = _local(ts_us, zone)
    if period == "hour":
        return ts_us - (local.minute * 60 + local.second) * _SECOND_US - local.microsecond
    return _midnight(_first_day(local.date(), period), zone)


@lru_cache(maxsize=_CACHED_PERIODS)
def period_end(start_us: int, period: Period, zone: str) -> int:
    """Where the period ends, exclusive, that begins at `start_us`."""
    if period == "hour":
        return start_us + HOUR_US
    # Where midnight is skipped, the local clock shows a later time of the very same day.
    first = _first_day(_local(start_us, zone).date(), period)
    if period == "day":
        following = first + timedelta(days=1)
    elif period == "week":
        following = first + timedelta(days=7)
    else:
        following = (first + timedelta(days=31)).replace(day=1)
    return _midnight(following, zone)


def _first_day(day: date, period: Period) -> date:
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def _local(us: int, zone: str) -> datetime:
    return (_EPOCH + us * _MICROSECOND).astimezone(ZoneInfo(zone))


def _midnight(day: date, zone: str) -> int:
    # Of two such moments this is the first (`fold` is 0); a skipped one counts by the clock before.
    return (datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)) - _EPOCH) // _MICROSECOND
