"""The one id of an event: the same however often and wherever it is computed.

`sha256("<trigger>:<primary key>:<source timestamp>")` in hex, the first 32 characters. The name of
a trigger has no colon and a timestamp is digits, so no two events share the hashed text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from tidemark.pipeline.output.schema import ViewSchema

ID_CHARACTERS: Final = 32
# A key of one column that is null must not be taken for one that is the text "null". No text that
# Tidemark takes in has a NUL.
_NO_VALUE: Final = "\0"
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def event_id(
    trigger: str, primary_key: Sequence[object], source_timestamp: int, prefix: str = ""
) -> str:
    """The id of what happened to the row with this key at this time.

    `primary_key` has the key's values as they stand in JSON, in the declared order.
    """
    text = f"{trigger}:{key_text(primary_key)}:{source_timestamp}"
    return prefix + hashlib.sha256(text.encode()).hexdigest()[:ID_CHARACTERS]


def key_text(primary_key: Sequence[object]) -> str:
    """A single string as it is, anything else single as in JSON, several as a compact array."""
    if len(primary_key) > 1:
        return _encode(primary_key).decode()
    [value] = primary_key
    if value is None:
        return _NO_VALUE
    return value if isinstance(value, str) else _encode(value).decode()


def primary_key(schema: ViewSchema, row: str) -> list[object]:
    """The key's values in the text of a row; the value of a `json` column stands as it is."""
    members = _members(row)
    return [
        members[column.name]
        if column.type == "json" and bytes(members[column.name]) != b"null"
        else msgspec.json.decode(members[column.name])
        for column in schema.key_columns
    ]
