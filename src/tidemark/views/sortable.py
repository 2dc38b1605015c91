"""Exact decimals of 38 digits as text that sorts as the numbers do, for SQLite.

The form is that of `tidemark.ledger.sortable`, wider: a quantity has 19 digits before the point, a
sum of a great many of them needs 29. `n` before `p` puts the negatives first; their digits are
complemented, so that a larger magnitude sorts lower.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from tidemark.decimals import plain_decimal
from tidemark.pipeline.output.errors import BatchRefused

INTEGER_DIGITS: Final = 29
FRACTION_DIGITS: Final = 9
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")


def checked_decimal(value: Decimal) -> Decimal:
    """The same number, if it has at most 29 digits before and 9 after the point."""
    _digits(plain_decimal(value).removeprefix("-"))
    return value


def to_sortable(value: Decimal) -> str:
    """The text of a number that is within bounds."""
    plain = plain_decimal(value)
    if plain[0] == "-":
        return "n" + _digits(plain[1:]).translate(_COMPLEMENT)
    return "p" + _digits(plain)


def from_sortable(text: str) -> Decimal:
    """The number, without trailing zeros."""
    digits = text[1:].translate(_COMPLEMENT) if text[0] == "n" else text[1:]
    whole, _, fraction = digits.partition(".")
    fraction = fraction.rstrip("0")
    sign = "-" if text[0] == "n" else ""
    return Decimal(f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}")


def _digits(magnitude: str) -> str:
    """All digits there can be around the point; never rounded, so refused if there are more."""
    whole, _, fraction = magnitude.partition(".")
    if len(whole) > INTEGER_DIGITS or len(fraction) > FRACTION_DIGITS or not whole.isdecimal():
        raise BatchRefused(
            f"{magnitude} has more than {INTEGER_DIGITS} or {FRACTION_DIGITS} digits at the point",
            hint="Round it, or make it an error row before it reaches the views.",
        )
    return f"{whole.zfill(INTEGER_DIGITS)}.{fraction.ljust(FRACTION_DIGITS, '0')}"
