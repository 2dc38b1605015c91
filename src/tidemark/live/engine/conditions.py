"""What of a filter can be looked up: the conditions that must hold whatever else does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from tidemark.live.filters.tree import FALSE, And, Compare, IsNull, Node, OneOf, Or
from tidemark.pipeline.output.schema import Value, ViewSchema

Bound: TypeAlias = tuple[Any, int]
"""A value, and where beside it the bound is: 0 just before the value, 1 just after it."""


class Among(msgspec.Struct, frozen=True):
    """A column has one of these values; None is null."""

    column: str
    values: tuple[Value, ...]


class Between(msgspec.Struct, frozen=True):
    """A column is not null and lies between two bounds; without one it is open to that side."""

    column: str
    lower: Bound | None
    upper: Bound | None


Lookup: TypeAlias = Among | Between


class Lookups(msgspec.Struct, frozen=True):
    """Each of these must hold. If `complete`, there is one at most, and nothing else must hold."""

    lookups: tuple[Lookup, ...]
    complete: bool
    never: bool = False


def lookups_of(node: Node, schema: ViewSchema) -> Lookups:
    """What a row must have for the node to be true of it."""
    if node == FALSE:
        return Lookups((), complete=True, never=True)
    # Texts of JSON that differ may be equal values.
    plain = {column.name for column in schema.visible if column.type != "json"}
    parts = node.parts if isinstance(node, And) else (node,)
    among: list[Lookup] = []
    bounds: dict[str, list[Compare]] = {}
    others = 0
    for part in parts:
        choice = _choice(part)
        if choice is not None and choice.column in plain:
            among.append(choice)
        elif isinstance(part, Compare) and part.comparison != "neq" and part.column in plain:
            bounds.setdefault(part.column, []).append(part)
        else:
            others += 1
    lookups = (*among, *(_between(column, found) for column, found in bounds.items()))
    return Lookups(lookups, complete=not others and len(lookups) <= 1)


def _choice(node: Node) -> Among | None:
    match node:
        case Compare(column, "eq", value):
            return Among(column, (value,))
        case OneOf(column, values, negated=False):
            return Among(column, values)
        case IsNull(column, negated=False):
            return Among(column, (None,))
        case Or(parts):
            return _any_of(_choice(part) for part in parts)
        case _:
            return None


def _any_of(choices: Iterable[Among | None]) -> Among | None:
    """One choice for several of the same column."""
    values: dict[Value, None] = {}
    columns: set[str] = set()
    for choice in choices:
        if choice is None:
            return None
        columns.add(choice.column)
        values |= dict.fromkeys(choice.values)
    return Among(columns.pop(), tuple(values)) if len(columns) == 1 else None


def _between(column: str, comparisons: Iterable[Compare]) -> Between:
    lower: Bound | None = None
    upper: Bound | None = None
    for condition in comparisons:
        if condition.comparison in ("gt", "gte"):
            bound = (condition.value, int(condition.comparison == "gt"))
            lower = bound if lower is None else max(lower, bound)
        else:
            bound = (condition.value, int(condition.comparison == "lte"))
            upper = bound if upper is None else min(upper, bound)
    return Between(column, lower, upper)
