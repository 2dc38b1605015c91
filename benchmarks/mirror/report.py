"""The results as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.ingest.report import machine_lines, section, table
from benchmarks.mirror.away import AWAY_STORE, Away
from benchmarks.mirror.results import Results
from benchmarks.mirror.sources import SOURCES_STORE, FromSource, Sources
from benchmarks.mirror.throughput import Run, Throughput

# Parts of one core.
CORES: Final = ("sender", "broker", "PostgreSQL")


def report(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield from machine_lines("Mirror", results.machine, results.command, results.seconds)
    yield f"  Kafka       {results.kafka}, one broker on this machine, which flushes as by default"
    for found in results.throughput or ():
        yield from _throughput(found)
    if results.away is not None:
        yield from _away(results.away)
    if results.pipeline is not None:
        yield from _sources(results.pipeline)


def _throughput(found: Throughput) -> Iterator[str]:
    yield from section(
        f"Ledger to Kafka, {found.events:,} events in commits of 100, {found.store}"
        " (parts of one core)"
    )
    yield from table(
        ("", "events/s", "runs", "of plain", "µs an event", "CPU µs", *CORES, "peak MiB"),
        [
            (
                "mirror",
                *_speed(found.events, found.mirror, found.mirror_per_s, f"{found.of_plain:.2f}"),
            ),
            (
                "plain producer, messages from memory",
                *_speed(found.events, found.plain, found.plain_per_s, "1.00"),
            ),
        ],
    )
    yield from section("Memory of the mirror")
    yield from table(
        ("events in Kafka", "after s", "MiB"),
        [
            (f"{point.events:,}", f"{point.seconds:.1f}", f"{point.rss_mib:.0f}")
            for point in found.memory()
        ],
    )


def _speed(events: int, runs: Sequence[Run], per_s: float, of_plain: str) -> Iterator[str]:
    middle = sorted(runs, key=lambda run: run.sent.seconds)[len(runs) // 2]
    yield f"{per_s:,.0f}"
    yield " ".join(f"{events / run.sent.seconds:,.0f}" for run in runs)
    yield of_plain
    yield f"{1e6 / per_s:.1f}"
    yield f"{middle.sent.cpu_s / events * 1e6:.1f}"
    yield f"{middle.sender:.2f}"
    yield f"{middle.broker:.2f}"
    yield "" if middle.postgres is None else f"{middle.postgres:.2f}"
    yield f"{max(run.sent.peak_rss_mib for run in runs):,.0f}"


def _away(found: Sequence[Away]) -> Iterator[str]:
    yield from section(
        f"The broker killed and away under a steady stream ({AWAY_STORE}, feeder in parts of one"
        " core)"
    )
    yield from table(
        (
            "away s",
            "events/s",
            "p50 ms before",
            "max ms before",
            "broker started in s",
            "events waiting",
            "caught up after s",
            "MiB before",
            "MiB most",
            "feeder",
        ),
        [
            (
                f"{each.away_s:g}",
                f"{each.events_per_s:,}",
                f"{each.p50_ms_before:.0f}",
                f"{each.max_ms_before:.0f}",
                f"{each.broker_start_s:.1f}",
                f"{each.waiting_events:,}",
                f"{each.caught_up_s:.1f}",
                f"{each.mib_before:.0f}",
                f"{each.mib_most:.0f}",
                f"{each.feeder:.2f}",
            )
            for each in found
        ],
    )


def _sources(found: Sources) -> Iterator[str]:
    yield from section(
        f"Into views, {found.events:,} events in batches of up to {found.max_batch_events:,}"
        f" ({SOURCES_STORE})"
    )
    yield from table(
        (
            "",
            "events/s",
            "runs",
            "of ledger",
            "batches",
            "first batch s",
            "s a batch",
            "peak MiB",
        ),
        [
            ("from the ledger", *_source(found.events, found.ledger, "1.00")),
            ("from Kafka", *_source(found.events, found.kafka, f"{found.of_ledger:.2f}")),
        ],
    )


def _source(events: int, found: FromSource, of_ledger: str) -> Iterator[str]:
    last = found.runs[-1]
    yield f"{events / found.seconds:,.0f}"
    yield " ".join(f"{events / run.seconds:,.0f}" for run in found.runs)
    yield of_ledger
    yield f"{last.batches}"
    yield f"{last.first_batch_s:.1f}"
    yield "" if found.batch_s is None else f"{found.batch_s:.1f}"
    yield f"{max(run.peak_rss_mib for run in found.runs):,.0f}"
