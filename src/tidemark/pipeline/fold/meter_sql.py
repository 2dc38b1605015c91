"""The statements of the vectorised fold of meters, from judged facts to rows and changes.

Tables in the order in which they are made: `judged` facts and what was `before`; `partials`, one
row for each key and commit; `states`, the same running; `steps`, what readers see after each, its
text, and the text before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidemark.pipeline.definitions import COUNTERS
from tidemark.pipeline.fold.exact_sql import ORDER_BASE, mean_sql
from tidemark.pipeline.fold.tallies import WANTED
from tidemark.pipeline.fold.texts import WIDE, json_sql, object_sql, quoted
from tidemark.pipeline.output.schema import ViewSchema

# Not loaded in the processes of tasks, which have no configuration to read.
if TYPE_CHECKING:
    from tidemark.config.pipeline_model import Aggregate

# Earlier than every commit.
BEFORE: Final = -1
# What these show as counted is a counter of its own already.
_SHOWN_AS_COUNTED: Final[dict[Aggregate, str]] = {
    "sum": "agg_sum",
    "max": "agg_max",
    "min": "agg_min",
    "last": "agg_last",
}
_KEPT: Final = ("all_sum", "all_max", "all_min", "all_count", "all_last")
# How the aggregates over everything in effect come from the facts of a commit, and go on.
_EVERYTHING: Final = {
    "all_sum": (f"sum(value) FILTER (NOT is_adjust)::{WIDE}", "sum"),
    "all_max": (f"max(value) FILTER (NOT is_adjust)::{WIDE}", "max"),
    "all_min": (f"min(value) FILTER (NOT is_adjust)::{WIDE}", "min"),
    "all_count": ("count(*) FILTER (NOT is_adjust)", "sum"),
}
_RUNNING: Final = "PARTITION BY slot ORDER BY received_at ROWS UNBOUNDED PRECEDING"


def partials_sql(aggregate: Aggregate) -> str:
    """The aggregates of each commit's facts, and those before as one more commit. Of everything
    in effect there is only what the meter's aggregate needs."""
    counted = "reason IS NULL AND NOT is_adjust"
    wanted = [name for name in _EVERYTHING if name in WANTED[aggregate]]
    partial = [f"{_EVERYTHING[name][0]} AS {name}" for name in wanted]
    before = list(wanted)
    if "all_last" in WANTED[aggregate]:
        partial += [
            f"arg_max(value, place) FILTER (NOT is_adjust)::{WIDE} AS all_last",
            "max(place) FILTER (NOT is_adjust) AS all_last_place",
        ]
        before += ["all_last", _place("all_last")]
    if aggregate == "unique":
        partial += ["0::BIGINT AS distinct_counted", "0::BIGINT AS distinct_all"]
        before += ["counted::BIGINT", "all_distinct"]
    return f"""
        CREATE TEMP TABLE partials AS
        SELECT slot, received_at,
            sum(value) FILTER ({counted})::{WIDE} AS agg_sum,
            max(value) FILTER ({counted})::{WIDE} AS agg_max,
            min(value) FILTER ({counted})::{WIDE} AS agg_min,
            count(*) FILTER ({counted}) AS agg_count,
            arg_max(value, place) FILTER ({counted})::{WIDE} AS last,
            max(place) FILTER ({counted}) AS last_place,
            max(ts) FILTER ({counted}) AS watermark_ts,
            sum(value) FILTER (is_adjust)::{WIDE} AS standing_sum,
            count(*) FILTER (is_adjust) AS standing_count
            {_more(partial)}
        FROM judged GROUP BY slot, received_at
        UNION ALL
        SELECT slot, {BEFORE}, agg_sum, agg_max, agg_min, agg_count, agg_last,
            {_place("last")}, watermark_ts, standing_sum, standing_count
            {_more(before)}
        FROM before
    """


# When each value of a `unique` meter came first says how many new ones each commit has.
DISTINCT_SQL: Final = ";".join(
    f"""
        UPDATE partials p SET {column} = n.n FROM (
            SELECT slot, {at} AS at, count(*) AS n FROM members WHERE {at} > {BEFORE} GROUP BY ALL
        ) n WHERE n.slot = p.slot AND n.at = p.received_at
    """
    for column, at in (("distinct_counted", "counted_at"), ("distinct_all", "in_effect_at"))
)


