"""Windows as they are defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from tests.reference.definitions import Aggregate
from tests.reference.tables import Condition, EventTime, Field, Values
from tests.reference.window_rows import OWN_COLUMNS

MAX_OVERLAP: Final = 1000


@dataclass(frozen=True)
class Value:
    """What a fact adds, a number; an event without one (None) is no fact.

    `text` says the same as `of` in SQL; an `ArithmeticError` is a failure.
    """

    text: str
    of: Callable[[Values], int | Fraction | None] = field(repr=False, compare=False)


# Of a window that only counts.
ONE: Final = Value("1", lambda _: 1)


@dataclass(frozen=True)
class Window:
    name: str
    stream: str
    fields: tuple[Field, ...]
    size_us: int
    every_us: int
    group_by: tuple[str, ...] = ()
    aggregate: Aggregate = "sum"
    value: Value = ONE
    where: Condition | None = None
    emit: Literal["close", "change"] = "close"
    late: Literal["drop", "side_output", "refire"] = "drop"
    refire_for_us: int | None = None
    time: EventTime | None = None

    def __post_init__(self) -> None:
        if not 0 < self.every_us <= self.size_us <= MAX_OVERLAP * self.every_us:
            raise ValueError(f"no windows: {self.size_us} every {self.every_us}")
        if (self.late == "refire") != (self.refire_for_us is not None):
            raise ValueError("only what refires does so for some time")
        if set(self.group_by) & set(OWN_COLUMNS) or len(set(self.group_by)) < len(self.group_by):
            raise ValueError(f"no column names of their own: {self.group_by}")

    @property
    def groups(self) -> tuple[Field, ...]:
        declared = {own.name: own for own in self.fields}
        return tuple(declared[name] for name in self.group_by)
