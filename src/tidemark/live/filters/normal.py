"""The normal form of a filter: filters that say the same in other words become one.

What is done here never changes for which rows a filter is true. A condition that is unknown for a
null may become one that is false for it, so a normal form must not be negated any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tidemark.live.filters.patterns import text_test
from tidemark.live.filters.tree import (
    FALSE,
    TRUE,
    And,
    Compare,
    Comparison,
    Condition,
    IsNull,
    Matches,
    Node,
    OneOf,
    Or,
    columns_of,
)
from tidemark.pipeline.output.schema import Column, Value

_ORDERED: Final[dict[Comparison, Any]] = {
    "gt": int.__gt__,
    "lt": int.__lt__,
    "gte": int.__ge__,
    "lte": int.__le__,
}
_encode = msgspec.json.Encoder().encode


class Filter:
    """Which rows of a view somebody wants, in normal form.

    Filters of one view that are equal after normalising have equal keys and are equal.
    """

    __slots__ = ("columns", "key", "node", "view")

    def __init__(self, view: str, node: Node) -> None:
        self.view: Final = view
        self.node: Final = node
        self.key: Final = node_key(node)
        self.columns: Final = columns_of(node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.key == other.key and self.view == other.view

    def __hash__(self) -> int:
        return hash((self.view, self.key))

    def __repr__(self) -> str:
        return f"Filter({self.view}: {self.key})"


def both(first: Filter, second: Filter) -> Filter:
    """The rows that both filters want."""
    if first.view != second.view:
        raise ValueError(f"filters of two views: {first.view} and {second.view}")
    return Filter(first.view, _joined(And, (first.node, second.node)))


def normalised(node: Node, columns: Mapping[str, Column]) -> Node:
    """The one spelling of what a tree says; `columns` are those that it may name."""
    if isinstance(node, And | Or):
        return _joined(type(node), (normalised(part, columns) for part in node.parts))
    return _condition(node, columns[node.column])


def node_key(node: Node) -> str:
    """A text that two nodes have in common only if they are the same."""
    return _encode(_shape(node)).decode()


def _joined(kind: type[And] | type[Or], parts: Iterable[Node]) -> Node:
    """Parts in normal form, joined: none twice, none inside another of its kind, in one order."""
    deciding = FALSE if kind is And else TRUE
    unique: dict[str, Node] = {}
    for part in parts:
        if part == deciding:
            return deciding
        for inner in part.parts if isinstance(part, kind) else (part,):
            unique[node_key(inner)] = inner
    if len(unique) == 1:
        return next(iter(unique.values()))
    return kind(tuple(unique[key] for key in sorted(unique)))


def _condition(node: Condition, column: Column) -> Node:
    if column.type == "enum" and not isinstance(node, IsNull):
        return _enum_choice(node, column)
    if isinstance(node, OneOf):
        return _choice(node.column, node.values, node.negated)
    return node


def _enum_choice(node: Compare | OneOf | Matches, column: Column) -> Node:
    """There are few values, so whatever is asked of them is a choice of some."""
    chosen = [value for value in column.values if _holds(node, value, column)]
    if len(chosen) == len(column.values):
        return IsNull(column.name, negated=True)
    return _choice(column.name, chosen, negated=False)


def _choice(column: str, values: Iterable[Value], negated: bool) -> Node:
    kept = sorted(set(values))  # type: ignore[type-var]  # all of one type, and none is null
    if not kept:
        return TRUE if negated else FALSE
    if len(kept) == 1:
        return Compare(column, "neq" if negated else "eq", kept[0])
    return OneOf(column, tuple(kept), negated)


def _holds(node: Compare | OneOf | Matches, value: str, column: Column) -> bool:
    """Whether a condition is true for one value of an enum."""
    match node:
        case Compare(_, "eq", wanted):
            return value == wanted
        case Compare(_, "neq", wanted):
            return value != wanted
        case Compare(_, comparison, wanted):
            places = column.values.index
            return bool(_ORDERED[comparison](places(value), places(str(wanted))))
        case OneOf(_, values, negated):
            return (value in values) != negated
        case Matches(_, kind, pattern, negated):
            return text_test(kind, pattern)(value) != negated


def _shape(node: Node) -> list[object]:
    if isinstance(node, And | Or):
        return [type(node).__name__, *(_shape(part) for part in node.parts)]
    return [type(node).__name__, *msgspec.structs.astuple(node)]
