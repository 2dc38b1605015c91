"""The options of Spark that results depend on, and so are no choice: their values, and why."""

from __future__ import annotations

from typing import Final, NamedTuple


class Pinned(NamedTuple):
    value: str
    why: str


PINNED_OPTIONS: Final = {
    "spark.sql.session.timeZone": Pinned(
        "UTC", "Periods have their own zone: `meters.<name>.timezone`."
    ),
    "spark.sql.ansi.enabled": Pinned(
        "true", "A number that overflows must be an error and not a wrong result."
    ),
    "spark.sql.caseSensitive": Pinned(
        "false", "An expression must name the same column on every run."
    ),
    "spark.sql.decimalOperations.allowPrecisionLoss": Pinned(
        "true", "A product must have the same digits always."
    ),
    "spark.sql.legacy.timeParserPolicy": Pinned(
        "CORRECTED", "A text must be the same time on every run."
    ),
}
# Each brings back what some older Spark made of an expression.
_LEGACY_PREFIX: Final = "spark.sql.legacy."


def why_pinned(option: str) -> str | None:
    """Why this option may not be set; None if it may."""
    pinned = PINNED_OPTIONS.get(option)
    if pinned is not None:
        return pinned.why
    if option.startswith(_LEGACY_PREFIX):
        return "An expression must mean the same on every run."
    return None
