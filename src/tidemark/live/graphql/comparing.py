"""The input types of `where`: what each type of column can be compared with."""

from __future__ import annotations

from typing import Final, TypeAlias

from graphql import (
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLScalarType,
    GraphQLString,
)

from tidemark.live.filters.parsing import IS_NULL, LISTS, PATTERNS, operators_of
from tidemark.live.graphql.scalars import SCALARS
from tidemark.pipeline.output.schema import Column, ColumnType

LeafType: TypeAlias = GraphQLScalarType | GraphQLEnumType

_MEANINGS: Final = {
    "_eq": "The same.",
    "_neq": "Another value. Null is not another value.",
    "_gt": "Greater.",
    "_lt": "Less.",
    "_gte": "Greater or the same.",
    "_lte": "Less or the same.",
    "_in": "One of these; nothing is one of none.",
    "_nin": "None of these. Null is never, unless the list is empty.",
    "_is_null": "Whether there is no value (true) or some value (false).",
    "_like": "Like the pattern: `%` is any text, `_` any one character, `\\` takes the next as is.",
    "_ilike": "Like the pattern, upper and lower case being the same.",
    "_nlike": "Not like the pattern.",
    "_nilike": "Not like the pattern, upper and lower case being the same.",
    "_regex": "Has a part that this regular expression matches.",
}
_TYPES: Final[dict[ColumnType, str]] = {
    "string": "Conditions on a string, ordered by code point.",
    "int": "Conditions on a whole number of 32 bits.",
    "bigint": "Conditions on a whole number of 64 bits.",
    "decimal": "Conditions on a decimal number, exactly.",
    "boolean": "Conditions on a truth value; false is less than true.",
    "timestamp": "Conditions on an instant, whatever its offset.",
    "json": "Conditions on a JSON value.",
}


def comparison(
    name: str, column: Column, values: LeafType, description: str
) -> GraphQLInputObjectType:
    """The operators that columns such as this one have; all that are given must hold."""
    return GraphQLInputObjectType(
        name,
        {
            operator: GraphQLInputField(_operand(operator, values), description=_MEANINGS[operator])
            for operator in operators_of(column)
        },
        description=description,
    )


def _operand(operator: str, values: LeafType) -> LeafType | GraphQLList[GraphQLNonNull[LeafType]]:
    if operator == IS_NULL:
        return GraphQLBoolean
    if operator in PATTERNS:
        return GraphQLString
    if operator in LISTS:
        return GraphQLList(GraphQLNonNull(values))
    return values


COMPARISONS: Final[dict[ColumnType, GraphQLInputObjectType]] = {
    kind: comparison(f"{SCALARS[kind].name}Comparison", Column("any", kind), SCALARS[kind], text)
    for kind, text in _TYPES.items()
}
