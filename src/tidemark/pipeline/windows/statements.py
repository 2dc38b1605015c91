"""The statements of the fold of windows, for DuckDB.

Tables in the order in which they are made, from what is given (`facts`, `moves`, `stream_ends`, and
the windows that were `open`): `placed`, each fact in each of its windows; `slots`, the windows that
something happens to, numbered; `counted`, the facts that count; `states`, each window after each
commit that touched it; `shown`, what readers see of those, and saw before.

Groups are `g_0`, `g_1` and so on, so that no field of a stream can be taken for a column of ours.
"""

from __future__ import annotations

from typing import Final

from tidemark.config.pipeline_model import Aggregate
from tidemark.pipeline.fold.exact_sql import ORDER_BASE, mean_sql
from tidemark.pipeline.fold.texts import WIDE, json_sql, key_sql, object_sql
from tidemark.pipeline.output.schema import Column, ViewSchema
from tidemark.pipeline.stream_columns import TENANT_ID
from tidemark.pipeline.windows.definition import (
    AGGREGATES,
    IS_CLOSED,
    VALUE,
    WindowDefinition,
)

# Earlier than every commit.
BEFORE: Final = -1
# The lane of a stream whose time is that of its commits: all tenants share it.
ONE_LANE: Final = ""
_RUNNING: Final = "PARTITION BY slot ORDER BY received_at ROWS UNBOUNDED PRECEDING"
_SHOWN_NAMES: Final = (*(name for name, _ in AGGREGATES), VALUE, IS_CLOSED)


