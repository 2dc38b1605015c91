"""One page of a table in key order, with a bound on the work for it.

A filter that no index serves looks at no more than `SCAN_WINDOW` rows a page and says where to go
on, so a rare value cannot make one request read everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

SCAN_WINDOW = 100_000

Query: TypeAlias = tuple[str, Sequence[object]]
"""SQL whose placeholders are `?`, and their values."""

Row: TypeAlias = Any
"""A row that is read by position; the drivers have no type in common."""


class Conditions:
    """Conditions that must all hold, with their values."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.values: list[object] = []

    def add(self, text: str, *values: object) -> None:
        self.texts.append(text)
        self.values += values

    def add_if(self, text: str, value: object | None) -> None:
        if value is not None:
            self.add(text, value)

    @property
    def sql(self) -> str:
        return " AND ".join(self.texts) or "true"


class Scan(msgspec.Struct, frozen=True):
    """What to read: `bounds` are served by the order's index, `filters` by looking at each row."""

    table: str
    columns: Sequence[str]
    order: Sequence[str]
    bounds: Conditions
    filters: Conditions
    limit: int

    def queries(self) -> list[Query]:
        """The page, and the last row of a window that is full."""
        order = ", ".join(self.order)
        if not self.filters.texts:
            page = (
                f"SELECT {', '.join(self.columns)} FROM {self.table} WHERE {self.bounds.sql}"
                f" ORDER BY {order} LIMIT ?"
            )
            return [(page, [*self.bounds.values, self.limit])]
        page = (
            f"SELECT {', '.join(self.columns)} FROM (SELECT * FROM {self.table}"
            f" WHERE {self.bounds.sql} ORDER BY {order} LIMIT ?) AS scanned"
            f" WHERE {self.filters.sql} ORDER BY {order} LIMIT ?"
        )
        end = (
            f"SELECT {order} FROM {self.table} WHERE {self.bounds.sql}"
            f" ORDER BY {order} LIMIT 1 OFFSET ?"
        )
        return [
            (page, [*self.bounds.values, SCAN_WINDOW, *self.filters.values, self.limit]),
            (end, [*self.bounds.values, SCAN_WINDOW - 1]),
        ]

    def next_cursor(self, answers: Sequence[Sequence[Row]]) -> tuple[Any, ...] | None:
        """Where the next page begins, from the answers to `queries`."""
        rows = answers[0]
        if len(rows) == self.limit:
            places = [self.columns.index(name) for name in self.order]
            return tuple(rows[-1][place] for place in places)
        if len(answers) > 1 and answers[1]:
            return tuple(answers[1][0])
        return None
