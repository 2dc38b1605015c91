"""Rows and aggregates by a condition in SQL: what the live side asks of a store.

Unlike `read_rows` this reads all that the condition wants, so whoever asks sets a limit. It has
connections of its own: however slow a query is, the log and the frontier are read beside it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import QueryTooSlow, UnknownView
from tidemark.pipeline.output.schema import (
    ROW_KEY,
    ROW_RECEIVED_AT,
    Column,
    Value,
    ViewSchema,
    quoted,
)
from tidemark.views.port import RowQuery, RowsFound
from tidemark.views.reading import ViewsReader
from tidemark.views.scanning import Query, Row
from tidemark.views.tables import Dialect

Aggregate: TypeAlias = Literal["count", "count_distinct", "sum", "avg", "min", "max"]

# How many are answered at the same time. Each takes its share of the processor from whatever else
# the process does, so there are few.
QUERIES_AT_ONCE = 6
# Longer than any query that an index serves, and not so long that a few others stop them all.
QUERY_WITHIN_S = 30.0

NUMBERS: Final = ("int", "bigint", "decimal")
_AGGREGATES: Final = ("count", "count_distinct", "sum", "avg", "min", "max")
_ALL_ROWS: Final = 2**63 - 1
# As many digits as a column of decimals can hold.
_AVERAGE: Final = Context(prec=38)

T = TypeVar("T")


class ViewsQueries(ViewsReader):
    """The part of a store that answers queries."""

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    @abstractmethod
    async def _ask(self, query: Query, read: Callable[[list[Row]], T]) -> tuple[T, Frontier | None]:
        """What `read` makes of the rows of a query, and the frontier of the same moment.

        It does not keep the event loop from its work, however many rows there are. When the task is
        cancelled the query ends too. Raises `QueryTooSlow` after `QUERY_WITHIN_S`.
        """

    @abstractmethod
    def _exact_sum(self, column: str) -> str:
        """An aggregate that neither rounds nor overflows."""

    async def select(self, view: str, query: RowQuery) -> RowsFound:
        schema = await self._schema(view)
        columns = schema.visible
        names = [ROW_KEY, ROW_RECEIVED_AT, *(quoted(column.name) for column in columns)]
        condition, values = query.condition
        sql = (
            f"SELECT {', '.join(names)} FROM {schema.table} WHERE {condition}"
            f" ORDER BY {', '.join((*query.order, self._last_term(query)))}"
        )
        if query.limit is not None or query.offset:
            sql += " LIMIT ? OFFSET ?"
            limit = _ALL_ROWS if query.limit is None else query.limit
            values = [*values, limit, query.offset]
        rows, frontier = await self._ask((sql, values), lambda rows: self._rows(columns, rows))
        return RowsFound(tuple(column.name for column in columns), rows, frontier)

    async def aggregate(
        self, view: str, condition: Query, terms: Sequence[tuple[str, str]]
    ) -> tuple[list[Value | float], Frontier | None]:
        schema = await self._schema(view)
        readers = [self._term(schema, function, column) for function, column in terms]
        expressions = [expression for wanted, _ in readers for expression in wanted]
        text, values = condition
        # Without a term there is still one row.
        listed = ", ".join(expressions) or "count(*)"
        sql = f"SELECT {listed} FROM {schema.table} WHERE {text}"

        def read(rows: list[Row]) -> list[Value | float]:
            [row] = rows
            answers, place = [], 0
            for wanted, read_term in readers:
                answers.append(read_term(*row[place : place + len(wanted)]))
                place += len(wanted)
            return answers

        return await self._ask((sql, values), read)

    def _last_term(self, query: RowQuery) -> str:
        # For the sake of the order SQLite would go through the whole table by the key, one row here
        # and one there. To sort the few that are wanted is quicker, unless a limit ends it early.
        all_of_some = query.limit is None and query.condition[0] != "true"
        return f"+{ROW_KEY}" if self.dialect == "sqlite" and all_of_some else ROW_KEY

    def _term(
        self, schema: ViewSchema, function: str, name: str
    ) -> tuple[list[str], Callable[..., Any]]:
        """What to select for an aggregate, and how to read it."""
        if (function, name) == ("count", "*"):
            return ["count(*)"], int
        column = next((column for column in schema.visible if column.name == name), None)
        if column is None or not _applies(function, column):
            raise UnknownView(
                f"view {schema.name} has no {function} of {name}",
                hint=f"There are {', '.join(_AGGREGATES)}; sums and averages of numbers only.",
                field=name,
            )
        quoted_name = quoted(name)
        if function == "count":
            return [f"count({quoted_name})"], int
        if function == "count_distinct":
            return [f"count(DISTINCT {quoted_name})"], int
        if function == "sum":
            whole = column.type != "decimal"
            return [self._exact_sum(quoted_name)], lambda total: _sum(total, whole)
        if function == "avg":
            return [self._exact_sum(quoted_name), f"count({quoted_name})"], _average
        expression = f"{function}({_ranked(column, self.dialect)})"
        return [expression], self._read_ranked(column)

    def _read_ranked(self, column: Column) -> Callable[[Any], Value]:
        if column.type == "enum":
            return lambda rank: None if rank is None else column.values[rank]
        if column.type == "boolean":
            return lambda rank: None if rank is None else bool(rank)
        convert = self._from_store.get(column.type)
        return lambda value: value if value is None or convert is None else convert(value)


def too_slow() -> QueryTooSlow:
    return QueryTooSlow(
        f"the query was ended after {QUERY_WITHIN_S:g} s",
        hint="Narrow `where`: rows are found quickly by the first columns of the view's key.",
        field="where",
    )


def order_term(
    column: Column, dialect: Dialect, *, descending: bool = False, nulls_first: bool | None = None
) -> str:
    """A term of `RowQuery.order`: enums as declared, text by code point, the rest by value.

    Unless told otherwise nulls are as in PostgreSQL, after all else, so first when descending.
    """
    first = descending if nulls_first is None else nulls_first
    value = _ranked(column, dialect) if column.type == "enum" else quoted(column.name)
    return f"{value} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _applies(function: str, column: Column) -> bool:
    match function:
        case "sum" | "avg":
            return column.type in NUMBERS
        case "min" | "max":
            return column.type != "json"
        case _:
            return function in _AGGREGATES


def _ranked(column: Column, dialect: Dialect) -> str:
    """The column as something that both dialects order, and have a least and a greatest of."""
    name = quoted(column.name)
    if column.type == "boolean":
        return f"CASE WHEN {name} THEN 1 WHEN NOT {name} THEN 0 END"
    if column.type != "enum":
        return name
    ranks = " ".join(
        f"WHEN {_literal(value, dialect)} THEN {rank}" for rank, value in enumerate(column.values)
    )
    return f"CASE {name} {ranks} END"


def _literal(text: str, dialect: Dialect) -> str:
    """A text in SQL; a question mark in it would be taken for a parameter's place."""
    character = "chr(63)" if dialect == "postgres" else "char(63)"
    parts = ("'" + part.replace("'", "''") + "'" for part in text.split("?"))
    return f"({f' || {character} || '.join(parts)})"


def _sum(total: Any, whole: bool) -> Value:
    if total is None:
        return None
    return int(total) if whole else Decimal(total)


def _average(total: Any, count: int) -> Value:
    if total is None:
        return None
    return _AVERAGE.divide(Decimal(total), Decimal(count)).normalize(_AVERAGE)
