"""Calendar periods as Spark expressions; `periods` says the same of one time in Python."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

from tidemark.config.pipeline_model import Period

_HOUR_US: Final = 3_600_000_000
_NEXT: Final[dict[Period, str]] = {
    "day": "interval 1 day",
    "week": "interval 7 days",
    "month": "interval 1 month",
}


def period_columns(ts: Column, period: Period, timezone: str) -> tuple[Column, Column]:
    """When the period of a time begins and ends, all in microseconds.

    Spark's session is in UTC, so a local time is a timestamp that shows the local clock. The clock
    may show midnight twice, then the first is meant; or never, then the moment it skips to.
    """
    instant = fn.timestamp_micros(ts)
    local = instant if timezone == "UTC" else fn.from_utc_timestamp(instant, timezone)
    if period == "hour":
        # Not by way of the local hour, which may come twice.
        start = ts - fn.pmod(fn.unix_micros(local), fn.lit(_HOUR_US))
        return start, start + fn.lit(_HOUR_US)
    first = fn.date_trunc(period, local)
    following = first + fn.expr(_NEXT[period])
    if timezone != "UTC":
        first = fn.to_utc_timestamp(first, timezone)
        following = fn.to_utc_timestamp(following, timezone)
    return fn.unix_micros(first), fn.unix_micros(following)
