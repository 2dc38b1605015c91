"""What the models object to, in our words: what was expected, what was found, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError

from tidemark.config.faults import FAULT
from tidemark.config.problems import Location, describe_found, render_path
from tidemark.config.raw_settings import Finding
from tidemark.config.shape import Shape, every_setting, settings_of, shape_at
from tidemark.config.suggestions import did_you_mean, fold, nearest, or_list

_NUMBER_DIGITS: Final = 18

# Other names that people know a key or a choice by, without case and separators.
SYNONYMS: Final = {
    "enum": "values",
    "choices": "values",
    "options": "values",
    "length": "max_length",
    "maxlen": "max_length",
    "doc": "description",
    "comment": "description",
    "bind": "host",
    "address": "host",
    "database": "url",
    "dsn": "url",
    "hash": "sha256",
    "key": "sha256",
    "primarykey": "identity",
    "schema": "fields",
    "columns": "fields",
    "properties": "fields",
    "datadir": "state_dir",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "uuid": "string",
    "integer": "int",
    "int32": "int",
    "smallint": "int",
    "int64": "bigint",
    "long": "bigint",
    "bool": "boolean",
    "float": "decimal",
    "double": "decimal",
    "real": "decimal",
    "number": "decimal",
    "numeric": "decimal",
    "money": "decimal",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "date": "timestamp",
    "time": "timestamp",
    "object": "json",
    "jsonb": "json",
    "map": "json",
    "array": "json",
    "list": "json",
    "write": "ingest",
    "send": "ingest",
    "event": "events",
    "metering": "usage",
    "total": "sum",
    "average": "avg",
    "mean": "avg",
    "latest": "last",
    "distinct": "unique",
    "countdistinct": "unique",
    "hourly": "hour",
    "daily": "day",
    "weekly": "week",
    "monthly": "month",
    "tz": "timezone",
    "filter": "where",
    "expression": "value",
    "dimensions": "group_by",
    "computed": "calculated",
    "config": "options",
    "conf": "options",
}


def translate(error: ValidationError, raw: dict[str, Any]) -> Iterator[Finding]:
    """Every objection as a finding. The raw settings are what the models were given."""
    for details in error.errors(include_url=False, include_input=False):
        location: Location = details["loc"]
        shape = shape_at(location)
        if shape is None:
            yield location, "there is no such setting", _unknown_key(location)
        elif details["type"] == FAULT:
            found, hint = details["ctx"]["found"], details["ctx"]["hint"]
            yield location, f"expected {shape.expected}, found {found}", hint
        elif details["type"] == "missing":
            yield location, f"expected {shape.expected}, found nothing", ""
        else:
            yield location, *_mismatch(location, shape, _value_at(raw, location))


def _unknown_key(location: Location) -> str:
    *around, key = location
    section = shape_at(tuple(around))
    assert section is not None
    assert section.model is not None
    assert isinstance(key, str)
    keys = settings_of(section.model)
    near = nearest(key, keys, SYNONYMS)
    if near:
        return f"Did you mean {or_list(near)}?"
    elsewhere = [place for place, _ in every_setting() if fold(str(place[-1])) == fold(key)]
    if elsewhere:
        return f"Did you mean {or_list([render_path(place) for place in elsewhere])}?"
    return did_you_mean(key, keys)


def _mismatch(location: Location, shape: Shape, value: Any) -> tuple[str, str]:
    # A secret may stand one level too high, so where a group is expected no content is shown.
    group = shape.kind in ("section", "mapping", "list")
    found = describe_found(value, secret=shape.secret or group)
    return f"expected {shape.expected}, found {found}", _hint(location, shape, value)


def _hint(location: Location, shape: Shape, value: Any) -> str:
    if value is None:
        return "Leave it out to have the default." if _has_default(location) else ""
    if shape.kind == "choice" and isinstance(value, str):
        near = nearest(value, shape.choices, SYNONYMS)
        return f"Did you mean {or_list(near)}?" if near else ""
    if shape.kind in ("text", "choice") and isinstance(value, bool | int | float):
        return "Put it in quotes to make it text."
    if shape.kind in ("number", "flag") and isinstance(value, str):
        return "Write it without quotes." if _looks_like(shape, value) else ""
    if shape.kind == "list" and not isinstance(value, list | dict):
        return "Put it in brackets: `[…]`."
    return ""


def _has_default(location: Location) -> bool:
    section = shape_at(location[:-1])
    if section is None or section.model is None:
        return False
    return not settings_of(section.model)[str(location[-1])].required


def _looks_like(shape: Shape, text: str) -> bool:
    plain = text.strip()
    if shape.kind == "flag":
        return plain.lower() in ("true", "false")
    return plain.isdecimal() and len(plain) <= _NUMBER_DIGITS


def _value_at(raw: Any, location: Location) -> Any:
    value = raw
    for part in location:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        # Else it is a field's shorthand, where the text itself is the type.
    return value
