"""What a change of a row means to one who sees only some rows and some columns of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from tidemark.live.engine.changes import ChangedRow

Operation: TypeAlias = Literal["INSERT", "UPDATE", "DELETE"]
INSERT: Final = "INSERT"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"
PROGRESS: Final = "PROGRESS"


class Projection(Protocol):
    """What a subscriber selects of a row, and how it is written."""

    @property
    def key(self) -> str:
        """Equal projections have equal keys."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose change is worth an UPDATE."""

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        """The JSON of one result. `members` holds each column's JSON: of a DELETE those of the key
        alone, of PROGRESS there are none.
        """


class Item:
    """One transition as a subscriber sees it. All to whom a change is the same share it.

    `fields` names the columns that are new to the subscriber. An item may stand for several changes
    of its row that were merged: then `received_at` is the newest, and `since` the oldest of them.
    """

    __slots__ = ("_key", "_payload", "_projection", "fields", "operation", "row", "since")

    def __init__(
        self,
        operation: Operation,
        row: ChangedRow,
        fields: tuple[str, ...],
        projection: Projection,
        key: tuple[str, ...],
        since: int | None = None,
    ) -> None:
        self.operation: Operation = operation
        self.row = row
        self.fields = fields
        self.since = row.received_at if since is None else since
        self._projection = projection
        self._key = key
        self._payload: bytes | None = None

    @property
    def row_key(self) -> str:
        return self.row.row_key

    @property
    def received_at(self) -> int:
        return self.row.received_at

    @property
    def size(self) -> int:
        """About how many bytes it keeps in memory."""
        return self.row.size

    @property
    def payload(self) -> bytes:
        """The JSON of the result: made when first asked for, then kept."""
        if self._payload is None:
            row = self.row
            members = row.new_members
            if self.operation == DELETE:
                # The row may still be there, and just no longer be theirs to see.
                old = row.old_members
                members = {name: old[name] for name in self._key}
            self._payload = self._projection.render(
                self.operation, members, self.fields, row.received_at
            )
        return self._payload

    def merged_with(self, newer: Item, *, may_be_known: bool = False) -> Item | None:
        """One item that does what this one and then the newer one of the same row do.

        None if both together do nothing. If this one `may_be_known`, to a subscriber that resumes
        and is told it once more, the row may be there already and must go.
        """
        match self.operation, newer.operation:
            case "INSERT", "UPDATE":
                return self._now(INSERT, newer, self.fields)
            case "INSERT", "DELETE":
                return self._now(DELETE, newer, newer.fields) if may_be_known else None
            case "UPDATE", "UPDATE":
                return self._now(UPDATE, newer, tuple(sorted({*self.fields, *newer.fields})))
            case "UPDATE", "DELETE":
                return self._now(DELETE, newer, newer.fields)
            case "DELETE", "INSERT":
                # It is new as a whole, in the place of one that the subscriber still has.
                return self._now(UPDATE, newer, newer.fields)
        raise ValueError(
            f"{newer.operation} cannot follow {self.operation} of the row {self.row_key}"
        )

    def _now(self, operation: Operation, newer: Item, fields: tuple[str, ...]) -> Item:
        return Item(operation, newer.row, fields, newer._projection, newer._key, self.since)


class Selected:
    """The transitions of those who see the same columns: the key and those of a projection.

    What a change is to one filter it is to others too: asked for again, the same item is given, so
    that it is rendered once for all of them.
    """

    # Few combinations of columns change together, but nothing says so.
    _MOST_REMEMBERED: Final = 256

    def __init__(self, projection: Projection, key: Collection[str]) -> None:
        self.columns = projection.columns
        self._projection = projection
        self._key = tuple(sorted(key))
        self._all = tuple(sorted({*key, *projection.columns}))
        self._updated: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        self._entered: Item | None = None
        self._stayed: Item | None = None
        self._left: Item | None = None

    def entered(self, row: ChangedRow) -> Item:
        item = self._entered
        if item is None or item.row is not row:
            item = self._entered = Item(INSERT, row, self._all, self._projection, self._key)
        return item

    def stayed(self, row: ChangedRow) -> Item | None:
        """None if nothing that is selected has changed."""
        item = self._stayed
        if item is not None and item.row is row:
            return item
        try:
            fields = self._updated[row.changed]
        except KeyError:
            fields = self._remember(row.changed)
        if fields is None:
            return None
        item = self._stayed = Item(UPDATE, row, fields, self._projection, self._key)
        return item

    def left(self, row: ChangedRow) -> Item:
        item = self._left
        if item is None or item.row is not row:
            item = self._left = Item(DELETE, row, self._key, self._projection, self._key)
        return item

    def _remember(self, changed: tuple[str, ...]) -> tuple[str, ...] | None:
        if len(self._updated) >= self._MOST_REMEMBERED:
            self._updated.clear()
        fields = self._updated[changed] = updated_fields(changed, self.columns, self._key)
        return fields


def updated_fields(
    changed: Iterable[str], selected: Collection[str], key: Iterable[str]
) -> tuple[str, ...] | None:
    """What an UPDATE names: the key and what changed of the selected columns; None if none did."""
    news = {name for name in changed if name in selected}
    return tuple(sorted({*news, *key})) if news else None
