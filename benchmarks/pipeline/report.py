"""The results as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ingest.report import machine_lines, section, table
from benchmarks.pipeline.catch_up import CatchUps
from benchmarks.pipeline.growth import GROWTH_STORE, Step
from benchmarks.pipeline.landing import BLOCK_EVENTS, LANDING_STORE, Landings
from benchmarks.pipeline.latency import LATENCY_STORE, Latency
from benchmarks.pipeline.replay import Replays
from benchmarks.pipeline.results import Results, targets
from benchmarks.pipeline.windows import SIZE, WINDOW_STORE, Windowed


def report(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield from machine_lines("Pipeline", results.machine, results.command, results.seconds)
    if results.catch_up is not None:
        yield from _catch_up(results.catch_up)
    if results.growth is not None:
        yield from _growth(results.growth)
    if results.latency is not None:
        yield from _latency(results.latency)
    if results.windows is not None:
        yield from _windows(results.windows)
    if results.landing is not None:
        yield from _landing(results.landing)
    if results.replay is not None:
        yield from _replay(results.replay)
    yield from section("Promised")
    yield from table(
        ("", "wanted", "measured", "met"),
        [(t.what, t.wanted, t.measured, "yes" if t.met else "NO") for t in targets(results)],
    )


def _catch_up(found: CatchUps) -> Iterator[str]:
    limits = found.limits
    yield from section(f"Catch-up, {limits.events:,} events")
    rows = [
        (
            f"{store.store}: rows and change log",
            f"{store.events_per_s:,.0f}",
            " ".join(f"{run.events_per_s:,.0f}" for run in store.runs),
            f"{limits.spark_s * store.events_per_s / limits.events:.2f}",
            f"{limits.duckdb_s * store.events_per_s / limits.events:.3f}",
            f"{store.changes:,}",
            f"{store.rows:,}",
            f"{max(run.peak_rss_mib for run in store.runs):,.0f}",
        )
        for store in found.stores
    ]
    for name, seconds in (("Spark", limits.spark_s), ("DuckDB", limits.duckdb_s)):
        rate = f"{limits.events / seconds:,.0f}"
        rows.append((f"plain {name}: final sums only, from Parquet", rate, *("",) * 6))
    yield from table(
        ("", "events/s", "runs", "of Spark", "of DuckDB", "changes", "rows", "peak MiB"), rows
    )


def _growth(steps: list[Step]) -> Iterator[str]:
    yield from section(f"The next events, by what is there already ({GROWTH_STORE})")
    yield from table(
        (
            "events before",
            "keys",
            "events/s",
            "runs",
            "µs an event",
            "filling, events/s",
            "peak MiB",
        ),
        [
            (
                f"{step.ledger_events:,}",
                f"{step.keys:,}",
                f"{step.events_per_s:,.0f}",
                " ".join(f"{rate:,.0f}" for rate in step.runs),
                f"{1e6 / step.events_per_s:.1f}",
                f"{step.fill_events_per_s:,.0f}",
                f"{step.peak_rss_mib:,.0f}",
            )
            for step in steps
        ],
    )


def _latency(found: list[Latency]) -> Iterator[str]:
    yield from section(f"From commit to visible row ({LATENCY_STORE}, 20 commits a second)")
    yield from table(
        ("events/s", "commits", "p50 ms", "p95 ms", "p99 ms", "max ms"),
        [
            (
                f"{latency.events_per_s:,}",
                f"{latency.commits:,}",
                *(
                    f"{value:,.0f}"
                    for value in (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms)
                ),
            )
            for latency in found
        ],
    )


def _windows(found: Windowed) -> Iterator[str]:
    limits = found.limits
    events = limits.events
    yield from section(f"Windows of {SIZE}, and order by time, {events:,} events ({WINDOW_STORE})")
    rows = []
    for what, rate, runs, spark_s, duckdb_s in (
        (
            f"windows, {found.rows:,} rows and their changes",
            found.windows_per_s,
            found.windows,
            limits.spark_windows_s,
            limits.duckdb_windows_s,
        ),
        (
            "in the order of time, to Parquet",
            found.ordered_per_s,
            found.ordered,
            limits.spark_order_s,
            limits.duckdb_order_s,
        ),
    ):
        rows.append(
            (
                what,
                f"{rate:,.0f}",
                " ".join(f"{run.events_per_s:,.0f}" for run in runs),
                f"{spark_s * rate / events:.2f}",
                f"{duckdb_s * rate / events:.3f}",
                f"{max(run.peak_rss_mib for run in runs):,.0f}",
            )
        )
    for name, seconds in (
        ("Spark: final windows only, from Parquet", limits.spark_windows_s),
        ("DuckDB: final windows only, from Parquet", limits.duckdb_windows_s),
        ("Spark: one sort, Parquet to Parquet", limits.spark_order_s),
        ("DuckDB: one sort, Parquet to Parquet", limits.duckdb_order_s),
    ):
        rows.append((f"plain {name}", f"{events / seconds:,.0f}", *("",) * 4))
    yield from table(("", "events/s", "runs", "of Spark", "of DuckDB", "peak MiB"), rows)


def _replay(found: Replays) -> Iterator[str]:
    yield from section(
        f"Replay of {found.events:,} events beside live views of {found.rows:,} rows"
        " (every row compared, no difference)"
    )
    rows = (
        ("the live views, caught up", found.live_s),
        ("a replay that reads the ledger", found.from_ledger_s),
        ("a replay that reads landed blocks", found.from_blocks_s),
    )
    yield from table(
        ("", "events/s"), [(what, f"{found.events / seconds:,.0f}") for what, seconds in rows]
    )


def _landing(found: Landings) -> Iterator[str]:
    yield from section(
        f"Landing, {found.events:,} events from {LANDING_STORE} in blocks of {BLOCK_EVENTS:,}"
    )
    for name, plain, landed in (
        ("Parquet", "one file", found.parquet),
        ("ClickHouse", "a plain table", found.clickhouse),
    ):
        rows = (
            (f"landed in {name}, durable", landed.landed_per_s, landed.landed_s),
            ("compared with the ledger", landed.compared_per_s, landed.compared_s),
            (f"plain Arrow: from memory to {plain}", landed.arrow_per_s, landed.arrow_s),
        )
        yield from table(
            ("", "events/s", "runs", "of Arrow"),
            [
                (
                    what,
                    f"{rate:,.0f}",
                    " ".join(f"{found.events / seconds:,.0f}" for seconds in runs),
                    f"{rate / landed.arrow_per_s:.2f}",
                )
                for what, rate, runs in rows
            ],
        )
