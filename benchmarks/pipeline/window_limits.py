"""Plain engines over the same trades in Parquet: final windows alone, and one sort by time.

They know all events from the start, so they judge no lateness, close no window at a commit, keep
nothing to go on from and write no change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.pipeline.trades import Trade

_WINDOWS = """
SELECT symbol, {start} AS window_start, sum(quantity) AS agg_sum, max(quantity) AS agg_max,
    min(quantity) AS agg_min, count(*) AS agg_count
FROM {source} GROUP BY ALL
"""


class WindowLimits(msgspec.Struct, frozen=True):
    """Seconds for all events; the best of some runs."""

    events: int
    spark_windows_s: float
    duckdb_windows_s: float
    spark_order_s: float
    duckdb_order_s: float


def write_trades(trades: Iterable[Trade], path: Path) -> None:
    """The trades as one Parquet file."""
    rows = list(trades)
    table = pa.table(
        {
            "number": pa.array([trade.number for trade in rows], pa.int64()),
            "ts": pa.array([trade.at for trade in rows], pa.timestamp("us", "UTC")),
            "symbol": [trade.symbol for trade in rows],
            "quantity": pa.array([trade.quantity for trade in rows]).cast(pa.decimal128(28, 9)),
        }
    )
    pq.write_table(table, path)


def measure_window_limits(
    spark: SparkSession, path: Path, events: int, repetitions: int
) -> WindowLimits:
    """Takes turns, after one run of each that is not counted."""
    target = path.with_name("ordered")

    def spark_windows() -> None:
        spark.read.parquet(str(path)).createOrReplaceTempView("trades")
        sql = _WINDOWS.format(start="date_trunc('minute', ts)", source="trades")
        spark.sql(sql).write.format("noop").mode("overwrite").save()

    def duckdb_windows() -> None:
        with duckdb.connect() as database:
            sql = _WINDOWS.format(start="date_trunc('minute', ts)", source=f"'{path}'")
            database.execute(f"CREATE TABLE result AS {sql}")

    def spark_order() -> None:
        ordered = spark.read.parquet(str(path)).orderBy("ts", "number")
        ordered.write.mode("overwrite").parquet(str(target / "spark"))

    def duckdb_order() -> None:
        target.mkdir(exist_ok=True)
        with duckdb.connect() as database:
            database.execute(
                f"COPY (FROM '{path}' ORDER BY ts, number) TO '{target / 'duckdb.parquet'}'"
            )

    works: list[Callable[[], None]] = [spark_windows, duckdb_windows, spark_order, duckdb_order]
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions + 1):
        for work, seconds in zip(works, taken, strict=True):
            began = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - began)
    return WindowLimits(events, *(min(seconds[1:]) for seconds in taken))
