"""A swap: views that were built beside the live ones take their place, in one transaction.

A view with another definition gets a table of its own, which takes the old one's name at the end;
the old one is kept under another. Of all others only what differs is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from tidemark.pipeline.definition_hash import INTERNAL_MARK
from tidemark.pipeline.output.batch import (
    Adjustment,
    Changes,
    ErrorRow,
    Frontier,
    RowWrites,
    ViewBatch,
    is_next,
)
from tidemark.pipeline.output.schema import ViewSchema, quoted
from tidemark.views.declaring import FIRST_VERSION, view_row
from tidemark.views.scanning import Query, Row
from tidemark.views.tables import Dialect, create_table

# Where a view stands before a swap: its version, and where its log begins.
Standing: TypeAlias = tuple[int, int]
STANDINGS: Final = "SELECT name, version, log_floor FROM views"


class Rebuilt(msgspec.Struct, frozen=True):
    """A view that becomes another. `keeps_log` if what readers see of it has the same columns."""

    schema: ViewSchema
    keeps_log: bool
    keeps_old: bool

    @property
    def fresh(self) -> ViewSchema:
        """The view under the name that it has until the end of the swap.

        The name of a view may be as long as PostgreSQL allows, so this one is not made longer.
        """
        digest = hashlib.sha256(self.schema.name.encode()).hexdigest()[:24]
        return msgspec.structs.replace(self.schema, name=f"next{INTERNAL_MARK}{digest}")


class Swap(msgspec.Struct, frozen=True):
    """From where to where it takes the views, and what then has another definition."""

    name: str
    start: Frontier
    end: Frontier
    rebuilt: Sequence[Rebuilt]
    state: Mapping[str, bytes]

    def is_due(self, frontier: Frontier | None) -> bool:
        """Whether to apply it to views that stand at `frontier`; raises as `is_next` does."""
        return frontier != self.end and is_next(frontier, ViewBatch(self.start, self.end))


class SwapPart(msgspec.Struct, frozen=True):
    """Some of what a swap writes. `fresh` are rows of a view that is rebuilt, by its name."""

    fresh: RowWrites | None = None
    rows: RowWrites | None = None
    changes: Changes | None = None
    adjustments: Sequence[Adjustment] = ()
    errors: Sequence[ErrorRow] = ()
    # Adjustments by sequence, view and part; errors by sequence and stage.
    gone_adjustments: Sequence[tuple[int, str, int]] = ()
    gone_errors: Sequence[tuple[int, str]] = ()


class OldView(msgspec.Struct, frozen=True):
    """What a view was before a swap: its rows are in `table`."""

    table: str
    view: str
    version: int
    swap: str
    swapped_at: int
    definition_hash: str


OLD_VIEWS: Final[Query] = (
    "SELECT name, view, version, swap, swapped_at, definition_hash FROM old_views"
    " ORDER BY swapped_at, view",
    (),
)
DELETE_ADJUSTMENT: Final = (
    "DELETE FROM adjustments WHERE ingress_sequence = ? AND view = ? AND part = ?"
)
DELETE_ERROR: Final = "DELETE FROM pipeline_errors WHERE ingress_sequence = ? AND stage = ?"


def old_view(row: Row) -> OldView:
    """From a row of `OLD_VIEWS`."""
    name, view, version, swap, swapped_at, definition_hash = row
    return OldView(f"view_{name}", view, version, swap, swapped_at, definition_hash)


def beginning(swap: Swap, dialect: Dialect) -> list[Query]:
    """The tables of what is rebuilt."""
    return [(create_table(rebuilt.fresh, dialect), ()) for rebuilt in swap.rebuilt]


def ending(swap: Swap, standings: Mapping[str, Standing]) -> list[Query]:
    """What is rebuilt takes its name."""
    queries: list[Query] = []
    for rebuilt in swap.rebuilt:
        queries += _taking_over(swap, rebuilt, standings.get(rebuilt.schema.name))
    queries.append(("DELETE FROM pipeline_state", ()))
    queries += [("INSERT INTO pipeline_state VALUES (?, ?)", entry) for entry in swap.state.items()]
    return queries


def dropping(old: Sequence[OldView]) -> list[Query]:
    """Forgets what views were before."""
    queries: list[Query] = []
    for view in old:
        queries.append((f"DROP TABLE {quoted(view.table)}", ()))
        queries.append(
            ("DELETE FROM old_views WHERE view = ? AND version = ?", (view.view, view.version))
        )
    return queries


def _taking_over(swap: Swap, rebuilt: Rebuilt, standing: Standing | None) -> list[Query]:
    schema, at = rebuilt.schema, swap.end.received_at
    version, log_floor = FIRST_VERSION, at
    queries: list[Query] = []
    if standing is not None:
        before, floor = standing
        version = before + 1
        log_floor = floor if rebuilt.keeps_log else at
        if rebuilt.keeps_old:
            old = f"{schema.name}{INTERNAL_MARK}v{before}"
            queries.append((f"ALTER TABLE {schema.table} RENAME TO {quoted(f'view_{old}')}", ()))
            queries.append(
                (
                    "INSERT INTO old_views SELECT ?, name, version, ?, ?, definition_hash"
                    " FROM views WHERE name = ?",
                    (old, swap.name, at, schema.name),
                )
            )
        else:
            queries.append((f"DROP TABLE {schema.table}", ()))
        queries.append(("DELETE FROM views WHERE name = ?", (schema.name,)))
    if not rebuilt.keeps_log:
        queries.append(("DELETE FROM view_changes WHERE view = ?", (schema.name,)))
    queries.append(
        (f"ALTER TABLE {rebuilt.fresh.table} RENAME TO {quoted(f'view_{schema.name}')}", ())
    )
    queries.append(
        (
            "INSERT INTO views VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            view_row(schema, log_floor, version=version, swapped_at=at),
        )
    )
    return queries
