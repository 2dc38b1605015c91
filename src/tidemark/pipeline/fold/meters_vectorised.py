"""Many plain facts of a meter at once, as SQL over Arrow in the task's own DuckDB.

What was before the batch takes part as one more commit, earlier than all others: so the running
aggregates begin with it, and the first change of a row finds the row as it was. A late fact never
raises the watermark of its row, so the greatest time of all earlier commits is that watermark
exactly; only what a close has kept out must be left out of it.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from tidemark.pipeline.definitions import (
    PERIOD_START,
    MeterDefinition,
    members_schema,
    meter_schema,
)
from tidemark.pipeline.fold.exact_sql import ORDER_BASE
from tidemark.pipeline.fold.meter_rows import ReadRows
from tidemark.pipeline.fold.meter_sql import (
    BEFORE,
    CHANGES_SQL,
    DISTINCT_SQL,
    constant_runs,
    partials_sql,
    rows_sql,
    states_sql,
    steps_sql,
)
from tidemark.pipeline.fold.parts import (
    ADJUSTMENTS,
    ADJUSTMENTS_SCHEMA,
    ARROW_TYPES,
    CHANGES,
    CHANGES_SCHEMA,
    ROWS,
    Part,
    rows_schema,
)
from tidemark.pipeline.fold.rules import CLOSED, LATE, group_values
from tidemark.pipeline.fold.texts import open_database
from tidemark.pipeline.output.encoding import encode_rows, row_keys
from tidemark.pipeline.output.schema import ViewSchema


def fold_vectorised(
    meter: MeterDefinition, table: pa.Table, read: ReadRows, *, logged: bool
) -> list[Part]:
    """What facts and operators' adjustments come to on top of what there is."""
    with open_database() as database:
        return _Fold(database, meter, read, logged=logged).run(table)


