"""The last row of each key of a table, as SQL over Arrow in the task's own DuckDB.

An event wins if its time, and then its sequence, is beyond all that its key has seen. Of the
winners of one commit only the last is ever seen. An older event that comes later wins nothing.
"""

from __future__ import annotations

from typing import Any, Final

import duckdb
import pyarrow as pa

from tidemark.pipeline import facts
from tidemark.pipeline.definitions import ORDER, TableDefinition, deleted_schema
from tidemark.pipeline.fold.exact_sql import ORDER_BASE
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.meter_sql import BEFORE
from tidemark.pipeline.fold.parts import (
    CHANGES,
    CHANGES_SCHEMA,
    DELETED,
    ROWS,
    Part,
    keys_table,
    rows_schema,
)
from tidemark.pipeline.fold.texts import key_sql, open_database, quoted, row_sql
from tidemark.pipeline.output.encoding import row_keys
from tidemark.pipeline.output.schema import ViewSchema

_FIELDS: Final = "fields."


def fold_table(
    table: TableDefinition,
    schema: ViewSchema,
    place: int,
    given: pa.Table,
    read: ReadRows,
    *,
    logged: bool,
) -> list[Part]:
    """What events come to on top of what there is; `place` is the table's among the tables."""
    with open_database() as database:
        return _Fold(database, table, schema, read, logged=logged).run(given, place)


