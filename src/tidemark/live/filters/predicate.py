"""A filter as a Python function over a row.

Filters of one shape share their code: values are arguments of the function that makes the function,
never part of its text, so ten thousand subscribers with a key each cost one compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from tidemark.live.filters.normal import Filter
from tidemark.live.filters.patterns import text_test
from tidemark.live.filters.tree import And, Compare, Comparison, IsNull, Matches, Node, OneOf, Or
from tidemark.pipeline.output.schema import Value, ViewSchema

Predicate: TypeAlias = Callable[[Sequence[Value]], bool]

_SIGNS: Final[dict[Comparison, str]] = {
    "eq": "==",
    "neq": "!=",
    "gt": ">",
    "lt": "<",
    "gte": ">=",
    "lte": "<=",
}


def compile_predicate(schema: ViewSchema, filter: Filter) -> Predicate:
    """Whether a row of the visible columns, as declared, is wanted; unknown counts as no."""
    places = {column.name: place for place, column in enumerate(schema.visible)}
    writer = _Writer(places)
    expression = writer.expression(filter.node)
    return _maker(expression, len(writer.values))(*writer.values)


class _Writer:
    """Writes an expression over `row`, and collects what it compares with."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self.values: list[object] = []
        self._places = places

    def expression(self, node: Node) -> str:
        if isinstance(node, And | Or):
            if not node.parts:
                return str(isinstance(node, And))
            word = " and " if isinstance(node, And) else " or "
            return f"({word.join(self.expression(p) for p in sorted(node.parts, key=_cost))})"
        cell = f"row[{self._places[node.column]}]"
        some = f"(x := {cell}) is not None and"
        match node:
            case IsNull(_, negated):
                return f"({cell} {'is not' if negated else 'is'} None)"
            # Null is equal to no value, so equality need not ask for it.
            case Compare(_, "eq", value):
                return f"({cell} == {self._named(value)})"
            case Compare(_, comparison, value):
                return f"({some} x {_SIGNS[comparison]} {self._named(value)})"
            case OneOf(_, values, False):
                return f"({cell} in {self._named(frozenset(values))})"
            case OneOf(_, values, True):
                return f"({some} x not in {self._named(frozenset(values))})"
            case Matches(_, kind, pattern, negated):
                test = self._named(text_test(kind, pattern))
                return f"({some} {'not ' if negated else ''}{test}(x))"
        raise AssertionError(node)

    def _named(self, value: object) -> str:
        self.values.append(value)
        return f"v{len(self.values) - 1}"


def _cost(node: Node) -> int:
    """Cheap conditions, and those that few rows pass, are asked first."""
    match node:
        case Compare(_, "eq"):
            return 0
        case OneOf(_, _, False):
            return 1
        case IsNull() | Compare() | OneOf():
            return 2
        case Matches(_, kind):
            return 3 if kind == "like" else 4
        case And() | Or():
            return 5


@lru_cache(maxsize=4096)
def _maker(expression: str, count: int) -> Callable[..., Predicate]:
    arguments = ", ".join(f"v{number}" for number in range(count))
    source = (
        f"def make({arguments}):\n    def wanted(row):\n        return {expression}\n"
        "    return wanted\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, "<filter>", "exec"), {"__builtins__": {}}, names)
    make: Callable[..., Predicate] = names["make"]
    return make