class _Fold:
    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        meter: MeterDefinition,
        read: ReadRows,
        *,
        logged: bool,
    ) -> None:
        self._database = database
        self._meter = meter
        self._schema = meter_schema(meter)
        self._members = members_schema(meter)
        self._read = read
        self._logged = logged
        self._unique = meter.aggregate == "unique"

    def run(self, table: pa.Table) -> list[Part]:
        self._make_facts(table)
        self._make_keys()
        self._make_before()
        self._make_judged()
        if self._unique:
            self._make_members()
        aggregate = self._meter.aggregate
        self._execute(partials_sql(aggregate))
        if self._unique:
            self._execute(DISTINCT_SQL)
        self._execute(states_sql(aggregate))
        self._execute(steps_sql(aggregate, self._schema))
        rows = self._fetch(rows_sql(aggregate, self._schema), rows_schema(self._schema))
        parts = [
            Part(self._meter.name, ROWS, rows),
            Part(self._meter.name, ADJUSTMENTS, self._adjustments()),
        ]
        if self._logged:
            changes = self._fetch(CHANGES_SQL, CHANGES_SCHEMA)
            parts.append(Part(self._meter.name, CHANGES, changes))
        if self._unique:
            parts.append(Part(self._members.name, ROWS, self._new_members()))
        return parts

    def _make_facts(self, table: pa.Table) -> None:
        columns = [
            *("ingress_sequence", "received_at", "previous_received_at", "idempotency_key"),
            *("tenant_id", "customer_ref", "kind", "groups", "period_start", "period_end"),
            *("ts", "value", "reason"),
        ]
        self._database.register("given", table.select(columns))
        # One row for each key, numbered, so that nothing later compares texts.
        self._execute(
            f"""
            CREATE TEMP TABLE slots AS
            SELECT row_number() OVER () AS slot, *
            FROM (SELECT DISTINCT tenant_id, customer_ref, groups, period_start FROM given);
            CREATE TEMP TABLE facts AS
            SELECT s.slot, g.ingress_sequence, g.received_at, g.ts, g.value,
                g.kind = 'adjust' AS is_adjust,
                g.kind <> 'adjust' AND {self._closed()} AS is_closed
            FROM given g JOIN slots s
                ON s.tenant_id = g.tenant_id AND s.customer_ref = g.customer_ref
                AND s.period_start = g.period_start
                AND s.groups IS NOT DISTINCT FROM g.groups
            """
        )

    def _closed(self) -> str:
        if self._meter.close_after_us is None:
            return "false"
        return (
            f"coalesce(g.previous_received_at > g.period_end + {self._meter.close_after_us}, false)"
        )

    def _make_keys(self) -> None:
        """The texts of each key, and of those columns of its rows that never change."""
        slots = self._fetch("SELECT * FROM slots ORDER BY slot")
        groups = slots.column("groups").to_pylist()
        count = slots.num_rows
        columns: dict[str, Any] = {
            "tenant_id": slots.column("tenant_id").to_pylist(),
            "metric": [self._meter.metric] * count,
            "customer_ref": slots.column("customer_ref").to_pylist(),
            **{name: [g[i] for g in groups] for i, name in enumerate(self._meter.group_by)},
            PERIOD_START: slots.column("period_start").to_pylist(),
        }
        self._row_keys = row_keys(self._schema, columns)
        keys = {
            "slot": slots.column("slot"),
            "row_key": self._row_keys,
            "group_values": [group_values(self._meter, g) for g in groups],
            **{name: pa.array(values, _key_type(name)) for name, values in columns.items()},
        }
        for place, run in enumerate(constant_runs(self._schema)):
            part = ViewSchema(
                self._schema.name,
                tuple(c for c in self._schema.columns if c.name in run),
                (run[0],),
                "",
            )
            texts = encode_rows(part, {name: columns[name] for name in run})
            # Without the braces, to stand among the columns that do change.
            keys[f"constant_{place}"] = [text[1:-1] for text in texts]
        self._database.register("keys", pa.table(keys))

    def _make_before(self) -> None:
        rows = self._read(self._meter.name, self._row_keys)
        columns = [
            [row.row_key for row in rows],
            [row.received_at for row in rows],
            *([row.values[i] for row in rows] for i in range(len(self._schema.columns))),
        ]
        schema = rows_schema(self._schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        self._database.register("stored", pa.table(arrays, schema=schema))
        self._execute(
            "CREATE TEMP TABLE before AS SELECT k.slot, s.*"
            " FROM stored s JOIN keys k ON k.row_key = s.row_key"
        )

    def _make_judged(self) -> None:
        """Which facts are late: behind what earlier commits brought, or after the close."""
        self._execute(
            f"""
            CREATE TEMP TABLE judged AS
            WITH seen AS (
                SELECT slot, ingress_sequence, received_at, ts, value, is_adjust, is_closed
                FROM facts
                UNION ALL
                SELECT slot, NULL, {BEFORE}, watermark_ts, NULL, false, false FROM before
            ), compared AS (
                SELECT *, max(CASE WHEN NOT is_adjust AND NOT is_closed THEN ts END) OVER (
                    PARTITION BY slot ORDER BY received_at
                    RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS watermark
                FROM seen
            )
            SELECT slot, ingress_sequence, received_at, ts, value, is_adjust,
                ts::HUGEINT * {ORDER_BASE} + ingress_sequence AS place,
                CASE WHEN is_adjust THEN NULL
                    WHEN ts < watermark - {self._meter.lateness_us} THEN '{LATE}'
                    WHEN is_closed THEN '{CLOSED}'
                END AS reason
            FROM compared WHERE ingress_sequence IS NOT NULL
            """
        )

    def _make_members(self) -> None:
        """When each value was first seen, counted and at all; before the batch is `BEFORE`."""
        pairs = self._fetch(
            "SELECT DISTINCT k.row_key, j.value FROM judged j JOIN keys k USING (slot)"
            " WHERE NOT j.is_adjust"
        )
        columns = {
            "of_row": pairs.column("row_key").to_pylist(),
            "value": pairs.column("value").to_pylist(),
        }
        keys = row_keys(self._members, columns)
        rows = self._read(self._members.name, keys)
        known = {row.row_key: row.values[2:] for row in rows}
        memberships = [known.get(key, (False, False)) for key in keys]
        self._database.register(
            "known",
            pa.table(
                {
                    "row_key": pairs.column("row_key"),
                    "value": pairs.column("value"),
                    "member_key": pa.array(keys, pa.string()),
                    "is_counted": pa.array([m[0] for m in memberships], pa.bool_()),
                    "is_in_effect": pa.array([m[1] for m in memberships], pa.bool_()),
                }
            ),
        )
        self._execute(
            f"""
            CREATE TEMP TABLE members AS
            SELECT j.slot, j.value, any_value(n.member_key) AS member_key,
                any_value(n.row_key) AS of_row,
                CASE WHEN any_value(n.is_counted) THEN {BEFORE}
                    ELSE min(j.received_at) FILTER (j.reason IS NULL) END AS counted_at,
                CASE WHEN any_value(n.is_in_effect) THEN {BEFORE}
                    ELSE min(j.received_at) END AS in_effect_at
            FROM judged j JOIN keys k USING (slot)
                JOIN known n ON n.row_key = k.row_key AND n.value = j.value
            WHERE NOT j.is_adjust GROUP BY j.slot, j.value
            """
        )

    def _adjustments(self) -> pa.Table:
        return self._fetch(
            f"""
            SELECT j.ingress_sequence, '{self._meter.name}' AS view, 0 AS part, j.received_at,
                k.tenant_id, k.metric, k.customer_ref, k.group_values, k.period_start,
                j.value AS amount, coalesce(j.reason, g.reason, '') AS reason, g.idempotency_key,
                NULL AS original_key, NULL AS original_sequence
            FROM judged j JOIN keys k USING (slot)
                JOIN given g ON g.ingress_sequence = j.ingress_sequence
            WHERE j.is_adjust OR j.reason IS NOT NULL
            """,
            ADJUSTMENTS_SCHEMA,
        )

    def _new_members(self) -> pa.Table:
        return self._fetch(
            f"""
            SELECT member_key AS row_key, 0 AS row_received_at, of_row, value,
                counted_at IS NOT NULL AS is_counted, true AS is_in_effect
            FROM members
            WHERE counted_at > {BEFORE} OR in_effect_at > {BEFORE}
            """,
            rows_schema(self._members),
        )

    def _execute(self, sql: str) -> None:
        self._database.execute(sql)

    def _fetch(self, sql: str, schema: pa.Schema | None = None) -> pa.Table:
        table = self._database.sql(sql).to_arrow_table()
        return table if schema is None else table.cast(schema)


def _key_type(name: str) -> pa.DataType:
    return ARROW_TYPES["timestamp" if name == PERIOD_START else "string"]
