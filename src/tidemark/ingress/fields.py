"""The types a stream's fields can have, each with its two readers.

The quick reader is a msgspec type, and for some types a step that finishes the value. It serves
what is spelled in the usual way and passes on the rest. The careful reader takes a value of the
tree and either accepts it or says what is wrong. Where both accept, both give the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from tidemark.canonical import Json, Number, canonical_text
from tidemark.config.model import FieldConfig, FieldType
from tidemark.decimals import normalise_integer, trim_plain
from tidemark.errors import EventRejected
from tidemark.ingress.members import (
    checked_decimal,
    checked_text,
    checked_timestamp,
    suggestion,
    wrong_type,
)
from tidemark.ingress.rejections import shown
from tidemark.ingress.trees import canonical_tree
from tidemark.timestamps import normalise_timestamp

INT_BITS: Final = 32
BIGINT_BITS: Final = 64

# A plain number within the bounds of `tidemark.decimals`, with or without quotes.
_QUICK_DECIMAL = re.compile(rb'"?(-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,9})?)"?').fullmatch
# One digit less than 64 bits may need, so that no range has to be checked.
_QUICK_INTEGER = re.compile(rb'"?(-?(?:0|[1-9][0-9]{0,17}))"?').fullmatch
_CONTAINERS: Final = (dict, list)


class NotQuick(Exception):
    """The quick reading does not decide this; the careful one will."""


class Context(NamedTuple):
    """What the readers of a field depend on besides its own declaration."""

    max_string_length: int
    # How many levels of arrays and objects the value itself may have.
    levels: int
    truncate: bool


class FieldReader(NamedTuple):
    """`quick_type` and `finish` for msgspec, `check(value, path)` for trees."""

    quick_type: Any
    finish: Callable[[Any], object] | None
    check: Callable[[Json, str], object]


def field_reader(field: FieldConfig, context: Context) -> FieldReader:
    return _READERS[field.type](field, context)


def quick_decimal(raw: msgspec.Raw) -> str:
    """The canonical text of a decimal's JSON text, or `NotQuick`."""
    match = _QUICK_DECIMAL(raw)
    if match is None:
        raise NotQuick
    return trim_plain(match[1].decode())


def deeper_than(value: object, text: bytes, levels: int) -> bool:
    """Whether a value with this JSON text has more levels of arrays and objects than this."""
    # Without enough brackets there is no need to walk through what may be a long list.
    return text.count(b"[") + text.count(b"{") > levels and _deeper_than(value, levels)


def _deeper_than(value: object, levels: int) -> bool:
    if type(value) is dict:
        members: Any = value.values()
    elif type(value) is list:
        members = value
    else:
        return False
    if levels <= 0:
        return True
    for member in members:
        if type(member) in _CONTAINERS and _deeper_than(member, levels - 1):
            return True
    return False


def _string(field: FieldConfig, context: Context) -> FieldReader:
    max_length = field.max_length or context.max_string_length

    def check(value: Json, path: str) -> object:
        return checked_text(value, path, max_length, empty=True)

    return FieldReader(Annotated[str, msgspec.Meta(max_length=max_length)], None, check)


def _enum(field: FieldConfig, context: Context) -> FieldReader:
    values = field.values or []

    def check(value: Json, path: str) -> object:
        if not isinstance(value, str):
            raise wrong_type(value, path, "a string")
        if value not in values:
            raise EventRejected(
                f"{shown(value)} is not a value of `{path}`",
                code="not_in_enum",
                field=path,
                hint=suggestion(value, values),
            )
        return value

    return FieldReader(Literal[tuple(values)], None, check)


def _boolean(field: FieldConfig, context: Context) -> FieldReader:
    def check(value: Json, path: str) -> object:
        if not isinstance(value, bool):
            raise wrong_type(value, path, "true or false")
        return value

    return FieldReader(bool, None, check)


def _int(field: FieldConfig, context: Context) -> FieldReader:
    half = 1 << (INT_BITS - 1)

    def check(value: Json, path: str) -> object:
        if not isinstance(value, Number):
            raise wrong_type(value, path, "a number")
        return _checked_integer(value.text, path, INT_BITS)

    return FieldReader(Annotated[int, msgspec.Meta(ge=-half, le=half - 1)], None, check)


def _bigint(field: FieldConfig, context: Context) -> FieldReader:
    def finish(raw: msgspec.Raw) -> object:
        match = _QUICK_INTEGER(raw)
        if match is None:
            raise NotQuick
        return str(int(match[1]))

    def check(value: Json, path: str) -> object:
        if isinstance(value, Number):
            return str(_checked_integer(value.text, path, BIGINT_BITS))
        if isinstance(value, str):
            return str(_checked_integer(value, path, BIGINT_BITS))
        raise wrong_type(value, path, "a number, or a string that holds one")

    return FieldReader(msgspec.Raw, finish, check)


def _decimal(field: FieldConfig, context: Context) -> FieldReader:
    return FieldReader(msgspec.Raw, quick_decimal, checked_decimal)


def _timestamp(field: FieldConfig, context: Context) -> FieldReader:
    def finish(text: str) -> object:
        return normalise_timestamp(text, truncate=context.truncate)[1]

    def check(value: Json, path: str) -> object:
        return checked_timestamp(value, path, truncate=context.truncate)[1]

    return FieldReader(str, finish, check)


def _json(field: FieldConfig, context: Context) -> FieldReader:
    def finish(raw: msgspec.Raw) -> object:
        value, text = canonical_text(raw)
        # Null means absent, which depends on whether the field may be.
        if value is None or deeper_than(value, text, context.levels):
            raise NotQuick
        return msgspec.Raw(text)

    def check(value: Json, path: str) -> object:
        return msgspec.Raw(canonical_tree(value, path))

    return FieldReader(msgspec.Raw, finish, check)


def _checked_integer(text: str, path: str, bits: int) -> int:
    try:
        return normalise_integer(text, bits)
    except EventRejected as error:
        error.field = path
        raise


_READERS: Final[dict[FieldType, Callable[[FieldConfig, Context], FieldReader]]] = {
    "string": _string,
    "enum": _enum,
    "boolean": _boolean,
    "int": _int,
    "bigint": _bigint,
    "decimal": _decimal,
    "timestamp": _timestamp,
    "json": _json,
}
