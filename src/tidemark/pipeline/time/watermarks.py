"""How far the time of each tenant in each stream has come, commit by commit.

A *lane* is one tenant in one stream; it has a watermark W of its own. After a commit, W is the
greatest time seen in the lane less the tolerance, and never less than it was. Two things bend that:

- A time further than the future bound ahead of its commit is *wild*: it does not move W.
- A lane is idle at a commit when its last commit with data is `idle_after` or longer ago. W is then
  at least the commit's `received_at` less `idle_after` less the tolerance.

A stream without event time has no lanes: its W is the `received_at` of the latest commit of any
stream, for all tenants.

Nothing is kept per event and nothing per batch: the greatest time of each commit is enough, and
what is carried on is what the lane would know after these commits however they were cut.

The work is done in DuckDB, by lanes and commits and never event by event. The tables it leaves in
the connection, `lanes` and `steps`, are what `reorder` goes on with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa
from duckdb import DuckDBPyConnection

from tidemark.pipeline.time.plans import StreamTime

LANES_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("tenant_id", pa.string()),
        # W; null where there is none yet.
        ("watermark", pa.int64()),
        # The greatest time that was not wild.
        ("max_seen", pa.int64()),
        # `received_at` of the last commit with data of the lane.
        ("last_data", pa.int64()),
        # `received_at` of the last `end`: what was received until then does not wait any more.
        ("ended_at", pa.int64()),
    ]
)
COMMITS_SCHEMA: Final = pa.schema([("received_at", pa.int64())])
MAXIMA_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("tenant_id", pa.string()),
        ("received_at", pa.int64()),
        # The greatest time of the lane in this commit that is not wild; null if all are.
        ("max_ts", pa.int64()),
    ]
)
ENDS_SCHEMA: Final = pa.schema(
    [("stream", pa.string()), ("tenant_id", pa.string()), ("received_at", pa.int64())]
)

MOVES_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("tenant_id", pa.string()),
        ("received_at", pa.int64()),
        ("w_before", pa.int64()),
        ("w_after", pa.int64()),
    ]
)

# Every lane there is now, numbered, with what is set for its stream and what it knew before.
_LANE: Final = """
CREATE OR REPLACE TEMP TABLE lanes AS
SELECT row_number() OVER (ORDER BY stream, tenant_id) AS lane, *
FROM (SELECT stream, tenant_id FROM lanes_before UNION SELECT stream, tenant_id FROM maxima)
JOIN settings USING (stream)
LEFT JOIN lanes_before USING (stream, tenant_id)
"""

# One row for each lane and commit that has data or finds the lane idle; at all others W stands.
# `greatest` takes no notice of nulls.
_STEP: Final = """
CREATE OR REPLACE TEMP TABLE steps AS
WITH data AS (
  SELECT lane, received_at, max_ts FROM maxima JOIN lanes USING (stream, tenant_id)
),
silence AS (
  SELECT lane, received_at + idle_after AS idle_from,
    lead(received_at) OVER (PARTITION BY lane ORDER BY received_at) AS next_data
  FROM (
    SELECT lane, received_at FROM data
    UNION ALL SELECT lane, last_data FROM lanes WHERE last_data IS NOT NULL
  ) JOIN lanes USING (lane)
  WHERE idle_after IS NOT NULL
),
candidate AS (
  SELECT lane, received_at, max_ts - late_tolerance AS reached FROM data JOIN lanes USING (lane)
  UNION ALL
  SELECT lane, commits.received_at, commits.received_at - idle_after - late_tolerance
  FROM silence
  JOIN commits ON commits.received_at >= idle_from
    AND commits.received_at < coalesce(next_data, 9223372036854775807)
  JOIN lanes USING (lane)
  WHERE idle_from < coalesce(next_data, 9223372036854775807)
)
SELECT lane, received_at,
  greatest(watermark, max(reached) OVER before) AS w_before,
  greatest(watermark, max(reached) OVER until) AS w_after
FROM candidate JOIN lanes USING (lane)
WINDOW
  before AS (PARTITION BY lane ORDER BY received_at
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
  until AS (PARTITION BY lane ORDER BY received_at)
"""

_LANES_AFTER: Final = """
SELECT stream, tenant_id,
  greatest(watermark, reached) AS watermark,
  greatest(max_seen, max_ts) AS max_seen,
  greatest(last_data, received_at) AS last_data,
  greatest(ended_at, ended) AS ended_at
FROM lanes
LEFT JOIN (SELECT lane, max(w_after) AS reached FROM steps GROUP BY lane) USING (lane)
LEFT JOIN (
  SELECT stream, tenant_id, max(max_ts) AS max_ts, max(received_at) AS received_at
  FROM maxima GROUP BY stream, tenant_id
) USING (stream, tenant_id)
LEFT JOIN (
  SELECT stream, tenant_id, max(received_at) AS ended FROM ends GROUP BY stream, tenant_id
) USING (stream, tenant_id)
ORDER BY stream, tenant_id
"""


def no_lanes() -> pa.Table:
    """What is known before the first commit."""
    return LANES_SCHEMA.empty_table()


def register_settings(
    connection: DuckDBPyConnection,
    streams: Mapping[str, StreamTime],
    ordered: Collection[str] = (),
) -> None:
    """Say what is set, once for all batches of a connection; `ordered` are to be put in order."""
    times = streams.values()
    table = pa.table(
        {
            "stream": pa.array(streams, pa.string()),
            "stream_number": pa.array(range(len(streams)), pa.int32()),
            "late_tolerance": pa.array([time.late_tolerance_us for time in times], pa.int64()),
            "future_bound": pa.array([time.future_bound_us for time in times], pa.int64()),
            "idle_after": pa.array([time.idle_after_us for time in times], pa.int64()),
            "by_commit": pa.array([time.column is None for time in times], pa.bool_()),
            "ordered": pa.array([name in ordered for name in streams], pa.bool_()),
        }
    )
    connection.register("settings", table)


def move_watermarks(
    connection: DuckDBPyConnection,
    lanes_before: pa.Table,
    commits: pa.Table,
    maxima: pa.Table,
    ends: pa.Table,
) -> pa.Table:
    """What the lanes know after these commits, in the order of their names.

    `commits` are all commits of the batch, those without data of these streams and those without
    any (ticks) too. To be called after `register_settings`.
    """
    connection.register("lanes_before", lanes_before)
    connection.register("commits", commits)
    connection.register("maxima", maxima)
    connection.register("ends", ends)
    connection.execute(_LANE)
    connection.execute(_STEP)
    return query(connection, _LANES_AFTER).cast(LANES_SCHEMA)


def moves_of(connection: DuckDBPyConnection, streams: Collection[str]) -> pa.Table:
    """How the watermarks of these streams were before and after each commit that has data of a lane
    or finds it idle, after `move_watermarks`."""
    if not streams:
        return MOVES_SCHEMA.empty_table()
    wanted = ", ".join(f"'{stream}'" for stream in streams)
    return query(
        connection,
        "SELECT stream, tenant_id, received_at, w_before, w_after"
        f" FROM steps JOIN lanes USING (lane) WHERE stream IN ({wanted})",
    ).cast(MOVES_SCHEMA)


def query(connection: DuckDBPyConnection, sql: str) -> pa.Table:
    """The result of a query as a table."""
    return connection.sql(sql).to_arrow_table()
