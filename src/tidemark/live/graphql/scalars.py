"""The scalars whose values JSON numbers could not carry exactly.

They travel as strings. Where one is expected as input a number is taken too, as long as it arrives
exactly: literals do, and so do variables, because the service reads numbers without rounding.
Output is coerced by what makes the rows, so these functions only let it through.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from graphql import (
    FloatValueNode,
    GraphQLBoolean,
    GraphQLError,
    GraphQLInt,
    GraphQLScalarType,
    GraphQLString,
    IntValueNode,
    StringValueNode,
    ValueNode,
)

from tidemark.pipeline.output.schema import ColumnType

# As far as filters go; what a column can hold is for them to say.
_DECIMAL = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?").fullmatch
_BIGINT = re.compile(r"-?[0-9]{1,19}").fullmatch
_BIGINT_RANGE: Final = (-(2**63), 2**63 - 1)
_SHOWN_CHARACTERS: Final = 64


def _decimal(value: object) -> str:
    text = str(value) if isinstance(value, Decimal | int | str) else ""
    if isinstance(value, bool) or not _DECIMAL(text):
        raise _refused("Decimal", value, 'a string such as "12.50"')
    return text


def _bigint(value: object) -> str:
    text = str(value) if isinstance(value, int | str) else ""
    if (
        isinstance(value, bool)
        or not _BIGINT(text)
        or not _BIGINT_RANGE[0] <= int(text) <= _BIGINT_RANGE[1]
    ):
        raise _refused("BigInt", value, 'a string of digits such as "9007199254740993", 64 bits')
    return text


def _timestamp(value: object) -> str:
    if not isinstance(value, str):
        raise _refused("Timestamp", value, 'a string such as "2025-01-31T12:00:00.000000Z"')
    return value


def _decimal_literal(node: ValueNode) -> str:
    if isinstance(node, StringValueNode | IntValueNode | FloatValueNode):
        return _decimal(node.value)
    raise _refused("Decimal", node, 'a string such as "12.50"')


def _bigint_literal(node: ValueNode) -> str:
    if isinstance(node, StringValueNode | IntValueNode):
        return _bigint(node.value)
    raise _refused("BigInt", node, 'a string of digits such as "9007199254740993"')


def _timestamp_literal(node: ValueNode) -> str:
    return _timestamp(node.value if isinstance(node, StringValueNode) else node)


def _refused(name: str, value: object, wanted: str) -> GraphQLError:
    if isinstance(value, ValueNode):
        shown = "this literal"
    else:
        text = repr(str(value) if isinstance(value, Decimal) else value)
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return GraphQLError(f"{name} cannot represent {shown}: it takes {wanted}.")


def _unchanged(value: object) -> object:
    return value


DECIMAL: Final = GraphQLScalarType(
    "Decimal",
    description='An exact decimal number, as a string such as `"12.5"`. Without trailing zeros.',
    coerce_output_value=_unchanged,
    coerce_input_value=_decimal,
    coerce_input_literal=_decimal_literal,
)
BIG_INT: Final = GraphQLScalarType(
    "BigInt",
    description='A whole number of 64 bits, as a string of digits such as `"9007199254740993"`.',
    coerce_output_value=_unchanged,
    coerce_input_value=_bigint,
    coerce_input_literal=_bigint_literal,
)
TIMESTAMP: Final = GraphQLScalarType(
    "Timestamp",
    description=(
        "An instant, as a string of RFC 3339. Shown in UTC with six digits and `Z`, such as "
        '`"2025-01-31T12:00:00.000000Z"`; taken with any offset.'
    ),
    coerce_output_value=_unchanged,
    coerce_input_value=_timestamp,
    coerce_input_literal=_timestamp_literal,
)
JSON: Final = GraphQLScalarType(
    "JSON",
    description="Any JSON value, as it is. It is a leaf: what is inside cannot be selected.",
    coerce_output_value=_unchanged,
)

# An enum is a type of its own.
SCALARS: Final[dict[ColumnType, GraphQLScalarType]] = {
    "string": GraphQLString,
    "int": GraphQLInt,
    "bigint": BIG_INT,
    "decimal": DECIMAL,
    "boolean": GraphQLBoolean,
    "timestamp": TIMESTAMP,
    "json": JSON,
}
