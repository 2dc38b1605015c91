"""Tables end to end: a ledger, a streaming query over it, and the views it leaves behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.folding.cut_source import cut_stream
from tests.folding.runs import EVERYTHING, run_pipeline
from tests.folding.streams import fill_stream, stream_settings, view_settings, written_config
from tests.folding.tables import result_of
from tests.generated.streams import (
    OTHER_STREAM,
    STREAM,
    TABLES,
    StreamShape,
    random_stream,
)
from tests.reference.tables import StreamCommit, Table, TableResult
from tests.reference.tables import fold_table as reference_table
from tidemark.ledger.opening import sqlite_path
from tidemark.pipeline.source.offsets import Offset
from tidemark.views.port import ErrorFilter, RowFilter, ViewsStore
from tidemark.views.sqlite import SqliteViews

BY_NAME = {table.name: table for table in TABLES}
SHAPE = StreamShape(max_commits=21, max_entries=7)


def cut_at_random(commits: Sequence[StreamCommit], seed: int) -> list[Offset]:
    """The ends of some batches."""
    last = 0
    offsets = []
    for received_at, events in commits:
        last += len(events)
        offsets.append(Offset(received_at, last))
    places = sorted(random.Random(seed).sample(range(len(offsets)), 3))
    return [offsets[place] for place in places]


async def result_in(views: ViewsStore, table: Table) -> TableResult:
    [schema] = [schema for schema in await views.declared() if schema.name == table.name]
    page = await views.read_rows(table.name, RowFilter(), limit=EVERYTHING)
    rows = await views.read_state(table.name, [row.row_key for row in page.rows])
    tombstones = []
    if table.delete_when is not None:
        deleted = f"{table.name}__deleted"
        page = await views.read_rows(deleted, RowFilter(), limit=EVERYTHING)
        tombstones = await views.read_state(deleted, [row.row_key for row in page.rows])
    changes = await views.read_changes(table.name, 0, limit=EVERYTHING)
    assert changes.complete
    errors = await views.read_errors(ErrorFilter(), limit=EVERYTHING)
    return result_of(
        table,
        schema,
        rows,
        tombstones,
        [
            # Of a new row and of one that is gone the store shows all columns as changed.
            (
                c.received_at,
                c.row_key,
                c.op,
                c.old_row,
                c.row,
                c.changed if c.op == "update" else None,
            )
            for c in changes.changes
        ],
        [(e.ingress_sequence, e.code) for e in errors.errors if e.stage == f"table {table.name}"],
    )


# Few keys, so that much happens to each. In this ledger every rule matters: the last amend, the
# first void, order, times, tombstones and errors. Batch independence has many keys.
@pytest.mark.parametrize(("seed", "names"), [(41, ["by_place"])])
async def test_a_ledger_that_is_cut_anywhere_gives_the_tables_of_the_reference(
    seed: int, names: Sequence[str], tmp_path: Path
) -> None:
    commits = random_stream(seed, SHAPE)
    tables = [BY_NAME[name] for name in names]
    expected = {table.name: reference_table(commits, table) for table in tables}
    config = written_config(
        tmp_path,
        {
            "streams": {
                STREAM: stream_settings(TABLES[0]),
                OTHER_STREAM: stream_settings(TABLES[0]),
            },
            "views": {table.name: view_settings(table) for table in tables},
        },
    )
    path = sqlite_path(config)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    home = LedgerHome(f"sqlite:///{path}")
    clock = ManualClock()
    ledger = await home.open(clock)
    await fill_stream(ledger, clock, commits)
    place = tmp_path / "views.db"
    views = await SqliteViews.open(place)
    cuts = cut_at_random(commits, seed)
    await run_pipeline(config, ledger, views, place, read_stream=cut_stream(cuts))
    for table in tables:
        assert await result_in(views, table) == expected[table.name]
    await views.close()
    await home.close()
