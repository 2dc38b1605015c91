"""Exact decimal numbers, from their text to their one canonical text.

The canonical text is plain: an optional minus, digits without leading zeros and, where there is a
fraction, a point and digits without trailing zeros. Zero is `0`, never `-0`. Numbers are moved
about as text, so no float and no decimal context can round them on the way.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from tidemark.errors import EventRejected

# Together 28 digits, which fit a DECIMAL(28, 9) everywhere downstream.
MAX_INTEGER_DIGITS: Final = 19
MAX_FRACTION_DIGITS: Final = 9

# Enough for every IEEE double written out in full; a bound on what an exponent can blow up.
MAX_FREE_DIGITS: Final = 400
MAX_NUMBER_LENGTH: Final = 400

_SHOWN_CHARACTERS: Final = 40

_PLAIN = re.compile(
    r"-?(?:0|[1-9][0-9]{0,%d})(?:\.[0-9]{1,%d})?" % (MAX_INTEGER_DIGITS - 1, MAX_FRACTION_DIGITS)
).fullmatch
_NO_EXPONENT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?").fullmatch
_JSON_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?").fullmatch


def normalise_decimal(text: str) -> str:
    """The canonical text of a quantity: |q| < 10^19 with at most 9 decimals.

    The spelling is that of a JSON number, exponents included; trailing zeros do not count as
    decimals. Raises `EventRejected` with a code that says which rule was broken.
    """
    return _bounded(text) if _PLAIN(text) is None else trim_plain(text)


def trim_plain(text: str) -> str:
    """The canonical text of a number that is known to be plain and within bounds."""
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def plain_decimal(value: Decimal) -> str:
    """Plain notation without trailing zeros; `0E-9` and `-0` are `0`."""
    # Not `str(value)`, which would take a float too.
    text = Decimal.__str__(value)
    return trim_plain(format(value, "f") if "E" in text else text)


def normalise_number(text: str) -> str:
    """The canonical text of a number in free JSON, where only the length is bounded."""
    if len(text) <= MAX_NUMBER_LENGTH and _NO_EXPONENT(text) is not None:
        return trim_plain(text)
    sign, digits, point = _taken_apart(text)
    if point > MAX_FREE_DIGITS or len(digits) - point > MAX_FREE_DIGITS:
        raise EventRejected(
            f"{_shown(text)} has more than {MAX_FREE_DIGITS} digits when written out",
            code="decimal_out_of_range",
            hint=f"At most {MAX_FREE_DIGITS} digits may stand on each side of the point.",
        )
    return _plain(sign, digits, point)


def normalise_integer(text: str, bits: int) -> int:
    """The signed integer of so many bits that a number is, however it is spelled."""
    sign, digits, point = _taken_apart(text)
    if len(digits) > point:
        raise EventRejected(
            f"{_shown(text)} is not a whole number",
            code="not_an_integer",
            hint="Send a whole number, or declare the field as `decimal`.",
        )
    half = 1 << (bits - 1)
    # Every 64-bit integer has at most 19 digits; longer ones are not worth building.
    value = int(_plain(sign, digits, point)) if point <= MAX_INTEGER_DIGITS else half
    if not -half <= value < half:
        raise EventRejected(
            f"{_shown(text)} does not fit {bits} bits",
            code="int_out_of_range",
            hint=f"It must be from {-half} to {half - 1}.",
        )
    return value


def _bounded(text: str) -> str:
    sign, digits, point = _taken_apart(text)
    if point > MAX_INTEGER_DIGITS:
        raise EventRejected(
            f"{_shown(text)} is not smaller than 10^{MAX_INTEGER_DIGITS}",
            code="decimal_out_of_range",
            hint=f"At most {MAX_INTEGER_DIGITS} digits may stand before the point.",
        )
    if len(digits) - point > MAX_FRACTION_DIGITS:
        raise EventRejected(
            f"{_shown(text)} has more than {MAX_FRACTION_DIGITS} decimals",
            code="decimal_too_precise",
            hint=f"Round it to {MAX_FRACTION_DIGITS} decimals, or count in a smaller unit.",
        )
    return _plain(sign, digits, point)


def _taken_apart(text: str) -> tuple[str, str, int]:
    """Sign, significant digits and the place of the point: the number is 0.digits × 10^point.

    Zero has no digits. Nothing here grows with the exponent, so a bomb costs no more than its text.
    """
    if len(text) > MAX_NUMBER_LENGTH:
        raise EventRejected(
            f"a number of {len(text)} characters",
            code="decimal_too_long",
            hint=f"A number may have at most {MAX_NUMBER_LENGTH} characters.",
        )
    match = _JSON_NUMBER(text)
    if match is None:
        raise EventRejected(
            f"{_shown(text)} is not a decimal number",
            code="invalid_decimal",
            hint="Write it as in JSON: 12, -0.5 or 1.5e3; no spaces, no plus sign, no separators.",
        )
    sign, whole, fraction, exponent = match.groups()
    digits = whole + (fraction or "")
    significant = digits.lstrip("0")
    if not significant:
        return "", "", 0
    point = len(whole) - (len(digits) - len(significant)) + int(exponent or "0")
    return sign, significant.rstrip("0"), point


def _plain(sign: str, digits: str, point: int) -> str:
    if not digits:
        return "0"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
