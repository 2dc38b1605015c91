"""The windows of one definition, from batch to batch: many plain events at once, as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.fold.parts import (
    ARROW_TYPES,
    CHANGES,
    CHANGES_SCHEMA,
    DECIMAL,
    DELETED,
    ROWS,
    Part,
    keys_table,
    rows_schema,
)
from tidemark.pipeline.fold.texts import key_sql, open_database, quoted, row_sql
from tidemark.pipeline.output.batch import INSERT
from tidemark.pipeline.output.encoding import row_keys
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Value, ViewSchema
from tidemark.pipeline.windows import statements
from tidemark.pipeline.windows.definition import (
    WindowDefinition,
    late_schema,
    open_schema,
    window_members_schema,
    window_schema,
)
from tidemark.pipeline.windows.facts import FACTS_FIELDS, GROUPS
from tidemark.pipeline.windows.refolded import Refolded
from tidemark.pipeline.windows.statements import ONE_LANE, Statements

# W of one tenant, or with a null of all tenants, before and after a commit that has events of it or
# finds it idle.
LANE_MOVES_SCHEMA: Final = pa.schema(
    [
        ("tenant_id", pa.string()),
        ("received_at", pa.int64()),
        ("w_before", pa.int64()),
        ("w_after", pa.int64()),
    ]
)
# When the stream was ended for a tenant.
STREAM_ENDS_SCHEMA: Final = pa.schema([("tenant_id", pa.string()), ("received_at", pa.int64())])


class WindowFold:
    """Keeps the windows that may still change, and says what each batch changes.

    What it says must be committed before the next batch; after a failure it is to be made anew.
    """

    def __init__(self, window: WindowDefinition, *, logged: bool) -> None:
        self.window = window
        self._logged = logged
        self._schema = window_schema(window)
        self._open_schema = open_schema(window)
        self._members_schema = window_members_schema(window)
        self._late_schema: ViewSchema | None = None
        if window.late_view is not None:
            self._late_schema = late_schema(window)
        self._statements = Statements(window, self._schema)
        self._rows: list[pa.Table] = []
        self._gone: list[str] = []
        self._changes: list[pa.Table] = []
        self._late_rows: list[pa.Table] = []
        self._late_changes: list[pa.Table] = []
        # Keys of what the store has and is to have no more.
        self._closed: list[str] = []
        self._forgotten: list[tuple[str, Value]] = []
        self._database = open_database()
        self._make_tables()

    def close(self) -> None:
        self._database.close()

    def load(self, windows: Iterable[ViewRow], members: Iterable[ViewRow]) -> None:
        """Go on from what is committed, rows of the views for it."""
        self._insert_open([row.values for row in windows], is_stored=True)
        self._insert_members([(str(row.values[0]), row.values[1]) for row in members], stored=True)

    def take(self, facts: pa.Table, moves: pa.Table, ends: pa.Table) -> None:
        """Take in the facts of some commits: `FACTS_FIELDS` and groups, `LANE_MOVES_SCHEMA` and
        `STREAM_ENDS_SCHEMA`, the last two of this stream only."""
        if not (facts.num_rows or moves.num_rows or ends.num_rows):
            return
        self._register_facts(facts)
        tenants = moves.column("tenant_id")
        lanes = pc.fill_null(tenants, ONE_LANE)
        self._database.register("moves", moves.append_column("lane", lanes))
        ends = ends.rename_columns(["tenant_id", "ended_at"])
        self._database.register("stream_ends", ends)
        statement = self._statements
        self._execute(statement.placed())
        self._execute(statement.slots())
        if not self._count("slots"):
            return
        self._execute(statement.counted())
        if self._is_unique:
            self._execute(statement.new_members())
        self._execute(statement.states())
        self._execute(statement.shown())
        self._rows.append(self._fetch(statement.rows(), rows_schema(self._schema)))
        if self._logged:
            self._changes.append(self._fetch(statements.CHANGES, CHANGES_SCHEMA))
        if self._late_schema is not None:
            self._take_late(self._late_schema)
        self._execute(statement.kept())
        self._keep()

    def set_aside(self, refolded: Refolded) -> None:
        """Forget the windows of the keys that are folded anew; to be called before `take`."""
        self._database.register("refolded", self._keys_table(refolded.keys))
        same = " AND ".join(
            f"r.{name} IS NOT DISTINCT FROM o.{name}"
            for name in ("tenant_id", *self._statements.groups)
        )
        self._execute(
            "CREATE OR REPLACE TEMP TABLE slots AS"
            f" SELECT o.row_key, true AS is_final FROM open o JOIN refolded r ON {same};"
            "CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM open LIMIT 0;"
            "CREATE OR REPLACE TEMP TABLE new_members AS"
            " SELECT 0 AS slot, '' AS row_key, 0 AS value LIMIT 0"
        )
        self._keep()

    def put_back(self, refolded: Refolded) -> None:
        """Take over what was found by folding anew; to be called after `take`."""
        self._insert_open(refolded.open_rows, is_stored=False)
        self._insert_members(refolded.members, stored=False)
        self._rows.append(refolded.rows)
        self._gone += refolded.gone
        if self._logged:
            self._changes.append(refolded.changes)
        if self._late_schema is not None:
            self._late_rows.append(refolded.late_rows)
            self._late_changes.append(refolded.late_changes)

    def parts(self) -> list[Part]:
        """What is to be written for everything taken in since it was last asked."""
        open_view, members_view = self._open_schema.name, self._members_schema.name
        opened = self._new_open()
        parts = [
            Part(self.window.name, ROWS, _latest(self._rows)),
            Part(self.window.name, DELETED, keys_table(self._gone)),
            Part(open_view, ROWS, opened),
            Part(open_view, DELETED, keys_table(_without(self._closed, opened))),
        ]
        if self._logged:
            parts.append(Part(self.window.name, CHANGES, pa.concat_tables(self._changes)))
        if self._is_unique:
            members = self._new_members()
            gone = _without(self._forgotten_keys(), members)
            parts.append(Part(members_view, ROWS, members))
            parts.append(Part(members_view, DELETED, keys_table(gone)))
        if self._late_schema is not None:
            name = self._late_schema.name
            parts.append(Part(name, ROWS, pa.concat_tables(self._late_rows)))
            if self._logged:
                parts.append(Part(name, CHANGES, pa.concat_tables(self._late_changes)))
        self._execute("UPDATE open SET is_new = false, is_stored = true WHERE is_new")
        self._execute("UPDATE members SET is_stored = true WHERE NOT is_stored")
        self._begin_batch()
        return [part for part in parts if part.table.num_rows]

    @property
    def _is_unique(self) -> bool:
        return self.window.aggregate == "unique"

    def _make_tables(self) -> None:
        self._begin_batch()
        fields = [("row_key", pa.string()), ("lane", pa.string())]
        names = dict(zip(self.window.group_by, self._statements.groups, strict=True))
        for column in self._open_schema.columns:
            fields.append((names.get(column.name, column.name), ARROW_TYPES[column.type]))
        fields += [("is_new", pa.bool_()), ("is_stored", pa.bool_())]
        self._open_fields = pa.schema(fields)
        self._make_table("open", self._open_fields)
        members = [("of_row", pa.string()), ("value", DECIMAL), ("is_stored", pa.bool_())]
        self._make_table("members", pa.schema(members))

    def _make_table(self, name: str, schema: pa.Schema) -> None:
        self._database.register("shape", schema.empty_table())
        self._execute(f"CREATE TABLE {name} AS SELECT * FROM shape")

    def _begin_batch(self) -> None:
        self._rows = [rows_schema(self._schema).empty_table()]
        self._changes = [CHANGES_SCHEMA.empty_table()]
        self._gone, self._closed, self._forgotten = [], [], []
        if self._late_schema is not None:
            self._late_rows = [rows_schema(self._late_schema).empty_table()]
            self._late_changes = [CHANGES_SCHEMA.empty_table()]

    def _register_facts(self, facts: pa.Table) -> None:
        columns = {name: facts.column(name) for name in FACTS_FIELDS}
        lane = facts.column("tenant_id")
        if self.window.time_column is None:
            lane = pa.repeat(ONE_LANE, facts.num_rows)
        for place, (name, group) in enumerate(
            zip(self._statements.groups, self.window.groups, strict=True)
        ):
            column = pc.struct_field(facts.column(GROUPS), [place])
            columns[name] = column.cast(ARROW_TYPES[group.type])
        self._database.register("facts", pa.table({"lane": lane, **columns}))

    def _take_late(self, schema: ViewSchema) -> None:
        self._execute(
            "CREATE OR REPLACE TEMP TABLE late AS"
            f" SELECT {key_sql(schema.key_columns)} AS row_key, * FROM ("
            f"{self._statements.late(schema)})"
        )
        names = ", ".join(quoted(column.name) for column in schema.columns)
        self._late_rows.append(
            self._fetch(f"SELECT row_key, row_received_at, {names} FROM late", rows_schema(schema))
        )
        if self._logged:
            self._late_changes.append(
                self._fetch(
                    f"SELECT row_received_at AS received_at, row_key, '{INSERT}' AS operation,"
                    f" NULL AS old_row, {row_sql(schema)} AS row, NULL AS changed FROM late",
                    CHANGES_SCHEMA,
                )
            )

    def _keep(self) -> None:
        """Put what is `kept` in the place of what was open of the `slots`."""
        gone = self._fetch(
            "SELECT row_key FROM open o JOIN slots s USING (row_key) WHERE s.is_final AND is_stored"
        )
        self._closed += gone.column(0).to_pylist()
        self._execute(
            "DELETE FROM open WHERE row_key IN (SELECT row_key FROM slots);"
            "INSERT INTO open BY NAME SELECT * FROM kept"
        )
        if not self._is_unique:
            return
        final = "SELECT row_key FROM slots WHERE is_final"
        gone = self._fetch(
            f"SELECT of_row, value FROM members WHERE is_stored AND of_row IN ({final})"
        )
        self._forgotten += zip(*(column.to_pylist() for column in gone.columns), strict=True)
        self._execute(
            f"DELETE FROM members WHERE of_row IN ({final});"
            "INSERT INTO members SELECT row_key, value, false FROM new_members"
            f" WHERE row_key NOT IN ({final})"
        )

    def _insert_open(self, rows: Sequence[tuple[Value, ...]], *, is_stored: bool) -> None:
        if not rows:
            return
        columns = dict(
            zip((c.name for c in self._open_schema.columns), zip(*rows, strict=True), strict=True)
        )
        keys = row_keys(self._open_schema, {name: columns[name] for name in self._open_schema.key})
        timed = self.window.time_column is not None
        lanes = columns["tenant_id"] if timed else [ONE_LANE] * len(rows)
        arrays: list[Sequence[Any]] = [keys, lanes, *columns.values()]
        arrays += [[not is_stored] * len(rows), [is_stored] * len(rows)]
        table = pa.table(
            [
                pa.array(column, field.type)
                for column, field in zip(arrays, self._open_fields, strict=True)
            ],
            schema=self._open_fields,
        )
        self._database.register("loaded", table)
        self._execute("INSERT INTO open SELECT * FROM loaded")

    def _insert_members(self, members: Sequence[tuple[str, Value]], *, stored: bool) -> None:
        if not members:
            return
        table = pa.table(
            {
                "of_row": pa.array([row for row, _ in members], pa.string()),
                "value": pa.array([value for _, value in members], DECIMAL),
                "is_stored": pa.array([stored] * len(members), pa.bool_()),
            }
        )
        self._database.register("loaded", table)
        self._execute("INSERT INTO members SELECT * FROM loaded")

    def _keys_table(self, keys: Sequence[tuple[Value, ...]]) -> pa.Table:
        names = ("tenant_id", *self._statements.groups)
        types = (pa.string(), *(ARROW_TYPES[group.type] for group in self.window.groups))
        columns = list(zip(*keys, strict=True)) if keys else [()] * len(names)
        return pa.table({n: pa.array(c, t) for n, t, c in zip(names, types, columns, strict=True)})

    def _new_open(self) -> pa.Table:
        names = dict(zip(self.window.group_by, self._statements.groups, strict=True))
        columns = (
            f"{names.get(column.name, column.name)} AS {quoted(column.name)}"
            for column in self._open_schema.columns
        )
        return self._fetch(
            f"SELECT row_key, 0 AS row_received_at, {', '.join(columns)} FROM open WHERE is_new",
            rows_schema(self._open_schema),
        )

    def _new_members(self) -> pa.Table:
        new = self._fetch("SELECT of_row, value FROM members WHERE NOT is_stored")
        columns = {name: new.column(name).to_pylist() for name in ("of_row", "value")}
        keys = pa.array(row_keys(self._members_schema, columns), pa.string())
        zeros = pa.repeat(pa.scalar(0, pa.int64()), new.num_rows)
        arrays = [keys, zeros, *new.columns]
        return pa.table(arrays, schema=rows_schema(self._members_schema))

    def _forgotten_keys(self) -> list[str]:
        columns: dict[str, list[Value]] = {
            "of_row": [row for row, _ in self._forgotten],
            "value": [value for _, value in self._forgotten],
        }
        return row_keys(self._members_schema, columns)

    def _count(self, table: str) -> int:
        [[count]] = self._database.execute(f"SELECT count(*) FROM {table}").fetchall()
        return int(count)

    def _execute(self, sql: str) -> None:
        self._database.execute(sql)

    def _fetch(self, sql: str, schema: pa.Schema | None = None) -> pa.Table:
        table = self._database.sql(sql).to_arrow_table()
        return table if schema is None else table.cast(schema)


def _without(keys: Sequence[str], rows: pa.Table) -> list[str]:
    """The keys that are not those of rows: what is folded anew may be there again."""
    new = set(rows.column("row_key").to_pylist())
    return [key for key in keys if key not in new]


def _latest(tables: Sequence[pa.Table]) -> pa.Table:
    """Of rows that were written more than once the last."""
    written = [table for table in tables if table.num_rows]
    if len(written) < 2:
        return written[0] if written else tables[0]
    whole = pa.concat_tables(written)
    places = {key: place for place, key in enumerate(whole.column("row_key").to_pylist())}
    return whole.take(sorted(places.values()))
