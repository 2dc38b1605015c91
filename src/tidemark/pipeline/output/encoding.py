"""Rows and keys as canonical JSON: the same text for the same row, whoever writes it.

A row is an object of all visible columns, members sorted by name, absent values `null`. A key is an
array of the key's values in the declared order. In both a `decimal` and a `bigint` are strings, a
`timestamp` has six digits and `Z`, `int` and `boolean` are as in JSON, and `json` stands as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from tidemark.decimals import plain_decimal
from tidemark.pipeline.output.schema import Column, Value, ViewSchema
from tidemark.timestamps import format_timestamp

# An index entry of PostgreSQL holds 2,704 bytes, and the values of a key may be longer. A key whose
# text is longer than this is cut and ends in a digest of the whole.
MAX_ROW_KEY_BYTES: Final = 1024
_DIGEST_MARK: Final = "#"
KEPT_KEY_BYTES: Final = MAX_ROW_KEY_BYTES - len(_DIGEST_MARK) - 2 * hashlib.sha256().digest_size

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def row_keys(schema: ViewSchema, columns: Mapping[str, Sequence[Value]]) -> list[str]:
    """The key of each row, from the key's columns."""
    return [
        bounded_key(_encode(values))
        for values in zip(
            *(json_values(column, columns[column.name]) for column in schema.key_columns),
            strict=True,
        )
    ]


def row_key(schema: ViewSchema, values: Sequence[Value]) -> str:
    """The key of one row, from the key's values in the declared order."""
    return row_keys(schema, {name: [v] for name, v in zip(schema.key, values, strict=True)})[0]


def key_prefix(columns: Iterable[Column], values: Iterable[Value]) -> str:
    """How the text of every key begins whose first values are these, up to the next value."""
    parts = [
        _encode(next(iter(json_values(column, [value])))).decode()
        for column, value in zip(columns, values, strict=True)
    ]
    return "[" + ",".join(parts)


def encode_rows(schema: ViewSchema, columns: Mapping[str, Sequence[Value]]) -> list[str]:
    """The text of each row, from its visible columns; other columns are left out."""
    visible = sorted(schema.visible, key=lambda column: column.name)
    names = [column.name for column in visible]
    return [
        _encode(dict(zip(names, values, strict=True))).decode()
        for values in zip(
            *(json_values(column, columns[column.name]) for column in visible), strict=True
        )
    ]


def encode_row(schema: ViewSchema, values: Mapping[str, Value]) -> str:
    """The text of one row."""
    return encode_rows(schema, {name: [value] for name, value in values.items()})[0]


def decode_row(schema: ViewSchema, text: str) -> tuple[Value, ...]:
    """The values of the visible columns, in the declared order."""
    members = _decode_members(text)
    return tuple(
        None if (raw := bytes(members[column.name])) == b"null" else _READ[column.type](raw)
        for column in schema.visible
    )


def encode_names(names: Iterable[str]) -> str:
    """The names of the columns that a change has touched."""
    return _encode(tuple(names)).decode()


def json_values(column: Column, values: Iterable[Value]) -> Iterable[object]:
    """The values of one column as they stand in JSON."""
    write = _WRITE.get(column.type)
    if write is None:
        return values
    return (None if value is None else write(value) for value in values)


def bounded_key(key: bytes) -> str:
    """The text of a key as it is kept: one that is too long is cut and told by its digest."""
    if len(key) <= MAX_ROW_KEY_BYTES:
        return key.decode()
    kept = key[:KEPT_KEY_BYTES].decode(errors="ignore")
    return f"{kept}{_DIGEST_MARK}{hashlib.sha256(key).hexdigest()}"


def _json_text(raw: bytes) -> str:
    return raw.decode()


def _timestamp(raw: bytes) -> int:
    # Not `parse_timestamp`, which takes only the years that an event may have.
    return (datetime.fromisoformat(msgspec.json.decode(raw, type=str)) - _EPOCH) // _MICROSECOND


# The other types stand in JSON as they are in Python.
_WRITE: Final[dict[str, Callable[..., object]]] = {
    "bigint": str,
    "decimal": plain_decimal,
    "timestamp": format_timestamp,
    "json": lambda text: msgspec.Raw(text.encode()),
}
_READ: Final[dict[str, Callable[[bytes], Value]]] = {
    "string": lambda raw: msgspec.json.decode(raw, type=str),
    "enum": lambda raw: msgspec.json.decode(raw, type=str),
    "int": int,
    "boolean": lambda raw: raw == b"true",
    "bigint": lambda raw: int(msgspec.json.decode(raw, type=str)),
    "decimal": lambda raw: Decimal(msgspec.json.decode(raw, type=str)),
    "timestamp": _timestamp,
    "json": _json_text,
}
