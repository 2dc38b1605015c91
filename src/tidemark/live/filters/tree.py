"""A filter as a tree: conditions on columns, joined by AND and OR.

There is no NOT: every condition has an opposite, so a negation moves down to the conditions, where
SQL's logic of true, false and unknown lets it. Without NOT unknown need not be told from false: an
AND is true if all its parts are, an OR if one of them is, and nothing else is ever asked.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from tidemark.pipeline.output.schema import Value

Comparison: TypeAlias = Literal["eq", "neq", "gt", "lt", "gte", "lte"]
PatternKind: TypeAlias = Literal["like", "ilike", "regex"]

_OPPOSITE: Final[dict[Comparison, Comparison]] = {
    "eq": "neq",
    "neq": "eq",
    "gt": "lte",
    "lte": "gt",
    "lt": "gte",
    "gte": "lt",
}


class Compare(msgspec.Struct, frozen=True):
    """A column against a value that is not null; unknown where the column is."""

    column: str
    comparison: Comparison
    value: Value


class OneOf(msgspec.Struct, frozen=True):
    """A column is one of some values, or none of them; unknown where the column is null."""

    column: str
    values: tuple[Value, ...]
    negated: bool = False


class IsNull(msgspec.Struct, frozen=True):
    """A column is null, or is not; never unknown."""

    column: str
    negated: bool = False


class Matches(msgspec.Struct, frozen=True):
    """A text against a pattern; unknown where the text is null.

    A `regex` is written as `patterns.shared_regex` gives it.
    """

    column: str
    kind: PatternKind
    pattern: str
    negated: bool = False


class And(msgspec.Struct, frozen=True):
    """All parts must hold; without any it is true."""

    parts: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    """One part must hold; without any it is false."""

    parts: tuple[Node, ...]


Condition: TypeAlias = Compare | OneOf | IsNull | Matches
Node: TypeAlias = Condition | And | Or

TRUE: Final = And(())
FALSE: Final = Or(())


def negation(node: Node) -> Node:
    """True where the node is false, false where it is true, unknown where it is unknown."""
    match node:
        case And(parts):
            return Or(tuple(negation(part) for part in parts))
        case Or(parts):
            return And(tuple(negation(part) for part in parts))
        case Compare(column, comparison, value):
            return Compare(column, _OPPOSITE[comparison], value)
        case OneOf() | IsNull() | Matches():
            return msgspec.structs.replace(node, negated=not node.negated)


def columns_of(node: Node) -> frozenset[str]:
    """The columns that decide."""
    if isinstance(node, And | Or):
        return frozenset().union(*(columns_of(part) for part in node.parts))
    return frozenset((node.column,))
