"""The final aggregation alone, over the same events in Parquet: no ledger, no change log, no rows.

It is what a batch job would do that only wants the totals. The pipeline also judges lateness,
writes every change of every counter and can go on from there; so it must cost more, and the
question is how much.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.pipeline.workload import METRIC, Workload
from tidemark.ingress.drafts import Draft

_AGGREGATION = """
SELECT tenant_id, customer_ref, date_trunc('month', ts) AS period_start,
    sum(quantity) AS agg_sum, max(quantity) AS agg_max, min(quantity) AS agg_min,
    count(*) AS agg_count, max(ts) AS watermark_ts
FROM {source} WHERE metric = '{metric}' GROUP BY ALL
"""


class Limits(msgspec.Struct, frozen=True):
    """Seconds for one aggregation of all events; the best of some runs."""

    events: int
    spark_s: float
    duckdb_s: float


def write_events(workload: Workload, count: int, path: Path) -> None:
    """The events of a workload as one Parquet file."""
    entries = (e for commit in workload.commits(0, count) for e in commit.submission.entries)
    drafts = [entry for entry in entries if isinstance(entry, Draft)]
    amounts = pa.array([draft.quantity for draft in drafts], pa.string())
    table = pa.table(
        {
            "tenant_id": [draft.tenant_id for draft in drafts],
            "metric": [draft.metric for draft in drafts],
            "customer_ref": [draft.customer_ref for draft in drafts],
            "ts": pa.array([draft.occurred_at for draft in drafts], pa.timestamp("us", "UTC")),
            "quantity": amounts.cast(pa.decimal128(28, 9)),
        }
    )
    pq.write_table(table, path)


def measure_limits(spark: SparkSession, path: Path, events: int, repetitions: int) -> Limits:
    """Takes turns, after one run of each that is not counted."""
    spark_s, duckdb_s = [], []
    for _ in range(repetitions + 1):
        began = time.perf_counter()
        frame = spark.read.parquet(str(path))
        frame.createOrReplaceTempView("events")
        spark.sql(_AGGREGATION.format(source="events", metric=METRIC)).write.format("noop").mode(
            "overwrite"
        ).save()
        spark_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        with duckdb.connect() as database:
            sql = _AGGREGATION.format(source=f"'{path}'", metric=METRIC)
            database.execute(f"CREATE TABLE result AS {sql}")
        duckdb_s.append(time.perf_counter() - began)
    return Limits(events, min(spark_s[1:]), min(duckdb_s[1:]))
