"""The results as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.ingest.report import machine_lines, section, table
from benchmarks.pipeline.catch_up import CatchUps
from benchmarks.pipeline.growth import GROWTH_STORE, Step
from benchmarks.pipeline.latency import LATENCY_STORE, Latency
from benchmarks.pipeline.results import Results, targets


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
