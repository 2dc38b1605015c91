"""Which events are late, which are released, at which commit, and in which order.

An event is late if W, as it was before its commit, has reached its time. Any other is released at
the first commit, from its own on, at which W reaches its time, or at which its lane is ended. W
never moves back, so "the first commit at which W reaches this time" is one look into the moves of a
lane, sorted by W: an ASOF join, whatever was cut into batches how.

What a commit does to a stream has four phases, in this order: the rows that the watermarks release,
of all tenants by time and sequence; the watermarks that moved; the rows that an `end` releases; the
late ones by sequence, which are no part of the order.

Only what decides goes through DuckDB. What an event carries stays where it is and is fetched by its
place when the order is known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection

from tidemark.pipeline.time.watermarks import MAXIMA_SCHEMA, query

ROW: Final = "row"
WATERMARK: Final = "watermark"
LATE: Final = "late"

# What an event needs to take its place, and what it carries there.
TUPLES_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("tenant_id", pa.string()),
        ("ts", pa.int64()),
        ("ingress_sequence", pa.int64()),
        ("received_at", pa.int64()),
        ("idempotency_key", pa.string()),
        # JSON text. One batch may hold more than the two gigabytes of the shorter type.
        ("data", pa.large_string()),
    ]
)
# `released_at` is the `received_at` of the commit that did it; `received_at` is the event's own.
RECORDS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("stream", pa.string()),
        ("tenant_id", pa.string()),
        ("released_at", pa.int64()),
        ("watermark", pa.int64()),
        ("ts", pa.int64()),
        ("ingress_sequence", pa.int64()),
        ("received_at", pa.int64()),
        ("idempotency_key", pa.string()),
        ("data", pa.large_string()),
    ]
)
_PLACE: Final = "place"
_DECIDING: Final = ["stream", "tenant_id", "ts", "ingress_sequence", "received_at"]
_CARRIED: Final = ["tenant_id", "ts", "ingress_sequence", "received_at", "idempotency_key", "data"]

_MAXIMA: Final = """
SELECT stream, tenant_id, received_at,
  max(ts) FILTER (WHERE future_bound IS NULL OR ts <= received_at + future_bound) AS max_ts
FROM fresh JOIN settings USING (stream)
WHERE NOT by_commit
GROUP BY stream, tenant_id, received_at
"""

_JUDGED: Final = """
CREATE OR REPLACE TEMP TABLE judged AS
SELECT lane, received_at, ts, ingress_sequence, place, ordered,
  coalesce(ts <= w_before, false) AS is_late,
  coalesce(ts <= w_after, false) AS is_reached
FROM fresh
JOIN lanes USING (stream, tenant_id)
JOIN steps USING (lane, received_at)
"""

# An event that its own commit's W reaches needs no search. `reached_at` wins over an `end` in the
# same commit.
_RELEASED: Final = """
CREATE OR REPLACE TEMP TABLE released AS
WITH pending AS (
  SELECT lane, received_at, ts, ingress_sequence, place
  FROM judged WHERE ordered AND NOT is_late AND NOT is_reached
  UNION ALL
  SELECT lane, received_at, ts, ingress_sequence, place
  FROM waiting JOIN lanes USING (stream, tenant_id)
),
lane_move AS (
  SELECT lane, received_at AS reached_at, w_after
  FROM steps WHERE w_after IS DISTINCT FROM w_before
),
lane_end AS (
  SELECT DISTINCT lane, received_at AS ended_at FROM ends JOIN lanes USING (stream, tenant_id)
),
found AS (
  SELECT pending.*, reached_at, lane_end.ended_at
  FROM pending
  ASOF LEFT JOIN lane_move ON pending.lane = lane_move.lane AND pending.ts <= lane_move.w_after
  ASOF LEFT JOIN lane_end
    ON pending.lane = lane_end.lane AND pending.received_at <= lane_end.ended_at
)
SELECT lane, ts, ingress_sequence, place, received_at AS released_at, 0 AS phase
FROM judged WHERE ordered AND is_reached AND NOT is_late
UNION ALL
SELECT lane, ts, ingress_sequence, place, least(reached_at, ended_at),
  CASE WHEN reached_at <= coalesce(ended_at, reached_at) THEN 0 ELSE 2 END
