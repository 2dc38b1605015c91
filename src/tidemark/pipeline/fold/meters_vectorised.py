"""Many plain facts of a meter at once, as SQL over Arrow in the task's own DuckDB.

What was before the batch takes part as one more commit, earlier than all others: so the running
aggregates begin with it, and the first change of a row finds the row as it was. A late fact never
raises the watermark of its row, so the greatest time of all earlier commits is that watermark
exactly; only what a close has kept out must be left out of it.
"""

from __future__ import annotations

from typing import Any, Final

import duckdb
import pyarrow as pa

from tidemark.pipeline.definitions import (
    COUNTERS,
    PERIOD_START,
    MeterDefinition,
    members_schema,
    meter_schema,
)
from tidemark.pipeline.fold.meter_rows import ReadRows
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
from tidemark.pipeline.fold.tallies import WANTED
from tidemark.pipeline.fold.texts import WIDE, json_sql, open_database, quoted
from tidemark.pipeline.output.encoding import encode_names, encode_rows, row_keys
from tidemark.pipeline.output.schema import ViewSchema

_D: Final = WIDE
# Earlier than every commit.
_BEFORE: Final = -1
# Times and sequences are positive and below this, so one number sorts as both do.
_ORDER_BASE: Final = 10**18
_KEPT: Final = ("all_sum", "all_max", "all_min", "all_count", "all_last")


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
        self._make_states()
        parts = [
            Part(self._meter.name, ROWS, self._rows()),
            Part(self._meter.name, ADJUSTMENTS, self._adjustments()),
        ]
        if self._logged:
            parts.append(Part(self._meter.name, CHANGES, self._changes()))
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
        for place, run in enumerate(self._constant_runs()):
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

    def _constant_runs(self) -> list[list[str]]:
        """The columns of the key as they stand together in the text of a row."""
        runs: list[list[str]] = []
        together = False
        for name in sorted(column.name for column in self._schema.visible):
            if name in self._schema.key:
                if not together:
                    runs.append([])
                runs[-1].append(name)
            together = name in self._schema.key
        return runs

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
                SELECT slot, NULL, {_BEFORE}, watermark_ts, NULL, false, false FROM before
            ), compared AS (
                SELECT *, max(CASE WHEN NOT is_adjust AND NOT is_closed THEN ts END) OVER (
                    PARTITION BY slot ORDER BY received_at
                    RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS watermark
                FROM seen
            )
            SELECT slot, ingress_sequence, received_at, ts, value, is_adjust,
                ts::HUGEINT * {_ORDER_BASE} + ingress_sequence AS place,
                CASE WHEN is_adjust THEN NULL
                    WHEN ts < watermark - {self._meter.lateness_us} THEN '{LATE}'
                    WHEN is_closed THEN '{CLOSED}'
                END AS reason
            FROM compared WHERE ingress_sequence IS NOT NULL
            """
        )

    def _make_members(self) -> None:
        """When each value was first seen, counted and at all; before the batch is `_BEFORE`."""
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
                CASE WHEN any_value(n.is_counted) THEN {_BEFORE}
                    ELSE min(j.received_at) FILTER (j.reason IS NULL) END AS counted_at,
                CASE WHEN any_value(n.is_in_effect) THEN {_BEFORE}
                    ELSE min(j.received_at) END AS in_effect_at
            FROM judged j JOIN keys k USING (slot)
                JOIN known n ON n.row_key = k.row_key AND n.value = j.value
            WHERE NOT j.is_adjust GROUP BY j.slot, j.value
            """
        )

    def _make_states(self) -> None:
        """The state of each row after each commit that touched it, and before all of them."""
        counted = "reason IS NULL AND NOT is_adjust"
        # Only what the meter's aggregate needs of everything in effect.
        wanted = WANTED[self._meter.aggregate]
        everything = {
            "all_sum": (f"sum(value) FILTER (NOT is_adjust)::{_D}", "sum"),
            "all_max": (f"max(value) FILTER (NOT is_adjust)::{_D}", "max"),
            "all_min": (f"min(value) FILTER (NOT is_adjust)::{_D}", "min"),
            "all_count": ("count(*) FILTER (NOT is_adjust)", "sum"),
        }
        partial = [f"{sql} AS {name}" for name, (sql, _) in everything.items() if name in wanted]
        before = [name for name in everything if name in wanted]
        running = [
            f"({how}({name}) OVER w)::{'BIGINT' if name == 'all_count' else _D} AS {name}"
            for name, (_, how) in everything.items()
            if name in wanted
        ]
        lasts = ["last"]
        if "all_last" in wanted:
            lasts.append("all_last")
            partial += [
                f"arg_max(value, place) FILTER (NOT is_adjust)::{_D} AS all_last",
                "max(place) FILTER (NOT is_adjust) AS all_last_place",
            ]
            before += ["all_last", _place("all_last")]
        if self._unique:
            partial += [
                "0::BIGINT AS distinct_counted",
                "0::BIGINT AS distinct_all",
            ]
            before += ["counted::BIGINT", "all_distinct"]
            running += [
                "(sum(distinct_counted) OVER w)::BIGINT AS distinct_counted",
                "(sum(distinct_all) OVER w)::BIGINT AS distinct_all",
            ]
        self._execute(
            f"""
            CREATE TEMP TABLE partials AS
            SELECT slot, received_at,
                sum(value) FILTER ({counted})::{_D} AS agg_sum,
                max(value) FILTER ({counted})::{_D} AS agg_max,
                min(value) FILTER ({counted})::{_D} AS agg_min,
                count(*) FILTER ({counted}) AS agg_count,
                arg_max(value, place) FILTER ({counted})::{_D} AS last,
                max(place) FILTER ({counted}) AS last_place,
                max(ts) FILTER ({counted}) AS watermark_ts,
                sum(value) FILTER (is_adjust)::{_D} AS standing_sum,
                count(*) FILTER (is_adjust) AS standing_count
                {"".join(f", {column}" for column in partial)}
            FROM judged GROUP BY slot, received_at
            UNION ALL
            SELECT slot, {_BEFORE}, agg_sum, agg_max, agg_min, agg_count, agg_last,
                {_place("last")}, watermark_ts, standing_sum, standing_count
                {"".join(f", {column}" for column in before)}
            FROM before
            """
        )
        if self._unique:
            self._execute(
                f"""
                UPDATE partials p SET distinct_counted = n.n FROM (
                    SELECT slot, counted_at AS at, count(*) AS n FROM members
                    WHERE counted_at > {_BEFORE} GROUP BY ALL
                ) n WHERE n.slot = p.slot AND n.at = p.received_at;
                UPDATE partials p SET distinct_all = n.n FROM (
                    SELECT slot, in_effect_at AS at, count(*) AS n FROM members
                    WHERE in_effect_at > {_BEFORE} GROUP BY ALL
                ) n WHERE n.slot = p.slot AND n.at = p.received_at
                """
            )
        newest = "".join(
            f", last_value(CASE WHEN {name}_new THEN {name} END IGNORE NULLS) OVER w AS {name}"
            for name in lasts
        )
        self._execute(
            f"""
            CREATE TEMP TABLE states AS
            WITH totals AS (
                SELECT slot, received_at,
                    coalesce(sum(agg_sum) OVER w, 0)::{_D} AS agg_sum,
                    max(agg_max) OVER w AS agg_max,
                    min(agg_min) OVER w AS agg_min,
                    (sum(agg_count) OVER w)::BIGINT AS agg_count,
                    max(watermark_ts) OVER w AS watermark_ts,
                    sum(standing_sum) OVER w AS standing_sum,
                    (sum(standing_count) OVER w)::BIGINT AS standing_count
                    {"".join(f", {column}" for column in running)}
                    {
                "".join(
                    f", {name}, max({name}_place) OVER w AS {name}_place,"
                    f" coalesce({name}_place = max({name}_place) OVER w, false) AS {name}_new"
                    for name in lasts
                )
            }
                FROM partials
                WINDOW w AS (PARTITION BY slot ORDER BY received_at ROWS UNBOUNDED PRECEDING)
            )
            SELECT * EXCLUDE ({", ".join([*lasts, *(f"{name}_new" for name in lasts)])})
                {newest}
            FROM totals
            WINDOW w AS (PARTITION BY slot ORDER BY received_at ROWS UNBOUNDED PRECEDING)
            """
        )
        self._make_shown()

    def _make_shown(self) -> None:
        """What readers see of each state, and its text."""
        aggregate = self._meter.aggregate
        counted = {
            "sum": "agg_sum",
            "max": "agg_max",
            "min": "agg_min",
            "count": f"agg_count::{_D}",
            "last": "last",
            "avg": _mean("agg_sum", "agg_count"),
            "unique": f"distinct_counted::{_D}",
        }[aggregate]
        everything = {
            "sum": f"coalesce(all_sum, 0)::{_D}",
            "max": "all_max",
            "min": "all_min",
            "count": f"all_count::{_D}",
            "last": "all_last",
            "avg": _mean("all_sum", "all_count"),
            "unique": f"distinct_all::{_D}",
        }[aggregate]
        self._execute(
            f"""
            CREATE TEMP TABLE shown AS
            WITH amounts AS (
                SELECT *, last AS agg_last, {counted} AS counted,
                    CASE WHEN standing_count > 0
                        THEN (coalesce({everything}, 0) + standing_sum)::{_D}
                        ELSE {everything} END AS total
                FROM states
            ), complete AS (
                SELECT *, CASE WHEN total IS NULL AND counted IS NULL THEN NULL
                    ELSE (coalesce(total, 0) - coalesce(counted, 0))::{_D} END AS adjusted
                FROM amounts
            )
            SELECT c.*, k.row_key, {self._text()} AS text
            FROM complete c JOIN keys k USING (slot)
            """
        )

    def _text(self) -> str:
        """The text of a row, as `encoding.encode_rows` writes it."""
        kinds = dict(COUNTERS)
        pieces: list[str] = []
        constants = iter(range(len(self._constant_runs())))
        together = False
        for name in sorted(column.name for column in self._schema.visible):
            if name in kinds:
                pieces.append(f"""'"{name}":' || {json_sql(f"c.{name}", kinds[name])}""")
            elif not together:
                pieces.append(f"k.constant_{next(constants)}")
            together = name not in kinds
        return "'{' || " + " || ',' || ".join(pieces) + " || '}'"

    def _changes(self) -> pa.Table:
        names = [name for name, _ in COUNTERS]
        # Each with a comma after it: the last one is cut off below.
        changed = " || ".join(
            f"CASE WHEN {name} IS DISTINCT FROM lag({name}) OVER w THEN '\"{name}\",' ELSE '' END"
            for name in names
        )
        # The texts are what decides: nothing else of a row is seen.
        assert encode_names(["a", "b"]) == '["a","b"]'
        return self._fetch(
            f"""
            WITH steps AS (
                SELECT received_at, row_key, lag(text) OVER w AS old_row, text AS row,
                    {changed} AS names
                FROM shown
                WINDOW w AS (PARTITION BY slot ORDER BY received_at)
            )
            SELECT received_at, row_key,
                CASE WHEN old_row IS NULL THEN 'insert' ELSE 'update' END AS operation,
                old_row, row,
                CASE WHEN old_row IS NOT NULL THEN '[' || rtrim(names, ',') || ']' END AS changed
            FROM steps
            WHERE received_at > {_BEFORE} AND row IS DISTINCT FROM old_row
            """,
            CHANGES_SCHEMA,
        )

    def _rows(self) -> pa.Table:
        wanted = WANTED[self._meter.aggregate]
        columns = []
        for column in self._schema.columns:
            name = column.name
            source = "NULL"
            if name in self._schema.key:
                source = f"k.{quoted(name)}"
            elif name in dict(COUNTERS):
                source = f"s.{name}"
            elif name == "standing_sum":
                source = "CASE WHEN s.standing_count > 0 THEN s.standing_sum END"
            elif name == "standing_count":
                source = "s.standing_count"
            elif name == "all_sum" and name in wanted:
                source = f"coalesce(s.all_sum, 0)::{_D}"
            elif name in wanted and name in _KEPT:
                source = f"s.{name}"
            elif name == "all_distinct" and self._unique:
                source = "s.distinct_all"
            elif name in ("last_ts", "last_sequence"):
                source = _taken_apart("s.last_place", name)
            elif name in ("all_last_ts", "all_last_sequence") and "all_last" in wanted:
                source = _taken_apart("s.all_last_place", name)
            columns.append(f"{source} AS {quoted(name)}")
        return self._fetch(
            f"""
            WITH steps AS (
                SELECT *, CASE WHEN received_at > {_BEFORE}
                    AND text IS DISTINCT FROM lag(text) OVER w THEN received_at END AS changed_at
                FROM shown WINDOW w AS (PARTITION BY slot ORDER BY received_at)
            ), last_steps AS (
                SELECT * EXCLUDE (changed_at),
                    max(changed_at) OVER (PARTITION BY slot) AS changed_at
                FROM steps
                QUALIFY row_number() OVER (PARTITION BY slot ORDER BY received_at DESC) = 1
            )
            SELECT s.row_key, coalesce(s.changed_at, b.row_received_at) AS row_received_at,
                {", ".join(columns)}
            FROM last_steps s JOIN keys k USING (slot) LEFT JOIN before b USING (slot)
            """,
            rows_schema(self._schema),
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
            WHERE counted_at > {_BEFORE} OR in_effect_at > {_BEFORE}
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


def _place(prefix: str) -> str:
    """The one number for the time and the sequence of a row's last fact."""
    return f"{prefix}_ts::HUGEINT * {_ORDER_BASE} + {prefix}_sequence"


def _taken_apart(place: str, name: str) -> str:
    operator = "//" if name.endswith("_ts") else "%"
    return f"({place} {operator} {_ORDER_BASE})::BIGINT"


def _mean(total: str, count: str) -> str:
    """The quotient to nine places, half to even; in whole billionths, as SQL divides in floats."""
    billionths = f"replace(({total})::{_D}::VARCHAR, '.', '')::HUGEINT"
    size, half = f"abs({billionths})", f"2 * (abs({billionths}) % {count})"
    up = f"({half} > {count} OR ({half} = {count} AND ({size} // {count}) % 2 = 1))"
    quotient = f"(sign({billionths})::HUGEINT * ({size} // {count} + {up}::HUGEINT))"
    digits = f"abs({quotient})::VARCHAR"
    # Padding to a length would also cut what is longer.
    digits = f"lpad({digits}, greatest(10, length({digits}))::INTEGER, '0')"
    sign = f"CASE WHEN {quotient} < 0 THEN '-' ELSE '' END"
    text = f"{sign} || left({digits}, -9) || '.' || right({digits}, 9)"
    return f"CASE WHEN {count} > 0 THEN ({text})::{_D} END"
