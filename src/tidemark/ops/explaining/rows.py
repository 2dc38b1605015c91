"""A row before a commit, and what the commit made of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.timestamps import parse_timestamp
from tidemark.views.port import ChangeRow

Members = Mapping[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Neighbours(msgspec.Struct, frozen=True):
    """What else a commit has for a row: events, operators' adjustments, and corrections that may
    be for it. Without `complete` there may be more of them."""

    events: int = 0
    adjustments: int = 0
    corrections: int = 0
    complete: bool = True

    @property
    def count(self) -> int:
        return self.events + self.adjustments + self.corrections


class RowHistory(msgspec.Struct, frozen=True):
    """What is known of one row at one commit.

    `before` is None where there was no row. With `unknown`, which says why, neither it nor the
    `change` is known. `shown_sequence` is the event that a table's row comes from now.
    """

    row_key: str
    before: Members | None = None
    change: ChangeRow | None = None
    unknown: str = ""
    neighbours: Neighbours = Neighbours()
    shown_sequence: int | None = None

    @property
    def watermark(self) -> int | None:
        """Of a meter's row before the commit."""
        raw = _NULL if self.before is None else self.before.get("watermark_ts", _NULL)
        text = msgspec.json.decode(raw, type=str | None)
        return None if text is None else parse_timestamp(text)

    @property
    def counted_events(self) -> int:
        """By how many events of a meter's row are more counted after the commit than before."""
        if self.change is None:
            return 0
        return _count(self.change.row) - _count(self.change.old_row)


class Moved(msgspec.Struct, frozen=True):
    """What a commit did to a row: the key's columns, and each other column from what to what."""

    operation: str
    row: dict[str, msgspec.Raw]
    changed: dict[str, tuple[msgspec.Raw, msgspec.Raw]]


def row_members(text: str | None) -> Members | None:
    """A row from the text in which the log of changes has it."""
    return None if text is None else _decode_members(text)


def moved(change: ChangeRow, key: tuple[str, ...]) -> Moved:
    """A change, column by column; a column that is null before and after is left out."""
    old, new = row_members(change.old_row) or {}, row_members(change.row) or {}
    pairs = {
        name: (old.get(name, _NULL), new.get(name, _NULL))
        for name in change.changed
        if name not in key
    }
    return Moved(
        change.op,
        {name: (new or old).get(name, _NULL) for name in key},
        {name: pair for name, pair in pairs.items() if bytes(pair[0]) != bytes(pair[1])},
    )


def _count(text: str | None) -> int:
    members = row_members(text)
    if members is None:
        return 0
    return int(msgspec.json.decode(members["agg_count"], type=str))
