"""From Hasura's `where` to a filter: what each operator means, and what is wrong with a bad one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from tidemark.config.suggestions import did_you_mean
from tidemark.live.errors import InvalidFilter
from tidemark.live.filters.normal import Filter, normalised
from tidemark.live.filters.patterns import check_like, shared_regex
from tidemark.live.filters.tree import (
    FALSE,
    TRUE,
    And,
    Compare,
    Comparison,
    IsNull,
    Matches,
    Node,
    OneOf,
    Or,
    PatternKind,
    negation,
)
from tidemark.live.filters.values import checked_text, column_value, shown
from tidemark.pipeline.output.schema import Column, Value, ViewSchema

COMPARISONS: Final[Mapping[str, Comparison]] = {
    "_eq": "eq",
    "_neq": "neq",
    "_gt": "gt",
    "_lt": "lt",
    "_gte": "gte",
    "_lte": "lte",
}
LISTS: Final[Mapping[str, bool]] = {"_in": False, "_nin": True}
PATTERNS: Final[Mapping[str, tuple[PatternKind, bool]]] = {
    "_like": ("like", False),
    "_nlike": ("like", True),
    "_ilike": ("ilike", False),
    "_nilike": ("ilike", True),
    "_regex": ("regex", False),
}
IS_NULL: Final = "_is_null"
CONNECTIVES: Final = ("_and", "_or", "_not")

_SYNONYMS: Final = {
    "ne": "_neq",
    "notin": "_nin",
    "ge": "_gte",
    "le": "_lte",
    "notlike": "_nlike",
    "notilike": "_nilike",
    "null": IS_NULL,
    "regexp": "_regex",
    "contains": "_like",
}
T = TypeVar("T")

_ROOT: Final = "where"
_SHOWN_KEY: Final = 64


class FilterLimits(msgspec.Struct, frozen=True):
    """How large a filter may be, so that none can cost more than its share.

    A condition is one operator on a column, or an object without any. The depth is that of objects
    in `_and`, `_or` and `_not`; a list is one of values or of objects, a text one value.
    """

    max_depth: int = 10
    max_conditions: int = 200
    max_list: int = 1_000
    max_text: int = 10_000


_DEFAULT_LIMITS: Final = FilterLimits()


def parse_filter(
    schema: ViewSchema, where: object, limits: FilterLimits = _DEFAULT_LIMITS
) -> Filter:
    """The filter that a `where` describes; None and `{}` want every row.

    `where` is made of what JSON can be read into. Raises `InvalidFilter`, whose `field` is the path
    to what is wrong.
    """
    parser = _Parser(schema, limits)
    node = TRUE if where is None else parser.conjunction(where, _ROOT, 1)
    return Filter(schema.name, normalised(node, parser.columns))


def operators_of(column: Column) -> tuple[str, ...]:
    """The operators that a column of this type has."""
    if column.type == "json":
        return (IS_NULL,)
    operators = (*COMPARISONS, *LISTS, IS_NULL)
    return (*operators, *PATTERNS) if column.type in ("string", "enum") else operators


class _Parser:
    def __init__(self, schema: ViewSchema, limits: FilterLimits) -> None:
        # A hidden column is not there for a reader, so no message may name it.
        self.columns = {column.name: column for column in schema.visible}
        self._view = schema.name
        self._limits = limits
        self._conditions = 0

    def conjunction(self, where: object, path: str, depth: int) -> Node:
        """All members of an object hold."""
        if not isinstance(where, Mapping):
            raise InvalidFilter(
                f"{shown(where)} where an object must be",
                hint="Write an object of columns and operators; `{}` wants every row.",
                field=path,
            )
        if depth > self._limits.max_depth:
            raise InvalidFilter(
                f"the filter is more than {self._limits.max_depth} objects deep",
                hint="Flatten it: all members of an object are ANDed.",
                field=path,
            )
        if not where:
            self._count(path)
        return And(
            tuple(
                self._member(name, value, f"{path}.{_shown_key(name)}", depth)
                for name, value in where.items()
            )
        )

    def _member(self, name: object, value: object, path: str, depth: int) -> Node:
        if name == "_not":
            return negation(self.conjunction(value, path, depth + 1))
        if name == "_and" or name == "_or":
            parts = self._items(value, path, lambda item, at: self.conjunction(item, at, depth + 1))
            return And(parts) if name == "_and" else Or(parts)
        if not isinstance(name, str) or name not in self.columns:
            raise InvalidFilter(
                f"view {self._view} has no column {_shown_key(name)}",
                hint=did_you_mean(_shown_key(name), (*self.columns, *CONNECTIVES)),
                field=path,
            )
        return self._column(self.columns[name], value, path)

    def _column(self, column: Column, operators: object, path: str) -> Node:
        if not isinstance(operators, Mapping):
            raise InvalidFilter(
                f"{shown(operators)} where an object of operators must be",
                hint=f"Write {{{column.name}: {{{operators_of(column)[0]}: …}}}}.",
                field=path,
            )
        if not operators:
            self._count(path)
        return And(
            tuple(
                self._operator(column, name, value, f"{path}.{_shown_key(name)}")
                for name, value in operators.items()
            )
        )

    def _operator(self, column: Column, name: object, value: object, path: str) -> Node:
        self._count(path)
        known = operators_of(column)
        if not isinstance(name, str) or name not in known:
            raise InvalidFilter(
                f"{column.name} is of type {column.type}, which has no {_shown_key(name)}",
                hint=did_you_mean(_shown_key(name), known, _SYNONYMS),
                field=path,
            )
        if name == IS_NULL:
            if not isinstance(value, bool):
                raise InvalidFilter(
                    f"{shown(value)} where true or false must be",
                    hint="Write `_is_null: true` or `_is_null: false`.",
                    field=path,
                )
            return IsNull(column.name, negated=not value)
        if name in LISTS:
            values = self._items(value, path, lambda item, at: self._value(column, item, at))
            if not values:
                return TRUE if LISTS[name] else FALSE
            return OneOf(column.name, values, LISTS[name])
        if name in PATTERNS:
            kind, negated = PATTERNS[name]
            return Matches(column.name, kind, self._pattern(kind, value, path), negated)
        return Compare(column.name, COMPARISONS[name], self._value(column, value, path))

    def _items(self, value: object, path: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
        """Those of a list; anything else is a list of itself, as GraphQL has it."""
        if not isinstance(value, list | tuple):
            return (read(value, path),)
        if len(value) > self._limits.max_list:
            raise InvalidFilter(
                f"a list of {len(value)}",
                hint=f"At most {self._limits.max_list} are allowed.",
                field=path,
            )
        return tuple(read(item, f"{path}[{place}]") for place, item in enumerate(value))

    def _value(self, column: Column, value: object, path: str) -> Value:
        try:
            return column_value(column, value, self._limits.max_text)
        except InvalidFilter as error:
            error.field = path
            raise

    def _pattern(self, kind: PatternKind, value: object, path: str) -> str:
        try:
            if value is None:
                raise InvalidFilter(
                    "a comparison with null is never true",
                    hint="To ask for null write `_is_null: true`.",
                )
            text = checked_text(value, self._limits.max_text)
            if kind == "regex":
                return shared_regex(text)
            check_like(text)
            return text
        except InvalidFilter as error:
            error.field = path
            raise

    def _count(self, path: str) -> None:
        self._conditions += 1
        if self._conditions > self._limits.max_conditions:
            raise InvalidFilter(
                f"the filter has more than {self._limits.max_conditions} conditions",
                hint="Use `_in` for many values of one column.",
                field=path,
            )


def _shown_key(name: object) -> str:
    """A key as a path or a message can show it, whatever it is made of."""
    if not isinstance(name, str):
        return type(name).__name__
    return name[:_SHOWN_KEY].encode(errors="replace").decode()
