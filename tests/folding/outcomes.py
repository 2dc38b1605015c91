"""Everything that a pipeline has made of a ledger, in shapes to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.folding.runs import EVERYTHING, meter_results
from tests.folding.tables import result_of
from tests.reference.definitions import Meter
from tests.reference.eventtime import EventTime
from tests.reference.fingerprint import fingerprint_lines
from tests.reference.history import Commit
from tests.reference.meters import fold_meters
from tests.reference.tables import StreamCommit, Table, TableChange, fold_table
from tests.reference.window_definitions import Window
from tests.reference.window_rows import ViewResult, WindowResult
from tests.reference.windows import fold_windows
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.port import ViewRow
from tidemark.views.port import ErrorFilter, RowFilter, ViewsStore

OUTPUTS = ("in_order", "late")


class Outcome(NamedTuple):
    """Two of the same ledger are equal, however different the work was.

    `ordered` hashes what was written in the order of time.
    """

    frontier: tuple[int, int, bytes]
    views: str
    errors: str
    ordered: tuple[str, ...]


async def outcome_of(views: ViewsStore, ordered: Path | None = None) -> Outcome:
    """What is in the views, and in the directory of an ordered stream."""
    frontier = await views.frontier()
    assert frontier is not None
    errors = (await views.read_errors(ErrorFilter(), limit=EVERYTHING)).errors
    lines = () if ordered is None else tuple(_hash(segments(ordered / o)) for o in OUTPUTS)
    return Outcome(
        (frontier.ingress_sequence, frontier.received_at, frontier.chain),
        await views.fingerprint(),
        _hash(repr(sorted(map(repr, errors))).encode()),
        lines,
    )


def segments(directory: Path) -> bytes:
    """One after the other, in the order of their names."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.jsonl")))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def assert_as_the_meter_reference(
    views: ViewsStore, commits: Sequence[Commit], meters: Sequence[Meter]
) -> None:
    found = await meter_results(views, [meter.name for meter in meters])
    expected = fold_meters(commits, meters)
    assert list(fingerprint_lines(found)) == list(fingerprint_lines(expected))


async def assert_as_the_table_reference(
    views: ViewsStore, commits: Sequence[StreamCommit], tables: Sequence[Table]
) -> None:
    schemas = {schema.name: schema for schema in await views.declared()}
    errors = (await views.read_errors(ErrorFilter(), limit=EVERYTHING)).errors
    for table in tables:
        expected = fold_table(commits, table)
        changes = await views.read_changes(table.name, 0, limit=EVERYTHING)
        assert changes.complete
        found = result_of(
            table,
            schemas[table.name],
            await _all_of(views, table.name),
            await _all_of(views, f"{table.name}__deleted") if table.delete_when else (),
            [(c.received_at, c.row_key, c.op, c.old_row, c.row, None) for c in changes.changes],
            [(e.ingress_sequence, e.code) for e in errors if e.stage == f"table {table.name}"],
        )
        assert found.rows == expected.rows
        if table.delete_when:
            assert found.tombstones == expected.tombstones
        assert found.errors == expected.errors
        assert found.changes == [change._replace(changed=None) for change in expected.changes]


async def assert_as_the_window_reference(
    views: ViewsStore,
    commits: Sequence[StreamCommit],
    windows: Sequence[Window],
    time: EventTime,
) -> None:
    errors = (await views.read_errors(ErrorFilter(), limit=EVERYTHING)).errors
    for window in windows:
        expected = _folded(commits, window, time)
        await _assert_view(views, window.name, expected)
        if window.late == "side_output":
            await _assert_view(views, f"{window.name}_late", expected.late)
        found = [(e.ingress_sequence, e.code) for e in errors if e.stage == f"window {window.name}"]
        assert sorted(found) == sorted(expected.errors)


# Several runs are held against the same, which takes seconds. The commits are kept, so that no
# others can be taken for them.
_known: dict[tuple[int, Window, EventTime], tuple[Sequence[StreamCommit], WindowResult]] = {}


def _folded(commits: Sequence[StreamCommit], window: Window, time: EventTime) -> WindowResult:
    name = (id(commits), window, time)
    if name not in _known:
        _known[name] = (commits, fold_windows(commits, window, time))
    return _known[name][1]


async def _assert_view(views: ViewsStore, name: str, expected: ViewResult) -> None:
    [schema] = [schema for schema in await views.declared() if schema.name == name]
    names = [column.name for column in schema.columns]
    rows = {
        row.row_key: (
            encode_row(schema, dict(zip(names, row.values, strict=True))),
            row.received_at,
        )
        for row in await _all_of(views, name)
    }
    assert rows == {key: (row.text, row.changed_at) for key, row in expected.rows.items()}
    changes = await views.read_changes(name, 0, limit=EVERYTHING)
    assert changes.complete
    found = [
        TableChange(
            c.received_at,
            c.row_key,
            c.op,
            c.old_row,
            c.row,
            c.changed if c.op == "update" else None,
        )
        for c in changes.changes
    ]
    assert found == expected.changes


async def _all_of(views: ViewsStore, view: str) -> list[ViewRow]:
    """With the columns that readers do not see."""
    page = await views.read_rows(view, RowFilter(), limit=EVERYTHING)
    assert page.next_cursor is None
    return await views.read_state(view, [row.row_key for row in page.rows])
