"""Exact decimals as text that sorts as the numbers do, for a store without a decimal type.

`n` before `p` puts the negatives first; their digits are complemented, so that a larger magnitude
sorts lower. The widths are the bounds of a quantity: 19 digits before the point, 9 after it.
"""

from __future__ import annotations

INTEGER_DIGITS = 19
FRACTION_DIGITS = 9
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def to_sortable(plain: str) -> str:
    """From plain decimal text such as `-12.5`."""
    negative = plain.startswith("-")
    whole, _, fraction = (plain[1:] if negative else plain).partition(".")
    text = f"{whole.zfill(INTEGER_DIGITS)}.{fraction.ljust(FRACTION_DIGITS, '0')}"
    return "n" + text.translate(_COMPLEMENT) if negative else "p" + text


def from_sortable(text: str) -> str:
    """Back to plain decimal text without leading or trailing zeros."""
    if text[:1] not in ("n", "p"):
        raise ValueError(f"{text!r} is no quantity")
    digits = text[1:].translate(_COMPLEMENT) if text[0] == "n" else text[1:]
    whole, _, fraction = digits.partition(".")
    plain = whole.lstrip("0") or "0"
    fraction = fraction.rstrip("0")
    if fraction:
        plain = f"{plain}.{fraction}"
    return f"-{plain}" if text[0] == "n" else plain