FROM found
"""

# Phases are told apart by number, lanes too, and neither is text before the rows are sorted.
_RECORDS: Final = """
SELECT stream_number, lane, phase, released_at, watermark, place
FROM (
  SELECT lane, place, phase, released_at, NULL::BIGINT AS watermark, ts AS by_time,
    ingress_sequence, stream_number
  FROM released JOIN lanes USING (lane) WHERE released_at IS NOT NULL
  UNION ALL
  SELECT lane, NULL, 1, received_at, w_after, w_after, 0, stream_number
  FROM steps JOIN lanes USING (lane) WHERE ordered AND w_after IS DISTINCT FROM w_before
  UNION ALL
  SELECT lane, place, 3, received_at, NULL, 0, ingress_sequence, stream_number
  FROM judged JOIN lanes USING (lane) WHERE judged.ordered AND is_late
  UNION ALL
  SELECT NULL, place, 0, received_at, NULL, received_at, ingress_sequence, stream_number
  FROM fresh JOIN settings USING (stream) WHERE by_commit AND ordered
  UNION ALL
  SELECT NULL, NULL, 1, received_at, received_at, received_at, 0, stream_number
  FROM commits CROSS JOIN settings WHERE by_commit AND ordered
)
ORDER BY stream_number, released_at, phase, by_time, ingress_sequence, lane
"""
_KIND_OF_PHASE: Final = (ROW, WATERMARK, ROW, LATE)

_TENANTS: Final = "SELECT tenant_id FROM lanes ORDER BY lane"
_STREAMS: Final = "SELECT stream, stream_number FROM settings"

_LEFT: Final = """
SELECT stream, place FROM released JOIN lanes USING (lane) WHERE released_at IS NULL ORDER BY place
"""

_REACHED: Final = """
SELECT stream, max(w_after) AS reached FROM steps JOIN lanes USING (lane) GROUP BY stream
"""

_COUNTS: Final = """
SELECT stream,
  coalesce(late_count, 0) AS late_count,
  coalesce(wild_count, 0) AS wild_count,
  CASE WHEN by_commit THEN commit_count ELSE coalesce(move_count, 0) END AS watermark_count,
  CASE WHEN by_commit THEN last_commit ELSE max_ts END AS max_ts