class Statements:
    """The statements for one definition."""

    def __init__(self, window: WindowDefinition, schema: ViewSchema) -> None:
        self._window = window
        self._schema = schema
        self._refires = window.late == "refire"
        self._unique = window.aggregate == "unique"
        names = [f"g_{place}" for place in range(len(window.group_by))]
        self.groups = tuple(names)
        self._groups = "".join(f", {name}" for name in names)
        # By the column of the view, where it is in our tables.
        self._sources = dict(zip(window.group_by, names, strict=True))

    def placed(self) -> str:
        """Each fact in each of its windows, and whether the watermark had passed it."""
        size, every = self._window.size_us, self._window.every_us
        last = _floor("ts", every)
        starts = last
        if every < size:
            first = f"{_floor(f'(ts - {size})', every)} + {every}"
            starts = f"unnest(range({first}, {last} + {every}, {every}))"
        beyond = f"w_before >= window_start + {size + self._window.refire_for_us}"
        late = "false" if self._refires else "coalesce(w_before >= ts, false)"
        taken = f"WHERE NOT coalesce({beyond}, false)" if self._refires else ""
        return f"""
            CREATE OR REPLACE TEMP TABLE placed AS
            SELECT *, window_start + {size} AS window_end, {late} AS is_late,
                coalesce(w_before >= window_start + {size}, false) AS is_past
            FROM (
                SELECT f.*, m.w_before, {starts} AS window_start
                FROM facts f LEFT JOIN moves m
                    ON m.lane = f.lane AND m.received_at = f.received_at
            ) {taken}
        """

    def slots(self) -> str:
        """The windows that something happens to: when it began, and when it was closed.

        A window is closed by the first watermark that reaches its end, or by the first end of its
        stream after it began; one that begins late is closed as soon as it is there.
        """
        key = key_sql(
            [
                Column(self._sources.get(column.name, column.name), column.type)
                for column in self._schema.key_columns
            ]
        )
        bound = self._window.size_us + self._window.refire_for_us
        return f"""
            CREATE OR REPLACE TEMP TABLE touched AS
            SELECT *, {key} AS row_key FROM (
                SELECT lane, tenant_id{self._groups}, window_start, window_end,
                    min(received_at) FILTER (NOT is_late) AS first_at,
                    min(received_at) FILTER (is_past AND NOT is_late) AS past_at
                FROM placed GROUP BY ALL
            );
            CREATE OR REPLACE TEMP TABLE slots AS
            WITH lane_ends AS (
                SELECT lane AS of_lane, max(w_after) AS w_last FROM moves GROUP BY lane
            ), known AS (
                SELECT t.*, false AS was_open, false AS was_closed
                FROM touched t ANTI JOIN open o ON o.row_key = t.row_key
                UNION ALL BY NAME
                SELECT o.lane, o.tenant_id{"".join(f", o.{name}" for name in self.groups)},
                    o.window_start, o.window_end, o.row_key, {BEFORE} AS first_at,
                    t.past_at, true AS was_open, o.is_closed AS was_closed
                FROM open o LEFT JOIN touched t ON t.row_key = o.row_key
                    LEFT JOIN lane_ends ON of_lane = o.lane
                WHERE t.row_key IS NOT NULL OR w_last >= o.window_start + {bound}
                    OR (NOT o.is_closed AND (w_last >= o.window_end
                        OR o.tenant_id IN (SELECT tenant_id FROM stream_ends)))
            ), lane_moves AS (
                SELECT lane, received_at AS reached_at, w_after
                FROM moves WHERE w_after IS DISTINCT FROM w_before
            ), closing AS (
                SELECT k.*, m.reached_at, e.ended_at
                FROM known k
                ASOF LEFT JOIN lane_moves m ON k.lane = m.lane AND k.window_end <= m.w_after
                ASOF LEFT JOIN stream_ends e
                    ON k.tenant_id = e.tenant_id AND k.first_at <= e.ended_at
            ), judged AS (
                SELECT * EXCLUDE (reached_at, ended_at, past_at),
                    CASE WHEN was_closed THEN {BEFORE}
                        ELSE least(reached_at, ended_at, past_at) END AS closed_at,
                    coalesce(l.w_last >= window_start + {bound}, false) AS is_final
                FROM closing LEFT JOIN lane_ends l ON l.of_lane = closing.lane
            )
            SELECT row_number() OVER () AS slot, * FROM judged
        """

    def counted(self) -> str:
        """The facts that count, and those that came too late for their window."""
        same = " AND ".join(
            f"s.{name} IS NOT DISTINCT FROM p.{name}" for name in (TENANT_ID, *self.groups)
        )
        in_time = "NOT p.is_late AND (s.closed_at IS NULL OR p.received_at <= s.closed_at)"
        return f"""
            CREATE OR REPLACE TEMP TABLE judged AS
            SELECT s.slot, p.received_at, p.ts, p.value, p.ingress_sequence, p.idempotency_key,
                p.ts::HUGEINT * {ORDER_BASE} + p.ingress_sequence AS place,
                {"true" if self._refires else in_time} AS is_counted
            FROM placed p JOIN slots s ON s.window_start = p.window_start AND {same};
            CREATE OR REPLACE TEMP TABLE counted AS SELECT * FROM judged WHERE is_counted
        """

    def new_members(self) -> str:
        """The values that a window has not seen before, and when it saw them first."""
        return """
            CREATE OR REPLACE TEMP TABLE new_members AS
            SELECT slot, row_key, value, received_at FROM (
                SELECT c.slot, s.row_key, c.value, min(c.received_at) AS received_at
                FROM counted c JOIN slots s USING (slot) GROUP BY ALL
            ) n ANTI JOIN members m ON m.of_row = n.row_key AND m.value = n.value
        """

    def states(self) -> str:
        """Each window after each commit that touched or closed it, and before all of them."""
        distinct = "NULL::BIGINT"
        if self._unique:
            distinct = "coalesce(any_value(n.distinct_count), 0)"
        return f"""
            CREATE OR REPLACE TEMP TABLE partials AS
            SELECT p.slot, p.received_at, sum(p.value)::{WIDE} AS agg_sum,
                max(p.value)::{WIDE} AS agg_max, min(p.value)::{WIDE} AS agg_min,
                count(p.value) AS agg_count, arg_max(p.value, p.place)::{WIDE} AS last,
                max(p.place) AS last_place, {distinct} AS distinct_count
            FROM (
                SELECT slot, received_at, value, place FROM counted
                UNION ALL
                SELECT slot, closed_at, NULL, NULL FROM slots
                WHERE closed_at > {BEFORE} AND closed_at >= first_at
            ) p
            {self._distinct_join() if self._unique else ""}
            GROUP BY p.slot, p.received_at
            UNION ALL
            SELECT s.slot, {BEFORE}, agg_sum, agg_max, agg_min, agg_count, agg_last,
                last_ts::HUGEINT * {ORDER_BASE} + last_sequence, distinct_count
            FROM open o JOIN slots s USING (row_key);
            CREATE OR REPLACE TEMP TABLE states AS
            WITH totals AS (
                SELECT slot, received_at,
                    coalesce(sum(agg_sum) OVER w, 0)::{WIDE} AS agg_sum,
                    max(agg_max) OVER w AS agg_max,
                    min(agg_min) OVER w AS agg_min,
                    (sum(agg_count) OVER w)::BIGINT AS agg_count,
                    (sum(distinct_count) OVER w)::BIGINT AS distinct_count,
                    last, max(last_place) OVER w AS last_place,
                    coalesce(last_place = max(last_place) OVER w, false) AS is_last
                FROM partials WINDOW w AS ({_RUNNING})
            )
            SELECT * EXCLUDE (last, is_last),
                last_value(CASE WHEN is_last THEN last END IGNORE NULLS) OVER w AS agg_last
            FROM totals WINDOW w AS ({_RUNNING})
        """

    def shown(self) -> str:
        """What readers see after each commit, its text, the text before, and what differs."""
        is_shown = "agg_count > 0"
        if self._window.emit == "close":
            is_shown += " AND is_closed"
        differing = (
            f"CASE WHEN {name} IS DISTINCT FROM lag({name}) OVER w THEN '\"{name}\",' END"
            for name in _SHOWN_NAMES
        )
        return f"""
            CREATE OR REPLACE TEMP TABLE shown AS
            WITH seen AS (
                SELECT t.*, s.row_key, s.tenant_id{self._groups_of("s")},
                    s.window_start, s.window_end, {self._value()} AS value,
                    CASE WHEN t.received_at = {BEFORE} THEN s.was_closed
                        ELSE coalesce(t.received_at >= s.closed_at, false) END AS is_closed
                FROM states t JOIN slots s USING (slot)
            ), spelt AS (
                SELECT *, {self._text()} AS text FROM seen WHERE {is_shown}
            )
            SELECT *, lag(text) OVER w AS old_text, concat({", ".join(differing)}) AS names
            FROM spelt WINDOW w AS (PARTITION BY slot ORDER BY received_at)
        """

    def rows(self) -> str:
        """The rows that readers see otherwise than before, as they are at the end."""
        columns = (
            f'{self._sources.get(column.name, column.name)} AS "{column.name}"'
            for column in self._schema.columns
        )
        return f"""
            SELECT row_key, received_at AS row_received_at, {", ".join(columns)} FROM shown
            WHERE received_at > {BEFORE} AND text IS DISTINCT FROM old_text
            QUALIFY row_number() OVER (PARTITION BY slot ORDER BY received_at DESC) = 1
        """

    def kept(self) -> str:
        """What is kept of the windows that may still change."""
        place = f"((last_place % {ORDER_BASE}) + {ORDER_BASE}) % {ORDER_BASE}"
        return f"""
            CREATE OR REPLACE TEMP TABLE kept AS
            SELECT s.row_key, s.lane, s.tenant_id{self._groups_of("s")}, s.window_start,
                s.window_end, t.agg_sum, t.agg_max, t.agg_min, t.agg_count, t.agg_last,
                ((last_place - {place}) // {ORDER_BASE})::BIGINT AS last_ts,
                ({place})::BIGINT AS last_sequence, t.distinct_count,
                s.closed_at IS NOT NULL AS is_closed, true AS is_new,
                coalesce(o.is_stored, false) AS is_stored
            FROM states t JOIN slots s USING (slot) LEFT JOIN open o ON o.row_key = s.row_key
            WHERE NOT s.is_final
            QUALIFY row_number() OVER (PARTITION BY slot ORDER BY received_at DESC) = 1
        """

    def late(self, schema: ViewSchema) -> str:
        """The rows of the facts that came too late."""
        columns = {
            "ingress_sequence": "j.ingress_sequence",
            "part": "0",
            "event_ts": "j.ts",
            "amount": f"j.value::{WIDE}",
            "reason": "'late'",
            "idempotency_key": "j.idempotency_key",
            "original_key": "NULL::VARCHAR",
        }
        named = (
            f'{columns.get(c.name, f"s.{self._sources.get(c.name, c.name)}")} AS "{c.name}"'
            for c in schema.columns
        )
        return f"""
            SELECT j.received_at AS row_received_at, {", ".join(named)}
            FROM judged j JOIN slots s USING (slot) WHERE NOT j.is_counted
        """

    def _distinct_join(self) -> str:
        return """
            LEFT JOIN (
                SELECT slot, received_at, count(*) AS distinct_count FROM new_members GROUP BY ALL
            ) n ON n.slot = p.slot AND n.received_at = p.received_at
        """

    def _groups_of(self, table: str) -> str:
        return "".join(f", {table}.{name}" for name in self.groups)

    def _value(self) -> str:
        values: dict[Aggregate, str] = {
            "sum": "agg_sum",
            "max": "agg_max",
            "min": "agg_min",
            "count": f"agg_count::{WIDE}",
            "last": "agg_last",
            "avg": mean_sql("agg_sum", "agg_count"),
            "unique": f"distinct_count::{WIDE}",
        }
        return values[self._window.aggregate]

    def _text(self) -> str:
        return object_sql(
            f"""'"{column.name}":', {
                json_sql(self._sources.get(column.name, column.name), column.type)
            }"""
            for column in sorted(self._schema.visible, key=lambda column: column.name)
        )


CHANGES: Final = f"""
    SELECT received_at, row_key,
        CASE WHEN old_text IS NULL THEN 'insert' ELSE 'update' END AS operation,
        old_text AS old_row, text AS row,
        CASE WHEN old_text IS NOT NULL THEN concat('[', rtrim(names, ','), ']') END AS changed
    FROM shown WHERE received_at > {BEFORE} AND text IS DISTINCT FROM old_text
"""


def _floor(value: str, step: int) -> str:
    """The greatest multiple of the step that is not above the value, also below zero."""
    return f"({value} - ((({value}) % {step}) + {step}) % {step})"