def states_sql(aggregate: Aggregate) -> str:
    """The state of each row after each commit that touched it, and before all of them."""
    running = [
        f"({how}({name}) OVER w)::{'BIGINT' if name == 'all_count' else WIDE} AS {name}"
        for name, (_, how) in _EVERYTHING.items()
        if name in WANTED[aggregate]
    ]
    if aggregate == "unique":
        running += [
            f"(sum({name}) OVER w)::BIGINT AS {name}"
            for name in ("distinct_counted", "distinct_all")
        ]
    lasts = ["last", "all_last"] if "all_last" in WANTED[aggregate] else ["last"]
    # A fact is the last so far if its place is the greatest so far; the value goes with it.
    running += [
        f"{name}, max({name}_place) OVER w AS {name}_place,"
        f" coalesce({name}_place = max({name}_place) OVER w, false) AS {name}_new"
        for name in lasts
    ]
    newest = [
        f"last_value(CASE WHEN {name}_new THEN {name} END IGNORE NULLS) OVER w AS {name}"
        for name in lasts
    ]
    return f"""
        CREATE TEMP TABLE states AS
        WITH totals AS (
            SELECT slot, received_at,
                coalesce(sum(agg_sum) OVER w, 0)::{WIDE} AS agg_sum,
                max(agg_max) OVER w AS agg_max,
                min(agg_min) OVER w AS agg_min,
                (sum(agg_count) OVER w)::BIGINT AS agg_count,
                max(watermark_ts) OVER w AS watermark_ts,
                sum(standing_sum) OVER w AS standing_sum,
                (sum(standing_count) OVER w)::BIGINT AS standing_count
                {_more(running)}
            FROM partials WINDOW w AS ({_RUNNING})
        )
        SELECT * EXCLUDE ({", ".join([*lasts, *(f"{name}_new" for name in lasts)])})
            {_more(newest)}
        FROM totals WINDOW w AS ({_RUNNING})
    """


def steps_sql(aggregate: Aggregate, schema: ViewSchema) -> str:
    """What readers see of each state, its text, the text before, and what differs."""
    counted, everything = _counted(aggregate), _everything(aggregate)
    texts = _own_texts(aggregate)
    return f"""
        CREATE TEMP TABLE steps AS
        WITH amounts AS (
            SELECT *, last AS agg_last, {counted} AS counted,
                CASE WHEN standing_count > 0
                    THEN (coalesce({everything}, 0) + standing_sum)::{WIDE}
                    ELSE {everything} END AS total
            FROM states
        ), complete AS (
            SELECT *, CASE WHEN total IS NULL AND counted IS NULL THEN NULL
                ELSE (coalesce(total, 0) - coalesce(counted, 0))::{WIDE} END AS adjusted
            FROM amounts
        ), spelt AS (
            SELECT * {_more(f"{sql} AS text_{name}" for name, sql in texts)} FROM complete
        ), shown AS (
            SELECT s.* EXCLUDE ({", ".join(f"text_{name}" for name, _ in texts)}),
                k.row_key, {_text(aggregate, schema)} AS text
            FROM spelt s JOIN keys k USING (slot)
        )
        SELECT *, lag(text) OVER w AS old_text, {_changed_names()} AS names FROM shown
        WINDOW w AS (PARTITION BY slot ORDER BY received_at)
    """


CHANGES_SQL: Final = f"""
    SELECT received_at, row_key,
        CASE WHEN old_text IS NULL THEN 'insert' ELSE 'update' END AS operation,
        old_text AS old_row, text AS row,
        CASE WHEN old_text IS NOT NULL THEN concat('[', rtrim(names, ','), ']') END AS changed
    FROM steps WHERE received_at > {BEFORE} AND text IS DISTINCT FROM old_text
"""


def rows_sql(aggregate: Aggregate, schema: ViewSchema) -> str:
    """The rows as they are at the end."""
    columns = (
        f"{_row_source(aggregate, schema, column.name)} AS {quoted(column.name)}"
        for column in schema.columns
    )
    return f"""
        WITH ends AS (
            SELECT slot, max(received_at) AS received_at,
                max(received_at) FILTER (
                    received_at > {BEFORE} AND text IS DISTINCT FROM old_text
                ) AS changed_at
            FROM steps GROUP BY slot
        )
        SELECT s.row_key, coalesce(e.changed_at, b.row_received_at) AS row_received_at,
            {", ".join(columns)}
        FROM steps s JOIN ends e USING (slot, received_at) JOIN keys k USING (slot)
            LEFT JOIN before b USING (slot)
    """


