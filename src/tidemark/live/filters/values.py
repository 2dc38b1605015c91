"""The values that a column can be compared with, as they come in JSON, turned into its own.

Errors here have no `field`; the caller knows where the value stood.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tidemark.config.suggestions import did_you_mean
from tidemark.decimals import normalise_integer, normalise_number
from tidemark.errors import EventRejected
from tidemark.live.errors import InvalidFilter
from tidemark.pipeline.output.schema import Column, Value
from tidemark.timestamps import parse_timestamp

# More than any number that can be compared has; converting a longer one to text would cost.
_MAX_INTEGER_BITS: Final = 2_000
_SHOWN_CHARACTERS: Final = 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def column_value(column: Column, value: object, max_text: int) -> Value:
    """The value as the column holds it. Raises `InvalidFilter` if the column cannot hold it."""
    if value is None:
        raise InvalidFilter(
            "a comparison with null is never true",
            hint="To ask for null write `_is_null: true`, or `_is_null: false` for all others.",
        )
    return _READ[column.type](column, value, max_text)


def checked_text(value: object, max_text: int) -> str:
    """A text that every store can hold."""
    if not isinstance(value, str):
        raise _mismatch(value, "a string")
    if len(value) > max_text:
        raise InvalidFilter(
            f"a text of {len(value)} characters", hint=f"At most {max_text} are allowed."
        )
    if "\0" in value:
        raise InvalidFilter(
            "a text with a NUL character", hint="No row has one, because not every store can."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidFilter(
            "a text with half of a surrogate pair, which is no character",
            hint="Send both halves, as an encoder of JSON does by itself.",
        ) from None
    return value


def shown(value: object) -> str:
    """The value as a message can show it: short, and printable anywhere."""
    text = ascii(value) if isinstance(value, str | float | bool | Decimal) else type(value).__name__
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _string(column: Column, value: object, max_text: int) -> Value:
    return checked_text(value, max_text)


def _int(column: Column, value: object, max_text: int) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(value, "a whole number")
    return _integer(value, 32)


def _bigint(column: Column, value: object, max_text: int) -> Value:
    if isinstance(value, str):
        return _integer(value, 64)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch(value, "a whole number, or a string of one")
    return _integer(value, 64)


def _decimal(column: Column, value: object, max_text: int) -> Value:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _mismatch(value, "a number, or a string of one")
    elif isinstance(value, int):
        text = _digits(value)
    else:
        # The shortest text of a float is what stood in the JSON.
        text = str(value)
    try:
        return Decimal(normalise_number(text))
    except EventRejected as error:
        raise InvalidFilter(error.message, hint=error.hint) from None


def _boolean(column: Column, value: object, max_text: int) -> Value:
    if not isinstance(value, bool):
        raise _mismatch(value, "true or false")
    return value


def _timestamp(column: Column, value: object, max_text: int) -> Value:
    if not isinstance(value, str):
        raise _mismatch(value, "a string such as 2025-01-31T12:00:00Z")
    try:
        return parse_timestamp(value)
    except EventRejected as error:
        if error.code == "timestamp_out_of_range":
            return _far_timestamp(value)
        hint = "At most six digits." if error.code == "timestamp_too_precise" else error.hint
        raise InvalidFilter(error.message, hint=hint) from None


def _far_timestamp(text: str) -> Value:
    """An instant in a year that no event can have, but a calculated column may."""
    try:
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MICROSECOND
    except ValueError:
        raise InvalidFilter(
            f"{shown(text)} is no instant", hint="Years are from 0001 to 9999."
        ) from None


def _enum(column: Column, value: object, max_text: int) -> Value:
    if not isinstance(value, str):
        raise _mismatch(value, "one of its names, as a string")
    if value not in column.values:
        raise InvalidFilter(
            f"{shown(value)} is not a value of {column.name}",
            hint=did_you_mean(value, column.values),
        )
    return value


def _json(column: Column, value: object, max_text: int) -> Value:
    raise InvalidFilter(
        f"{column.name} is JSON, which is not compared",
        hint="Declare a calculated column with the part of it that you need.",
    )


def _integer(value: str | int, bits: int) -> int:
    try:
        return normalise_integer(value if isinstance(value, str) else _digits(value), bits)
    except EventRejected as error:
        raise InvalidFilter(error.message, hint=_integer_hint(error, bits)) from None


def _integer_hint(error: EventRejected, bits: int) -> str:
    return "Send a whole number." if error.code == "not_an_integer" else error.hint


def _digits(value: int) -> str:
    if value.bit_length() > _MAX_INTEGER_BITS:
        raise InvalidFilter(
            f"a number of {value.bit_length()} bits", hint=f"At most {_MAX_INTEGER_BITS} bits."
        )
    return str(value)


def _mismatch(value: object, expected: str) -> InvalidFilter:
    return InvalidFilter(f"{shown(value)} where {expected} must be", hint=f"Write {expected}.")


_READ: Final[dict[str, Callable[[Column, object, int], Value]]] = {
    "string": _string,
    "int": _int,
    "bigint": _bigint,
    "decimal": _decimal,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "enum": _enum,
    "json": _json,
}
