"""The last row of each key of a table, event by event: quickest where there are few."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import TableDefinition
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.parts import Change, Part
from tidemark.pipeline.fold.table_rows import TableRows, Version
from tidemark.pipeline.fold.tallies import Order
from tidemark.pipeline.output.schema import ViewSchema


def fold_table_plain(
    table: TableDefinition,
    schema: ViewSchema,
    place: int,
    given: pa.Table,
    read: ReadRows,
    *,
    logged: bool,
) -> list[Part]:
    """What events come to on top of what there is; `place` is the table's among the tables."""
    rows = TableRows(table, schema, read)
    ordered = given.sort_by("ingress_sequence")
    columns = [ordered.column(n).to_pylist() for n in ("received_at", "ingress_sequence", "ts")]
    deletes = ordered.column("deleted").to_pylist()
    contents = ordered.column(facts.table_column(place)).to_pylist()
    events = [
        (received_at, rows.key(row), rows.version(Order(ts, sequence), row, deletes=bool(gone)))
        for received_at, sequence, ts, gone, row in zip(*columns, deletes, contents, strict=True)
    ]
    before = rows.stored(sorted({key for _, key, _ in events}))
    shown = dict(before)
    changes: list[Change] = []
    changed_at: dict[str, int] = {}
    for received_at, commit in groupby(events, key=lambda event: event[0]):
        winners: dict[str, Version] = {}
        for _, key, version in commit:
            best = winners.get(key, shown.get(key))
            if best is None or version.order > best.order:
                winners[key] = version
        for key, version in winners.items():
            change = rows.change(received_at, key, shown.get(key), version)
            shown[key] = version
            if change is not None:
                changed_at[key] = received_at
                changes.append(change)
    after = {key: version for key, version in shown.items() if version is not before.get(key)}
    return rows.parts(before, after, changed_at, changes if logged else [])