class _Fold:
    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        table: TableDefinition,
        schema: ViewSchema,
        read: ReadRows,
        *,
        logged: bool,
    ) -> None:
        self._database = database
        self._table = table
        self._schema = schema
        self._deleted = deleted_schema(table)
        self._read = read
        self._logged = logged
        self._names = [column.name for column in schema.visible]

    def run(self, given: pa.Table, place: int) -> list[Part]:
        # The fields stay together in a struct, because they may be called as anything here is.
        arranged = {name: given.column(name) for name in ("received_at", "ingress_sequence", "ts")}
        arranged |= {"deleted": given.column("deleted")}
        arranged |= {"fields": given.column(facts.table_column(place))}
        self._database.register("given", pa.table(arranged))
        self._database.execute(
            f"""
            CREATE TEMP TABLE events AS
            SELECT {key_sql(self._schema.key_columns, _FIELDS)} AS row_key, received_at AS moment,
                deleted AS is_deleted, {_order("ts", "ingress_sequence")} AS place, fields
            FROM given
            """
        )
        self._make_before()
        self._make_winners()
        return self._parts()

    def _make_before(self) -> None:
        """The rows as they were, and the places of those that were deleted."""
        keys = self._fetch("SELECT DISTINCT row_key FROM events").column(0).to_pylist()
        stored = self._read(self._table.name, keys)
        self._register("stored", self._schema, stored)
        tombs = []
        if self._table.delete_when is not None:
            tombs = self._read(self._deleted.name, row_keys(self._deleted, {"of_row": keys}))
        self._register("tombs", self._deleted, tombs)
        ts, sequence = (name for name, _ in ORDER)
        members = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in self._names)
        self._database.execute(
            f"""
            CREATE TEMP TABLE before AS
            SELECT row_key, {BEFORE} AS moment, false AS is_deleted,
                {_order(ts, sequence)} AS place, struct_pack({members}) AS fields
            FROM stored
            UNION ALL
            SELECT of_row, {BEFORE}, true, {_order(ts, sequence)}, NULL FROM tombs
            """
        )

    def _make_winners(self) -> None:
        self._database.execute(
            f"""
            CREATE TEMP TABLE winners AS
            WITH commits AS (
                SELECT row_key, moment, is_deleted, place, fields FROM events
                QUALIFY row_number() OVER (PARTITION BY row_key, moment ORDER BY place DESC) = 1
            ), story AS (SELECT * FROM commits UNION ALL SELECT * FROM before),
            compared AS (
                SELECT *, max(place) OVER (
                    PARTITION BY row_key ORDER BY moment
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS reached FROM story
            )
            SELECT * EXCLUDE (reached),
                CASE WHEN NOT is_deleted THEN {row_sql(self._schema, _FIELDS)} END AS text
            FROM compared WHERE reached IS NULL OR place > reached
            """
        )
        self._database.execute(
            """
            CREATE TEMP TABLE steps AS
            SELECT *, lag(text) OVER w AS old_text, lag(fields) OVER w AS old_fields FROM winners
            WINDOW w AS (PARTITION BY row_key ORDER BY moment)
            """
        )

    def _parts(self) -> list[Part]:
        name = self._table.name
        parts = [Part(name, ROWS, self._rows())]
        if self._logged:
            parts.append(Part(name, CHANGES, self._changes()))
        gone = self._fetch(
            f"""SELECT e.row_key FROM ({_ENDS}) e
            WHERE e.is_deleted AND e.moment > {BEFORE}
                AND e.row_key IN (SELECT row_key FROM stored)"""
        )
        parts.append(Part(name, DELETED, gone))
        if self._table.delete_when is not None:
            parts += self._tombstones()
        return parts

    def _rows(self) -> pa.Table:
        ts, sequence = (name for name, _ in ORDER)
        columns = [
            f"(e.place // {ORDER_BASE})::BIGINT AS {ts}"
            if column.name == ts
            else f"(e.place % {ORDER_BASE})::BIGINT AS {sequence}"
            if column.name == sequence
            else f"e.{_FIELDS}{quoted(column.name)}"
            for column in self._schema.columns
        ]
        return self._fetch(
            f"""
            WITH shown AS (
                SELECT row_key, max(moment) AS moment FROM steps
                WHERE moment > {BEFORE} AND text IS DISTINCT FROM old_text GROUP BY row_key
            )
            SELECT e.row_key, coalesce(s.moment, b.row_received_at) AS row_received_at,
                {", ".join(columns)}
            FROM ({_ENDS}) e LEFT JOIN shown s USING (row_key)
                LEFT JOIN stored b ON b.row_key = e.row_key
            WHERE NOT e.is_deleted AND e.moment > {BEFORE}
            """,
            rows_schema(self._schema),
        )

    def _changes(self) -> pa.Table:
        names = " || ".join(
            f"CASE WHEN {_FIELDS}{quoted(name)} IS DISTINCT FROM old_{_FIELDS}{quoted(name)}"
            f" THEN '{quoted(name)},' ELSE '' END"
            for name in self._names
        )
        return self._fetch(
            f"""
            SELECT moment AS received_at, row_key,
                CASE WHEN old_text IS NULL THEN 'insert' WHEN text IS NULL THEN 'delete'
                    ELSE 'update' END AS operation,
                old_text AS old_row, text AS row,
                CASE WHEN old_text IS NOT NULL AND text IS NOT NULL
                    THEN '[' || rtrim({names}, ',') || ']' END AS changed
            FROM steps WHERE moment > {BEFORE} AND text IS DISTINCT FROM old_text
            """,
            CHANGES_SCHEMA,
        )

    def _tombstones(self) -> list[Part]:
        name = self._deleted.name
        made = self._fetch(
            f"""SELECT e.row_key AS of_row, (e.place // {ORDER_BASE})::BIGINT AS ts,
            (e.place % {ORDER_BASE})::BIGINT AS sequence
            FROM ({_ENDS}) e WHERE e.is_deleted AND e.moment > {BEFORE}"""
        )
        of_row = made.column("of_row").to_pylist()
        columns = [
            row_keys(self._deleted, {"of_row": of_row}),
            [0] * len(of_row),
            of_row,
            made.column("ts").to_pylist(),
            made.column("sequence").to_pylist(),
        ]
        schema = rows_schema(self._deleted)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        back = self._fetch(
            f"""SELECT t.of_row FROM ({_ENDS}) e JOIN tombs t ON t.of_row = e.row_key
            WHERE NOT e.is_deleted"""
        )
        gone = row_keys(self._deleted, {"of_row": back.column(0).to_pylist()})
        return [
            Part(name, ROWS, pa.table(arrays, schema=schema)),
            Part(name, DELETED, keys_table(gone)),
        ]

    def _register(self, name: str, schema: ViewSchema, rows: Any) -> None:
        columns = [
            [row.row_key for row in rows],
            [row.received_at for row in rows],
            *([row.values[i] for row in rows] for i in range(len(schema.columns))),
        ]
        kinds = rows_schema(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)]
        self._database.register(name, pa.table(arrays, schema=kinds))

    def _fetch(self, sql: str, schema: pa.Schema | None = None) -> pa.Table:
        table = self._database.sql(sql).to_arrow_table()
        return table if schema is None else table.cast(schema)


# How each key ends.
_ENDS: Final = (
    "SELECT * FROM winners"
    " QUALIFY row_number() OVER (PARTITION BY row_key ORDER BY moment DESC) = 1"
)


def _order(ts: str, sequence: str) -> str:
    """One number that sorts as time and sequence do."""
    return f"{ts}::HUGEINT * {ORDER_BASE} + {sequence}"
