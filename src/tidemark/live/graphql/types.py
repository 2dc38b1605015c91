"""The types of one view: its row, its update, its conditions, its order and its aggregates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphql import (
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLEnumValue,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLString,
)

from tidemark.live.filters.parsing import CONNECTIVES
from tidemark.live.graphql.comparing import COMPARISONS, LeafType, comparison
from tidemark.live.graphql.context import Info
from tidemark.live.graphql.described import DescribedView
from tidemark.live.graphql.names import TakenNames, are_enum_values, check_column_name
from tidemark.live.graphql.scalars import BIG_INT, DECIMAL, SCALARS
from tidemark.pipeline.output.schema import Column

COUNT: Final = "count"
COUNT_DISTINCT: Final = "count_distinct"
EVERY_ROW: Final = "*"
AGGREGATE_FUNCTIONS: Final = {
    "sum": "The sum of each column over the rows that have a value, exactly.",
    "avg": "The mean of each column over the rows that have a value.",
    "min": "The least value of each column.",
    "max": "The greatest value of each column.",
}
_SUMMED: Final = {"int": BIG_INT, "bigint": DECIMAL, "decimal": DECIMAL}

ROW_OPERATION: Final = GraphQLEnumType(
    "RowOperation",
    {
        "INSERT": GraphQLEnumValue("INSERT", description="The row has come to match."),
        "UPDATE": GraphQLEnumValue("UPDATE", description="The row has changed and still matches."),
        "DELETE": GraphQLEnumValue(
            "DELETE", description="The row no longer matches, or is gone. Only its key is given."
        ),
        "PROGRESS": GraphQLEnumValue(
            "PROGRESS", description="No row: everything up to `ts_timestamp` was sent."
        ),
    },
    description="What has become of a row, seen through the subscription's `where`.",
)
ORDER_DIRECTION: Final = GraphQLEnumType(
    "OrderDirection",
    {
        name: GraphQLEnumValue(name, description=text)
        for name, text in {
            "asc": "Ascending, nulls last.",
            "asc_nulls_first": "Ascending, nulls first.",
            "asc_nulls_last": "Ascending, nulls last.",
            "desc": "Descending, nulls first.",
            "desc_nulls_first": "Descending, nulls first.",
            "desc_nulls_last": "Descending, nulls last.",
        }.items()
    },
    description="A direction, and where nulls come.",
)


class ViewTypes:
    """The types of one view, made once. `names` are the types' names taken so far.

    An enum whose values cannot all be GraphQL names is a `String`; it keeps its declared order.
    """

    def __init__(self, view: DescribedView, names: TakenNames) -> None:
        self.view = view
        self.name = view.schema.name
        self._names = names
        for column in view.schema.visible:
            check_column_name(self.name, column.name, frozenset(CONNECTIVES))
        self._leaves = {column.name: self._leaf(column) for column in view.schema.visible}
        self.row = GraphQLObjectType(
            names.take(self.name, self.name),
            {
                column.name: GraphQLField(
                    self._leaves[column.name], description=self._column_text(column)
                )
                for column in view.schema.visible
            },
            description=view.description or f"A row of `{self.name}`.",
        )
        self.expression = self._expression()
        self.order_by = self._order_by()
        self.aggregate = self._aggregate()
        self.update = self._update() if view.schema.logged else None

    def key_arguments(self) -> dict[str, GraphQLArgument]:
        """One for each column of the key."""
        return {
            column.name: GraphQLArgument(
                GraphQLNonNull(self._leaves[column.name]), description=self._column_text(column)
            )
            for column in self.view.schema.key_columns
        }

    def where(self) -> GraphQLArgument:
        return GraphQLArgument(
            self.expression, description="Which rows; without it, or with `{}`, all of them."
        )

    def _column_text(self, column: Column) -> str:
        text = self.view.columns.get(column.name) or f"The column `{column.name}`."
        if column.type == "enum" and not isinstance(self._leaves[column.name], GraphQLEnumType):
            text += f" One of {', '.join(repr(value) for value in column.values)}, in this order."
        if column.name in self.view.schema.key:
            text += " Part of the key."
        return text

    def _leaf(self, column: Column) -> LeafType:
        if column.type != "enum":
            return SCALARS[column.type]
        if not are_enum_values(column.values):
            return GraphQLString
        return GraphQLEnumType(
            self._names.take(f"{self.name}_{column.name}", self.name),
            {
                value: GraphQLEnumValue(value, description=f"Number {place} in their order.")
                for place, value in enumerate(column.values, 1)
            },
            description=f"The values of `{column.name}` in `{self.name}`, in their order.",
        )

    def _comparison(self, column: Column) -> GraphQLInputObjectType:
        if column.type != "enum":
            return COMPARISONS[column.type]
        name = self._names.take(f"{self.name}_{column.name}Comparison", self.name)
        return comparison(
            name,
            column,
            self._leaves[column.name],
            f"Conditions on `{column.name}`, in the declared order of its values.",
        )

    def _expression(self) -> GraphQLInputObjectType:
        columns = {
            column.name: GraphQLInputField(
                self._comparison(column), description=self._column_text(column)
            )
            for column in self.view.schema.visible
        }

        def fields() -> dict[str, GraphQLInputField]:
            several = GraphQLList(GraphQLNonNull(expression))
            return {
                "_and": GraphQLInputField(several, description="All of these; `[]` is true."),
                "_or": GraphQLInputField(several, description="Any of these; `[]` is false."),
                "_not": GraphQLInputField(expression, description="The contrary."),
                **columns,
            }

        expression = GraphQLInputObjectType(
            self._names.take(f"{self.name}Expression", self.name),
            fields,
            description=(
                f"A condition on a row of `{self.name}`. Everything given must hold; a comparison "
                "with null is unknown, and what is unknown does not hold."
            ),
        )
        return expression

    def _order_by(self) -> GraphQLInputObjectType:
        return GraphQLInputObjectType(
            self._names.take(f"{self.name}OrderBy", self.name),
            {
                column.name: GraphQLInputField(
                    ORDER_DIRECTION, description=self._column_text(column)
                )
                for column in self.view.schema.visible
                if column.type != "json"
            },
            description="One column and its direction. Later ones in the list break ties.",
            is_one_of=True,
        )

    def _update(self) -> GraphQLObjectType:
        return GraphQLObjectType(
            self._names.take(f"{self.name}Update", self.name),
            {
                "operation": GraphQLField(
                    GraphQLNonNull(ROW_OPERATION), description="What has become of the row."
                ),
                "data": GraphQLField(
                    self.row, description="The row; on DELETE only its key, on PROGRESS null."
                ),
                "fields": GraphQLField(
                    GraphQLNonNull(GraphQLList(GraphQLNonNull(GraphQLString))),
                    description="The columns that have changed, on UPDATE with those of the key.",
                ),
                "ts_timestamp": GraphQLField(
                    GraphQLNonNull(GraphQLString),
                    description="When the cause of the change was received: microseconds since "
                    "1970, in digits.",
                ),
            },
            description=f"One change of `{self.name}` as a subscriber sees it.",
        )

    def _aggregate(self) -> GraphQLObjectType:
        columns = GraphQLEnumType(
            self._names.take(f"{self.name}Column", self.name),
            {
                column.name: GraphQLEnumValue(column.name, description=self._column_text(column))
                for column in self.view.schema.visible
            },
            description=f"A column of `{self.name}`.",
        )
        fields: dict[str, GraphQLField] = {
            COUNT: GraphQLField(
                GraphQLNonNull(GraphQLInt),
                {
                    "columns": GraphQLArgument(
                        GraphQLList(GraphQLNonNull(columns)),
                        description="Count the rows that have a value here (one column at most).",
                    ),
                    "distinct": GraphQLArgument(
                        GraphQLBoolean,
                        default_value=False,
                        description="Count different values, not rows.",
                    ),
                },
                resolve=lambda values, info, **arguments: values[count_term(arguments)],
                description="How many rows there are.",
            )
        }
        for function, text in AGGREGATE_FUNCTIONS.items():
            of_columns = self._aggregated(function)
            if of_columns is not None:
                fields[function] = GraphQLField(
                    of_columns, resolve=lambda values, info: values, description=text
                )
        inner = GraphQLObjectType(
            self._names.take(f"{self.name}AggregateFields", self.name),
            fields,
            description=f"What rows of `{self.name}` come to.",
        )
        return GraphQLObjectType(
            self._names.take(f"{self.name}Aggregate", self.name),
            {
                "aggregate": GraphQLField(
                    GraphQLNonNull(inner),
                    resolve=lambda values, info: values,
                    description="The aggregates.",
                )
            },
            description=f"Aggregates over rows of `{self.name}`.",
        )

    def _aggregated(self, function: str) -> GraphQLObjectType | None:
        fields: dict[str, GraphQLField] = {}
        for column in self.view.schema.visible:
            leaf = self._aggregated_leaf(function, column)
            if leaf is not None:
                fields[column.name] = GraphQLField(
                    leaf,
                    resolve=_term(function, column.name),
                    description=self._column_text(column),
                )
        if not fields:
            return None
        return GraphQLObjectType(
            self._names.take(f"{self.name}{function.capitalize()}Fields", self.name),
            fields,
            description=AGGREGATE_FUNCTIONS[function],
        )

    def _aggregated_leaf(self, function: str, column: Column) -> LeafType | None:
        if function in ("min", "max"):
            return None if column.type == "json" else self._leaves[column.name]
        if column.type not in _SUMMED:
            return None
        return _SUMMED[column.type] if function == "sum" else DECIMAL


def count_term(arguments: dict[str, Any]) -> tuple[str, str]:
    """The function and the column that a `count` with these arguments means."""
    columns = arguments.get("columns") or ()
    if not columns:
        return COUNT, EVERY_ROW
    return (COUNT_DISTINCT if arguments.get("distinct") else COUNT), columns[0]


def _term(function: str, column: str) -> Callable[[Any, Info], Any]:
    def resolve(values: Any, info: Info) -> Any:
        return values[function, column]

    return resolve
