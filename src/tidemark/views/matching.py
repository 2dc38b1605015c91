"""Texts against patterns of RE2, whose time grows with the text only, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import re2  # type: ignore[import-untyped]

TextTest: TypeAlias = Callable[[str], bool]

# What one pattern may take as it is used, enough for 10,000 letters. Many are kept at a time.
MAX_BYTES: Final = 2 * 1024 * 1024
CACHED_PATTERNS: Final = 256


class PatternTooLarge(ValueError):
    """RE2 does not take the pattern, most likely because of its size."""


@lru_cache(maxsize=CACHED_PATTERNS)
def found_by(pattern: str) -> TextTest:
    """Whether a pattern is found anywhere in a text; `.` is any character, a line's end too.

    `^` and `$` are the ends of the text. Raises `PatternTooLarge`.
    """
    options = re2.Options()
    options.max_mem = MAX_BYTES
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    try:
        search = re2.compile(pattern, options).search
    except re2.error:
        raise PatternTooLarge(pattern) from None

    def test(text: str) -> bool:
        # Given a str it would also work out where in it the match is, which takes twice as long.
        return search(text.encode()) is not None

    return test
