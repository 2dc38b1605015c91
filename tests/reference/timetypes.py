"""The types of event time: what the text of a column says, in microseconds.

The text of a JSON string is itself, that of anything else is its JSON. A number is cut to whole
microseconds, an RFC 3339 time too. What cannot be read, or lies outside the years 1970 to 2261, is
no time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Final

from tests.reference.instants import parse_instant
from tests.reference.tables import Field, Table, Undecodable, decode

_MICROSECONDS: Final[Mapping[str, Fraction]] = {
    "unixtimestamp_s": Fraction(1_000_000),
    "unixtimestamp_ms": Fraction(1_000),
    "unixtimestamp_us": Fraction(1),
    "unixtimestamp_ns": Fraction(1, 1_000),
}
_NUMBER: Final = r"[+-]?[0-9]{1,30}(\.[0-9]{1,48})?([eE][+-]?[0-9]{1,2})?"
_ISO_8601: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])"
    r"(?:(\.[0-9]{1,6})[0-9]{0,24})?(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_LAST_INSTANT: Final = parse_instant("2261-12-31T23:59:59.999999Z")


def read_time(kind: str, text: str) -> int | None:
    """The time that a text says; None if it says none."""
    us = _of_iso_8601(text) if kind == "iso8601" else _of_number(text, _MICROSECONDS[kind])
    return us if us is not None and 0 <= us <= _LAST_INSTANT else None


def time_in(data: str, column: str, kind: str) -> int | None:
    """The time in the column of what was sent, whatever else is there; None if there is none."""
    only = Table("", "", (), (Field(column, "string"),))
    try:
        return read_time(kind, decode(only, "", data)[column])
    except Undecodable:
        return None


def _of_number(text: str, unit: Fraction) -> int | None:
    return floor(Fraction(text) * unit) if re.fullmatch(_NUMBER, text) is not None else None


def _of_iso_8601(text: str) -> int | None:
    parts = re.fullmatch(_ISO_8601, text.upper())
    if parts is None:
        return None
    try:
        return parse_instant(f"{parts[1]}{parts[2] or ''}{parts[3]}")
    except ValueError:
        return None
