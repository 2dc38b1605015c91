"""How a store is asked, written once: a program yields statements and is sent their answers.

Whoever runs one does so in one transaction and knows its database; what is asked, in which order
and what follows from the answers is the same for all. Placeholders are `?`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

Row: TypeAlias = Any
"""A row that is read by position; the drivers have no type in common."""


class Statement(msgspec.Struct, frozen=True):
    """One statement with its values, or the same for each of `many` and then without an answer."""

    sql: str
    values: Sequence[object] = ()
    many: Sequence[Sequence[object]] | None = None


Program: TypeAlias = Generator[Statement, list[Row], T]


def ask(sql: str, *values: object) -> Statement:
    """A statement whose rows are wanted, if it has any."""
    return Statement(sql, values)


def for_each(sql: str, rows: Iterable[Sequence[object]]) -> Statement:
    """A statement that is run for each of some values, in their order."""
    return Statement(sql, many=list(rows))


def one_of(column: str, values: Sequence[object]) -> str:
    """A condition that a column has one of these values; there is at least one."""
    return f"{column} IN ({', '.join('?' * len(values))})"


def in_chunks(values: Iterable[T], size: int = 500) -> Iterable[list[T]]:
    """So that no statement has more values than a database takes."""
    everything = list(values)
    for start in range(0, len(everything), size):
        yield everything[start : start + size]