def constant_runs(schema: ViewSchema) -> list[list[str]]:
    """The columns of the key as they stand together in the text of a row."""
    runs: list[list[str]] = []
    together = False
    for name in sorted(column.name for column in schema.visible):
        if name in schema.key:
            if not together:
                runs.append([])
            runs[-1].append(name)
        together = name in schema.key
    return runs


def _counted(aggregate: Aggregate) -> str:
    return {
        "sum": "agg_sum",
        "max": "agg_max",
        "min": "agg_min",
        "count": f"agg_count::{WIDE}",
        "last": "last",
        "avg": mean_sql("agg_sum", "agg_count"),
        "unique": f"distinct_counted::{WIDE}",
    }[aggregate]


def _everything(aggregate: Aggregate) -> str:
    return {
        "sum": f"coalesce(all_sum, 0)::{WIDE}",
        "max": "all_max",
        "min": "all_min",
        "count": f"all_count::{WIDE}",
        "last": "all_last",
        "avg": mean_sql("all_sum", "all_count"),
        "unique": f"distinct_all::{WIDE}",
    }[aggregate]


def _own_texts(aggregate: Aggregate) -> list[tuple[str, str]]:
    """The columns that have a text of their own; others often show the same once more."""
    shared = {"adjusted", "total"} | ({"counted"} if aggregate in _SHOWN_AS_COUNTED else set())
    return [(name, json_sql(name, kind)) for name, kind in COUNTERS if name not in shared]


def _text(aggregate: Aggregate, schema: ViewSchema) -> str:
    """The text of a row, as `encoding.encode_rows` writes it."""
    counted = f"text_{_SHOWN_AS_COUNTED.get(aggregate, 'counted')}"
    total, adjusted = json_sql("total", "decimal"), json_sql("adjusted", "decimal")
    spelt = {name: f"text_{name}" for name, _ in COUNTERS} | {
        "counted": counted,
        "total": f"CASE WHEN total = counted THEN {counted} ELSE {total} END",
        "adjusted": f"""CASE WHEN adjusted = 0 THEN '"0"' ELSE {adjusted} END""",
    }
    members: list[str] = []
    constants = iter(range(len(constant_runs(schema))))
    together = False
    for name in sorted(column.name for column in schema.visible):
        if name in spelt:
            members.append(f"""'"{name}":', {spelt[name]}""")
        elif not together:
            members.append(f"k.constant_{next(constants)}")
        together = name not in spelt
    return object_sql(members)


def _changed_names() -> str:
    """The columns in which a row differs from the one before, each with a comma after it."""
    names = (
        f"CASE WHEN {name} IS DISTINCT FROM lag({name}) OVER w THEN '\"{name}\",' END"
        for name, _ in COUNTERS
    )
    return f"concat({', '.join(names)})"


def _row_source(aggregate: Aggregate, schema: ViewSchema, name: str) -> str:
    """Where a column of a row comes from; what the aggregate does not need is not kept."""
    wanted = WANTED[aggregate]
    if name in schema.key:
        return f"k.{quoted(name)}"
    if name in dict(COUNTERS) or name == "standing_count":
        return f"s.{name}"
    if name == "standing_sum":
        return "CASE WHEN s.standing_count > 0 THEN s.standing_sum END"
    if name == "all_sum" and name in wanted:
        return f"coalesce(s.all_sum, 0)::{WIDE}"
    if name in wanted and name in _KEPT:
        return f"s.{name}"
    if name == "all_distinct" and name in wanted:
        return "s.distinct_all"
    if name in ("last_ts", "last_sequence"):
        return _taken_apart("s.last_place", name)
    if name in ("all_last_ts", "all_last_sequence") and "all_last" in wanted:
        return _taken_apart("s.all_last_place", name)
    return "NULL"


def _more(columns: Iterable[str]) -> str:
    return "".join(f", {column}" for column in columns)


def _place(prefix: str) -> str:
    """The one number for the time and the sequence of a row's last fact."""
    return f"{prefix}_ts::HUGEINT * {ORDER_BASE} + {prefix}_sequence"


def _taken_apart(place: str, name: str) -> str:
    operator = "//" if name.endswith("_ts") else "%"
    return f"({place} {operator} {ORDER_BASE})::BIGINT"
