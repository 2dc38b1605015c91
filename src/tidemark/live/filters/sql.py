"""A filter as a condition in SQL, the same on every store. Values are parameters, never text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final

import msgspec

from tidemark.live.filters.normal import Filter
from tidemark.live.filters.patterns import ascii_lower, re2_pattern
from tidemark.live.filters.tree import (
    FALSE,
    And,
    Compare,
    Comparison,
    IsNull,
    Matches,
    Node,
    OneOf,
    Or,
)
from tidemark.pipeline.output.schema import ROW_KEY, Column, Value, ViewSchema, quoted
from tidemark.views.port import RowFilter, RowQuery
from tidemark.views.reading import key_range
from tidemark.views.scanning import Conditions, Query
from tidemark.views.sortable import FRACTION_DIGITS, INTEGER_DIGITS, to_sortable
from tidemark.views.sqlite_functions import FOUND_BY
from tidemark.views.tables import Dialect

_SIGNS: Final[dict[Comparison, str]] = {
    "eq": "=",
    "neq": "<>",
    "gt": ">",
    "lt": "<",
    "gte": ">=",
    "lte": "<=",
}

# What a store of sortable text keeps: whole multiples of the unit, below the bound.
_UNIT: Final = Decimal(1).scaleb(-FRACTION_DIGITS)
_BOUND: Final = Decimal(10) ** INTEGER_DIGITS
_EXACT: Final = Context(prec=1_000, rounding=ROUND_FLOOR)


def sql_condition(schema: ViewSchema, filter: Filter, dialect: Dialect) -> Query:
    """What must hold for a row of the view's table; true for just the rows that the filter wants.

    Where the filter names the first columns of the key, it also says between which keys to look.
    """
    columns = {column.name: column for column in schema.visible}
    conditions = Conditions()
    first, end = key_range(schema, RowFilter(equal=_fixed(filter.node)))
    conditions.add_if(f"{ROW_KEY} >= ?", first)
    conditions.add_if(f"{ROW_KEY} < ?", end)
    text, values = _Writer(columns, dialect).condition(filter.node)
    conditions.add(text, *values)
    return conditions.sql, tuple(conditions.values)


def row_query(
    schema: ViewSchema,
    filter: Filter,
    dialect: Dialect,
    *,
    order: tuple[str, ...] = (),
    limit: int | None = None,
    offset: int = 0,
) -> RowQuery:
    """The query for a filter's rows; `order` is made of `views.querying.order_term`."""
    return RowQuery(sql_condition(schema, filter, dialect), order, limit, offset)


def _fixed(node: Node) -> dict[str, Value]:
    """The columns that have one value in every row that is wanted; None stands for null."""
    fixed: dict[str, Value] = {}
    for part in node.parts if isinstance(node, And) else (node,):
        match part:
            case Compare(column, "eq", value):
                fixed[column] = value
            case IsNull(column, False):
                fixed[column] = None
    return fixed


class _Writer:
    def __init__(self, columns: dict[str, Column], dialect: Dialect) -> None:
        self._columns = columns
        self._dialect = dialect

    def condition(self, node: Node) -> Query:
        if isinstance(node, And | Or):
            if not node.parts:
                return "true" if isinstance(node, And) else "false", ()
            parts = [self.condition(part) for part in node.parts]
            word = " AND " if isinstance(node, And) else " OR "
            text = word.join(text for text, _ in parts)
            return f"({text})", [value for _, values in parts for value in values]
        column = self._columns[node.column]
        if self._dialect == "sqlite" and column.type == "decimal":
            node = _on_sortable(node)
        name = quoted(column.name)
        match node:
            case IsNull(_, negated):
                return f"{name} IS {'NOT ' if negated else ''}NULL", ()
            case Compare(_, comparison, value):
                return f"{name} {_SIGNS[comparison]} ?", self._stored(column, [value])
            case OneOf(_, values, negated):
                return self._one_of(name, self._stored(column, values), negated)
            case Matches(negated=negated):
                text, value = self._matches(name, node)
                return f"NOT ({text})" if negated else text, (value,)
            case _:
                return self.condition(node)

    def _one_of(self, name: str, values: Sequence[object], negated: bool) -> Query:
        if self._dialect == "postgres":
            return f"{name} {'<> ALL' if negated else '= ANY'}(?)", (list(values),)
        # One parameter for all of them: SQLite does not take any number of parameters.
        array = msgspec.json.encode(values).decode()
        listed = "SELECT value FROM json_each(?)"
        return f"{name} {'NOT IN' if negated else 'IN'} ({listed})", (array,)

    def _matches(self, name: str, node: Matches) -> tuple[str, str]:
        if self._dialect == "sqlite":
            return f"{FOUND_BY}(?, {name})", re2_pattern(node.kind, node.pattern)
        if node.kind == "regex":
            return f"{name} ~ ?", node.pattern
        if node.kind == "like":
            return f"{name} LIKE ?", node.pattern
        # ILIKE would do the same in this collation, but less plainly.
        return f'lower({name} COLLATE "C") LIKE ?', ascii_lower(node.pattern)

    def _stored(self, column: Column, values: Iterable[Value]) -> list[object]:
        if self._dialect == "postgres":
            return list(values)
        if column.type == "decimal":
            return [to_sortable(value) for value in values if isinstance(value, Decimal)]
        # In JSON a boolean would not be the number that SQLite keeps for it.
        return [int(value) if isinstance(value, bool) else value for value in values]


def _on_sortable(node: Compare | OneOf | IsNull | Matches) -> Node:
    """The same condition on the numbers that sortable text can hold.

    Between two neighbours of them every number compares alike, so the lower one can stand for it.
    """
    match node:
        case Compare(column, comparison, Decimal() as value):
            if _is_sortable(value):
                return node
            below = _EXACT.quantize(value, _UNIT)
            some, none = IsNull(column, negated=True), FALSE
            if comparison in ("eq", "neq"):
                return none if comparison == "eq" else some
            downwards = comparison in ("lt", "lte")
            if value >= _BOUND:
                return some if downwards else none
            if below <= -_BOUND:
                return none if downwards else some
            return Compare(column, "lte" if downwards else "gt", below)
        case OneOf(column, values, negated):
            kept = tuple(v for v in values if isinstance(v, Decimal) and _is_sortable(v))
            if kept:
                return OneOf(column, kept, negated)
            return IsNull(column, negated=True) if negated else FALSE
    return node


def _is_sortable(value: Decimal) -> bool:
    # Not `abs(value)`, which rounds.
    return -_BOUND < value < _BOUND and _EXACT.quantize(value, _UNIT) == value
