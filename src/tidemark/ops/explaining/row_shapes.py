"""The parts of which explanations are made: times, and rows that were moved."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidemark.ops.explaining.rows import RowHistory, moved
from tidemark.timestamps import format_timestamp


class ColumnShown(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a column was and is."""

    before: msgspec.Raw = msgspec.field(name="from")
    after: msgspec.Raw = msgspec.field(name="to")


class MovedShown(msgspec.Struct, rename="camel", omit_defaults=True):
    """The change of a row at the event's commit, which is that of the whole commit.

    `shared_with` counts what else the commit has that may be in it.
    """

    operation: str
    row: dict[str, msgspec.Raw]
    changed: dict[str, ColumnShown]
    shared_with: int
    more_may_share: bool = False


def moved_shown(histories: Iterable[RowHistory], key: tuple[str, ...]) -> list[MovedShown]:
    shown = {}
    for history in histories:
        if history.change is None:
            continue
        what = moved(history.change, key)
        shown[history.row_key] = MovedShown(
            what.operation,
            what.row,
            {name: ColumnShown(*pair) for name, pair in what.changed.items()},
            history.neighbours.count,
            not history.neighbours.complete,
        )
    return list(shown.values())


def shown_time(us: int | None) -> str | None:
    return None if us is None else format_timestamp(us)
