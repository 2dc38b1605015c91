"""Times: whole microseconds since 1970 inside, UTC text with six digits outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def instant_us(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def parse_instant(text: str) -> int:
    return instant_us(datetime.fromisoformat(text))


def moment_of(us: int) -> datetime:
    return EPOCH + us * MICROSECOND


def format_instant(us: int) -> str:
    return moment_of(us).isoformat(timespec="microseconds").replace("+00:00", "Z")
