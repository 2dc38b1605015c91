"""Exact decimals with at most nine places, held as whole numbers of billionths."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

BILLION: Final = 10**9


def parse_amount(text: str) -> int:
    """The billionths that a decimal in plain notation stands for."""
    billionths = Fraction(text) * BILLION
    if billionths.denominator != 1:
        raise ValueError(f"{text} has more than nine decimals")
    return billionths.numerator


def format_amount(billionths: int) -> str:
    """Plain notation without trailing zeros."""
    whole, rest = divmod(abs(billionths), BILLION)
    text = f"{whole}.{rest:09d}".rstrip("0").rstrip(".")
    return f"-{text}" if billionths < 0 else text


def mean(billionths: int, count: int) -> int:
    """The quotient rounded to a whole billionth, half to even."""
    return round(Fraction(billionths, count))
