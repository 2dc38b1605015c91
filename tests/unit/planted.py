"""Property tests that are shown to catch a planted bug.

A property is a function of the implementation that it is about. Run with the real one it must
hold; run with one that has a bug planted in it, it must not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import Phase, settings

Implementation = TypeVar("Implementation")

# Many cases and no shrinking: here only the finding counts.
_HUNT = settings(
    max_examples=1000,
    phases=[Phase.generate],
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
)


def assert_catches(
    holds: Callable[[Implementation], Callable[[], None]], broken: Implementation
) -> None:
    """`holds(implementation)` gives a test; with the broken implementation it must fail."""
    with pytest.raises(AssertionError):
        _HUNT(holds(broken))()
