"""Times as text and as microseconds since 1970-01-01T00:00:00Z.

The text is RFC 3339 with an offset or `Z`. `T` and `Z` may be lower case, as the RFC allows; a
space in place of the `T` may not. Inside Tidemark every time is an integer of microseconds, and
every time it shows has six fractional digits and a `Z`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Final

from tidemark.errors import EventRejected

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2261

_MICROS_PER_SECOND: Final = 1_000_000
_MICROS_PER_MINUTE: Final = 60 * _MICROS_PER_SECOND
_MICROS_PER_DAY: Final = 24 * 60 * _MICROS_PER_MINUTE
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

# The first and the last microsecond of the years above.
MIN_TIMESTAMP_US: Final = 0
MAX_TIMESTAMP_US: Final = (date(LAST_YEAR + 1, 1, 1).toordinal() - _EPOCH_DAY) * _MICROS_PER_DAY - 1

# Digits beyond the sixth are either zeros or cut off, so a bound on them loses nothing.
_MAX_FRACTION_DIGITS: Final = 30
_CANONICAL_LENGTH: Final = len("1970-01-01T00:00:00.000000Z")
_SHOWN_CHARACTERS: Final = 48

_ZULU = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}):([0-5][0-9])(?:\.([0-9]{1,6}))?Z"
).fullmatch
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,%d}))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?" % _MAX_FRACTION_DIGITS
).fullmatch

# Events of one moment share their minute, so its calendar arithmetic is done once. The bound keeps
# a sender of scattered times from growing the two maps for ever.
_MAX_CACHED_MINUTES: Final = 65_536
_minute_starts: dict[str, int] = {}
_minute_texts: dict[int, str] = {}


def parse_timestamp(text: str, *, truncate: bool = False) -> int:
    """The time in microseconds since the epoch.

    Digits finer than a microsecond are an error unless they are zeros or `truncate` allows to cut
    them. Raises `EventRejected` with a code that says which rule was broken; its `field` is for the
    caller to fill in.
    """
    return _parse(text, truncate)


def normalise_timestamp(text: str, *, truncate: bool = False) -> tuple[int, str]:
    """The time in microseconds, and as Tidemark writes it."""
    us = _parse(text, truncate)
    if text[-1] != "Z" or text[10] != "T" or len(text) > _CANONICAL_LENGTH:
        return us, format_timestamp(us)
    # In UTC already and not too precise: at most the zeros of the fraction are missing.
    if len(text) < _CANONICAL_LENGTH:
        text = (text[:-1] if "." in text else text[:-1] + ".").ljust(26, "0") + "Z"
    return us, text


def format_timestamp(us: int) -> str:
    """The one way Tidemark writes a time: UTC, six fractional digits, `Z`."""
    minute, rest = divmod(us, _MICROS_PER_MINUTE)
    text = _minute_texts.get(minute)
    if text is None:
        moment = datetime.fromtimestamp(minute * 60, UTC)
        text = moment.isoformat(timespec="minutes")[:16]
        if len(_minute_texts) >= _MAX_CACHED_MINUTES:
            _minute_texts.clear()
        _minute_texts[minute] = text
    second, micros = divmod(rest, _MICROS_PER_SECOND)
    return f"{text}:{second:02d}.{micros:06d}Z"


def _parse(text: str, truncate: bool) -> int:
    quick = _ZULU(text)
    if quick is None:
        return _parse_any(text, truncate)
    minute, second, fraction = quick.groups()
    start = _minute_starts.get(minute)
    if start is None:
        seconds_us = int(second) * _MICROS_PER_SECOND + _micros_of_fraction(text, fraction or "")
        start = _parse_any(text, truncate) - seconds_us
        if len(_minute_starts) >= _MAX_CACHED_MINUTES:
            _minute_starts.clear()
        _minute_starts[minute] = start
    if fraction is None:
        return start + int(second) * _MICROS_PER_SECOND
    if len(fraction) < 6:
        fraction = fraction.ljust(6, "0")
    return start + int(second + fraction)


def _parse_any(text: str, truncate: bool) -> int:
    match = _RFC3339(text)
    if match is None:
        raise EventRejected(
            f"{_quoted(text)} is not an RFC 3339 timestamp",
            code="invalid_timestamp",
            hint=_spelling_hint(text),
        )
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, zulu, sign, offset_hour, offset_minute = match.groups()[6:]
    if zulu is None and sign is None:
        raise EventRejected(
            f"{_quoted(text)} has no offset, so it is no instant",
            code="timestamp_without_offset",
            hint="End it with Z for UTC, or with an offset such as +01:00.",
        )
    micros_of_day = _micros_of_day(text, hour, minute, second)
    offset_minutes = 0
    if sign is not None:
        offset_minutes = int(offset_hour) * 60 + int(offset_minute)
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise EventRejected(
                f"{_quoted(text)} has an offset that does not exist",
                code="invalid_timestamp",
                hint="Offsets run from -23:59 to +23:59.",
            )
        if sign == "-":
            offset_minutes = -offset_minutes
    micros = _micros_of_fraction(text, fraction or "", truncate)
    # A year off by one may still be inside the range once the offset is taken away.
    if not FIRST_YEAR - 1 <= year <= LAST_YEAR + 1:
        raise _out_of_range(text)
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        raise EventRejected(
            f"{_quoted(text)}: there is no such day",
            code="invalid_timestamp",
            hint="Check the month and the day of the month.",
        ) from None
    us = days * _MICROS_PER_DAY + micros_of_day + micros - offset_minutes * _MICROS_PER_MINUTE
    if not MIN_TIMESTAMP_US <= us <= MAX_TIMESTAMP_US:
        raise _out_of_range(text)
    return us


def _micros_of_day(text: str, hour: int, minute: int, second: int) -> int:
    if hour < 24 and minute < 60 and second < 60:
        return (hour * 60 + minute) * _MICROS_PER_MINUTE + second * _MICROS_PER_SECOND
    if hour == 24:
        hint = "The end of a day is 00:00:00 of the next."
    elif second == 60:
        hint = "Leap seconds have no place in microseconds since 1970: use :59 or the next minute."
    else:
        hint = "Hours run to 23, minutes and seconds to 59."
    raise EventRejected(
        f"{_quoted(text)}: there is no such time of day", code="invalid_timestamp", hint=hint
    )


def _micros_of_fraction(text: str, digits: str, truncate: bool = False) -> int:
    if not truncate and digits[6:].strip("0"):
        raise EventRejected(
            f"{_quoted(text)} is finer than a microsecond",
            code="timestamp_too_precise",
            hint="Send six fractional digits, or set `truncate: true` for the stream.",
        )
    return int(digits[:6].ljust(6, "0"))


def _out_of_range(text: str) -> EventRejected:
    return EventRejected(
        f"{_quoted(text)} is outside the years {FIRST_YEAR} to {LAST_YEAR} (UTC)",
        code="timestamp_out_of_range",
        hint="Check the unit and the clock that made it.",
    )


def _quoted(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
    return f'"{cut}"'


def _spelling_hint(text: str) -> str:
    example = "Write it as 2025-01-31T12:00:00Z or 2025-01-31T12:00:00.123456+01:00."
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        return f"Unix times are not accepted. {example}"
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2} ", text):
        return f"Put a T between the date and the time. {example}"
    if re.search(r"[+-][0-9]{2}(?:[0-9]{2})?$", text) and re.search("[Tt]", text):
        return f"Write the offset with a colon, such as +01:00. {example}"
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return f"A date alone is no instant. {example}"
    return example
