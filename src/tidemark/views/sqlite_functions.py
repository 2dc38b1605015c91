"""What SQLite lacks for queries over views: patterns as on every store, and exact sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final

from tidemark.views.matching import TextTest, found_by
from tidemark.views.sortable import from_sortable

# Takes a pattern of RE2 and a text.
FOUND_BY: Final = "tidemark_found_by"
# Of integers, or of decimals as sortable text; the answer is text, because it may be large.
EXACT_SUM: Final = "tidemark_exact_sum"

# A sum of 38 digits each, over more rows than there can be.
_EXACT: Final = Context(prec=100)


def register(connection: sqlite3.Connection) -> Callable[[], None]:
    """Give a connection the functions above.

    The patterns of a statement are kept until the function is called that this gives: however many
    other statements have, none is compiled again for every row.
    """
    tests: dict[str, TextTest] = {}

    def is_found(pattern: str, text: str | None) -> bool | None:
        if text is None:
            return None
        test = tests.get(pattern)
        if test is None:
            test = tests[pattern] = found_by(pattern)
        return test(text)

    connection.create_function(FOUND_BY, 2, is_found, deterministic=True)
    connection.create_aggregate(EXACT_SUM, 1, _ExactSum)  # type: ignore[arg-type]
    return tests.clear


class _ExactSum:
    def __init__(self) -> None:
        self._total: Decimal | None = None

    def step(self, value: int | str | None) -> None:
        if value is not None:
            number = from_sortable(value) if isinstance(value, str) else Decimal(value)
            self._total = number if self._total is None else _EXACT.add(self._total, number)

    def finalize(self) -> str | None:
        return None if self._total is None else str(self._total)