FROM settings
LEFT JOIN (
  SELECT stream, count(*) AS late_count FROM judged JOIN lanes USING (lane)
  WHERE is_late GROUP BY stream
) USING (stream)
LEFT JOIN (
  SELECT stream, max(received_at) AS last_commit,
    count(*) FILTER (WHERE NOT by_commit AND ts > received_at + future_bound) AS wild_count
  FROM fresh JOIN settings USING (stream) GROUP BY stream
) USING (stream)
LEFT JOIN (
  SELECT stream, count(*) AS move_count FROM steps JOIN lanes USING (lane)
  WHERE w_after IS DISTINCT FROM w_before GROUP BY stream
) USING (stream)
LEFT JOIN (SELECT stream, max(max_ts) AS max_ts FROM maxima GROUP BY stream) USING (stream)
CROSS JOIN (SELECT count(*) AS commit_count FROM commits)
"""


class Released(NamedTuple):
    """`records` by stream, in order. `fresh_left` and `waiting_left` are the places, by stream, of
    what is not late and goes on waiting, among the new events and among those that waited."""

    records: dict[str, pa.Table]
    fresh_left: dict[str, pa.Array]
    waiting_left: dict[str, pa.Array]


class StreamCounts(NamedTuple):
    """What a batch adds to the metrics of a stream; `max_ts` leaves wild times out."""

    late_count: int
    wild_count: int
    watermark_count: int
    max_ts: int | None


def maxima_of(connection: DuckDBPyConnection, tuples: pa.Table) -> pa.Table:
    """The greatest times of new events by lane and commit, which `move_watermarks` needs."""
    connection.register("fresh", _deciding(tuples, first_place=0))
    return query(connection, _MAXIMA).cast(MAXIMA_SCHEMA)


def reached(connection: DuckDBPyConnection) -> dict[str, int | None]:
    """The greatest W of each stream whose lanes had anything to move them: no event that waits
    with a greater time can be released, unless its lane is ended."""
    table = query(connection, _REACHED)
    return dict(
        zip(table.column("stream").to_pylist(), table.column("reached").to_pylist(), strict=True)
    )


def release(connection: DuckDBPyConnection, tuples: pa.Table, waiting: pa.Table) -> Released:
    """Judge the new events and release what is due among them and among those that `waiting` has.

    To be called after `move_watermarks`, with the tuples that `maxima_of` was called with.
    """
    connection.register("waiting", _deciding(waiting, first_place=tuples.num_rows))
    connection.execute(_JUDGED)
    connection.execute(_RELEASED)
    carried = pa.concat_tables([tuples.select(_CARRIED), waiting.select(_CARRIED)])
    tenants = query(connection, _TENANTS).column("tenant_id")
    records = {
        stream: _filled(stream, found, tenants, carried)
        for stream, found in _by_stream(connection).items()
    }
    left = query(connection, _LEFT)
    fresh_left: dict[str, pa.Array] = {}
    waiting_left: dict[str, pa.Array] = {}
    for stream in pc.unique(left.column("stream")).to_pylist():
        places = left.filter(pc.equal(left.column("stream"), stream)).column(_PLACE)
        is_fresh = pc.less(places, tuples.num_rows)
        fresh_left[stream] = places.filter(is_fresh)
        waiting_left[stream] = pc.subtract(places.filter(pc.invert(is_fresh)), tuples.num_rows)
    return Released(records, fresh_left, waiting_left)


def count(connection: DuckDBPyConnection) -> dict[str, StreamCounts]:
    """What the batch adds to the metrics of each stream. To be called after `release`."""
    return {
        row["stream"]: StreamCounts(
            row["late_count"], row["wild_count"], row["watermark_count"], row["max_ts"]
        )
        for row in query(connection, _COUNTS).to_pylist()
    }


def _deciding(events: pa.Table, first_place: int) -> pa.Table:
    ones = pa.repeat(pa.scalar(1, pa.int64()), events.num_rows)
    places = pc.cumulative_sum(ones, start=first_place - 1)
    return events.select(_DECIDING).append_column(_PLACE, places)


def _by_stream(connection: DuckDBPyConnection) -> dict[str, pa.Table]:
    """What was found for the records of each stream that has any, in order."""
    found = query(connection, _RECORDS)
    names = {row["stream_number"]: row["stream"] for row in query(connection, _STREAMS).to_pylist()}
    parts: dict[str, pa.Table] = {}
    start = 0
    # It is sorted by stream.
    for run in pc.value_counts(found.column("stream_number")).to_pylist():
        parts[names[run["values"]]] = found.slice(start, run["counts"])
        start += run["counts"]
    return parts


def _filled(stream: str, found: pa.Table, tenants: pa.ChunkedArray, carried: pa.Table) -> pa.Table:
    """The records with what their events carry; a watermark has no event."""
    contents = carried.take(found.column(_PLACE))
    lanes = found.column("lane")
    columns = {name: contents.column(name) for name in _CARRIED}
    if lanes.null_count == 0:
        # A watermark has the tenant of its lane. Where there are no lanes it holds for all.
        columns["tenant_id"] = tenants.take(pc.subtract(lanes, 1))
    columns["stream"] = pa.repeat(stream, found.num_rows)
    columns["kind"] = pa.array(_KIND_OF_PHASE).take(found.column("phase").combine_chunks())
    columns |= {name: found.column(name) for name in ("released_at", "watermark")}
    return pa.table([columns[name] for name in RECORDS_SCHEMA.names], schema=RECORDS_SCHEMA)
