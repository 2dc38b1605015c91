"""A changed row, taken apart only as far as somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Self, TypeAlias

import msgspec

from tidemark.pipeline.output.schema import Value, ViewSchema
from tidemark.views.port import ChangeRow

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Row: TypeAlias = Sequence[Value]
"""The visible columns in their declared order; here a column that no filter names may be None."""


class ChangedRow:
    """One net change of the log: the row's JSON before and after it, and which columns differ.

    `changed` means something only where there is a row before and after.
    """

    __slots__ = ("_new_members", "_old_members", "changed", "new", "old", "received_at", "row_key")

    def __init__(
        self,
        received_at: int,
        row_key: str,
        old: str | None,
        new: str | None,
        changed: tuple[str, ...],
    ) -> None:
        self.received_at = received_at
        self.row_key = row_key
        self.old = old
        self.new = new
        self.changed = changed
        self._old_members: dict[str, bytes] | None = None
        self._new_members: dict[str, bytes] | None = None

    @classmethod
    def of(cls, change: ChangeRow) -> Self:
        return cls(change.received_at, change.row_key, change.old_row, change.row, change.changed)

    @property
    def old_members(self) -> Mapping[str, bytes]:
        """Each column's JSON before the change; empty if there was no row."""
        if self._old_members is None:
            self._old_members = _members(self.old)
        return self._old_members

    @property
    def new_members(self) -> Mapping[str, bytes]:
        """Each column's JSON after the change; empty if there is no row any more."""
        if self._new_members is None:
            self._new_members = _members(self.new)
        return self._new_members

    @property
    def size(self) -> int:
        """About how many bytes it keeps in memory."""
        return _OVERHEAD_BYTES + len(self.old or "") + 2 * len(self.new or "")


# The objects of a change themselves, without the texts.
_OVERHEAD_BYTES: Final = 300


def _members(text: str | None) -> dict[str, bytes]:
    if text is None:
        return {}
    return {name: bytes(raw) for name, raw in _decode_members(text).items()}


class RowReader:
    """Reads some columns of a row's JSON as `encoding.decode_row` does, and leaves the others None.

    Most filters name few columns: passing over the others saves most of the time.
    """

    def __init__(self, schema: ViewSchema, columns: Iterable[str]) -> None:
        wanted = frozenset(columns)
        fields: list[tuple[str, Any, None]] = []
        # A column's name may be no Python name, and no column's name begins with a digit: what is
        # to be passed over looks for a member that is never there.
        renamed: dict[str, str] = {}
        convert: list[tuple[int, Callable[[Any], Value]]] = []
        for position, column in enumerate(schema.visible):
            field = f"c{position}"
            if column.name not in wanted:
                renamed[field] = str(position)
                fields.append((field, Any, None))
                continue
            renamed[field] = column.name
            fields.append((field, _READ_AS[column.type], None))
            if column.type in _CONVERT:
                convert.append((position, _CONVERT[column.type]))
        struct = msgspec.defstruct("Row", fields, rename=renamed, frozen=True, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode
        self._convert = tuple(convert)

    def read(self, text: str) -> Row:
        values: tuple[Any, ...] = msgspec.structs.astuple(self._decode(text))
        if not self._convert:
            return values
        row = list(values)
        for position, convert in self._convert:
            if row[position] is not None:
                row[position] = convert(row[position])
        return row


def _timestamp(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _json_text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    return None if text == b"null" else text.decode()


_READ_AS: Final[dict[str, Any]] = {
    "string": str | None,
    "enum": str | None,
    "int": int | None,
    "boolean": bool | None,
    "bigint": str | None,
    "decimal": Decimal | None,
    "timestamp": str | None,
    "json": msgspec.Raw,
}
_CONVERT: Final[dict[str, Callable[[Any], Value]]] = {
    "bigint": int,
    "timestamp": _timestamp,
    "json": _json_text,
}
