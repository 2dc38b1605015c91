"""Schemas of single values: keys, times, sequences, numbers, and the fields of a stream."""

from __future__ import annotations

from typing import Any, Final

from tidemark.config.model import FieldConfig, IngestConfig
from tidemark.decimals import MAX_FRACTION_DIGITS, MAX_INTEGER_DIGITS
from tidemark.ingress.fields import BIGINT_BITS, INT_BITS
from tidemark.ingress.members import MAX_KEY_LENGTH, name_limit

Schema = dict[str, Any]

# Every day there is, as far as times are accepted (1970 to 2261). Only the few hours by which an
# offset can carry a time across the border are not told apart.
_YEAR = "(?:19[7-9][0-9]|2[01][0-9]{2}|22[0-5][0-9]|226[01])"
_LEAP_YEAR = (
    "(?:19(?:7[26]|8[048]|9[26])|20(?:[02468][048]|[13579][26])"
    "|21(?:0[48]|[2468][048]|[13579][26])|22(?:0[48]|[24][048]|[135][26]|60))"
)
_DAY_OF_ANY_YEAR = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,30})?"
_OFFSET = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
TIMESTAMP_PATTERN: Final = (
    f"^(?:{_YEAR}-{_DAY_OF_ANY_YEAR}|{_LEAP_YEAR}-02-29)[Tt]{_TIME}{_OFFSET}$"
)
DECIMAL_PATTERN: Final = (
    f"^-?(?:0|[1-9][0-9]{{0,{MAX_INTEGER_DIGITS - 1}}})(?:\\.[0-9]{{1,{MAX_FRACTION_DIGITS}}})?$"
)
WITHOUT_NUL: Final = "^[^\\u0000]*$"

EXAMPLE_TIME: Final = "2025-01-31T12:00:00Z"

# What the server writes.
SHOWN_TIME: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z$",
}
SHOWN_SEQUENCE: Final[Schema] = {"type": "string", "pattern": "^[0-9]+$"}


def described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}


def sent_time(text: str) -> Schema:
    """A time as a client may write it."""
    return {
        "type": "string",
        "format": "date-time",
        "description": (
            f"{text} RFC 3339 with an offset or `Z`, in the years 1970 to 2261, "
            "at most six fractional digits."
        ).lstrip(),
        "examples": [EXAMPLE_TIME],
    }


def sent_decimal(text: str) -> Schema:
    """An exact number as a client may write it."""
    return {
        "description": (
            f"{text} An exact decimal, as a number or as a string: at most {MAX_INTEGER_DIGITS} "
            f"digits before the point and {MAX_FRACTION_DIGITS} after it. Zero and negative are "
            "allowed."
        ).lstrip(),
        "anyOf": [{"type": "number"}, {"type": "string", "pattern": DECIMAL_PATTERN}],
    }


def text_of(limits: IngestConfig, text: str, *, most: int | None = None) -> Schema:
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": most or limits.max_string_length,
        "description": text,
    }


def name_text(limits: IngestConfig, text: str) -> Schema:
    return text_of(limits, text, most=name_limit(limits.max_string_length))


def key_text(text: str) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH, "description": text}


def optional(schema: Schema) -> Schema:
    """A field that may also be null, which is the same as leaving it out."""
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return schema


def field_schema(field: FieldConfig, limits: IngestConfig) -> Schema:
    """What a declared field accepts."""
    schema = _typed(field, limits)
    if field.description:
        said = schema.get("description", "")
        schema["description"] = f"{field.description} {said}".strip()
    if field.required:
        return schema
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return optional(schema)


def example_value(field: FieldConfig, name: str) -> object:
    """A value that the field accepts."""
    longest = field.max_length or len(name) + 2
    examples: dict[str, object] = {
        "string": f"{name}-1"[-longest:],
        "int": 1,
        "bigint": "9007199254740993",
        "decimal": "12.5",
        "boolean": True,
        "timestamp": EXAMPLE_TIME,
        "json": {"any": ["JSON", 1]},
        "enum": (field.values or [""])[0],
    }
    return examples[field.type]


def _typed(field: FieldConfig, limits: IngestConfig) -> Schema:
    half = 1 << (INT_BITS - 1)
    if field.type == "string":
        return {"type": "string", "maxLength": field.max_length or limits.max_string_length}
    if field.type == "int":
        return {"type": "integer", "minimum": -half, "maximum": half - 1}
    if field.type == "bigint":
        half = 1 << (BIGINT_BITS - 1)
        return {
            "description": "A whole number of 64 bits, as a number or as a string.",
            "anyOf": [
                {"type": "integer", "minimum": -half, "maximum": half - 1},
                {"type": "string", "pattern": "^-?(?:0|[1-9][0-9]{0,18})$"},
            ],
        }
    if field.type == "decimal":
        return sent_decimal("")
    if field.type == "boolean":
        return {"type": "boolean"}
    if field.type == "timestamp":
        return sent_time("")
    if field.type == "enum":
        return {"type": "string", "enum": list(field.values or [])}
    return {"description": "Any JSON value."}
