"""Spans of time as people write them (`250ms`, `1s`, `48h`), kept as whole microseconds."""

from __future__ import annotations

import re
from typing import Final

# Largest first, so that formatting picks the shortest text.
UNITS_US: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
MAX_DURATION_US: Final = 36_500 * UNITS_US["d"]

DURATION_PATTERN: Final = r"^[0-9]{1,18}(us|ms|s|m|h|d)$"
_DURATION = re.compile(r"([0-9]{1,18})(us|ms|s|m|h|d)", re.ASCII)

# What people also write, so that a hint can name the unit they meant.
_SPOKEN_UNITS: Final = {
    "us": ("µs", "μs", "usec", "usecs", "micro", "micros", "microsecond", "microseconds"),
    "ms": ("msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
}
_SPOKEN = re.compile(r"([0-9]{1,18})\s*([a-zµμ]*)", re.IGNORECASE)


def parse_duration(text: str) -> int:
    """Microseconds of a duration such as `250ms`; ValueError if it is none, or over 36500 days."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("not a duration")
    micros = int(match[1]) * UNITS_US[match[2]]
    if micros > MAX_DURATION_US:
        raise ValueError("longer than 36500d")
    return micros


def format_duration(micros: int) -> str:
    """The shortest text that `parse_duration` reads back as the same number of microseconds."""
    if micros == 0:
        return "0s"
    unit = next(unit for unit, size in UNITS_US.items() if micros % size == 0)
    return f"{micros // UNITS_US[unit]}{unit}"


def suggest_duration(text: str) -> str | None:
    """The duration that somebody most likely meant by a text that is none, such as `5 minutes`."""
    match = _SPOKEN.fullmatch(text.strip())
    if match is None:
        return None
    number, written = str(int(match[1])), match[2].lower()
    for unit, spoken in _SPOKEN_UNITS.items():
        if written == unit or written in spoken:
            return number + unit
    return None
