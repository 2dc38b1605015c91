"""The results as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.ingest.costs import Cost
from benchmarks.ingest.growth import Growth
from benchmarks.ingest.machine import Machine
from benchmarks.ingest.memory import Memory
from benchmarks.ingest.results import Results, targets
from benchmarks.ingest.throughput import VARIANTS, Throughput
from benchmarks.ingest.workload import SHAPES

FILL_STEPS_SHOWN = 10


def report(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield from machine_lines("Ingest", results.machine, results.command, results.seconds)
    if results.throughput is not None:
        yield from _limits(results.throughput)
        yield from _cells(results.throughput)
        yield from _generator(results.throughput)
    if results.growth is not None:
        yield from _growth(results.growth)
    if results.memory is not None:
        yield from _memory(results.memory)
    if results.costs is not None:
        yield from _costs(results.costs)
    rows = [
        (target.what, target.wanted, target.measured, "yes" if target.met else "NO")
        for target in targets(results)
    ]
    if rows:
        yield from section("Promised")
        yield from table(("", "wanted", "measured", "met"), rows)
    yield ""
    yield from (f"ERROR: {error}" for error in results.errors)


def machine_lines(name: str, machine: Machine, command: str, seconds: float) -> Iterator[str]:
    """What was measured, when and on what."""
    yield f"{name} benchmark, {machine.measured_at}, {seconds:.0f} s"
    yield f"  command     {command}"
    yield (
        f"  machine     {machine.processor}, {machine.cores} cores, {machine.memory_gib:.0f} GiB,"
        f" {machine.system}, Python {machine.python}"
    )
    yield (
        f"  disk        {machine.disk}, {machine.flush_ms:.2f} ms to write and flush a page;"
        f" load average before the run {machine.load_average:.1f}"
    )
    settings = dict(machine.postgres)
    version = settings.pop("server_version")
    yield f"  PostgreSQL  {version}, " + ", ".join(f"{k} {v}" for k, v in settings.items())


def _limits(throughput: Throughput) -> Iterator[str]:
    yield from section("Limits")
    low, high = min(throughput.raw_copy_samples), max(throughput.raw_copy_samples)
    yield (
        f"  raw COPY into the ledger's table, 1000 rows a transaction, one connection:"
        f" {throughput.raw_copy_per_s:,.0f} rows/s ({low:,.0f} to {high:,.0f})"
    )
    yield from table(
        ("echo server", "events/s", "requests/s", "p50 ms", "p99 ms"),
        [
            (
                str(echo.shape),
                f"{echo.events_per_s:,.0f}",
                f"{echo.requests_per_s:,.0f}",
                f"{echo.p50_ms:.1f}",
                f"{echo.p99_ms:.1f}",
            )
            for echo in throughput.echoes
        ],
    )


def _cells(throughput: Throughput) -> Iterator[str]:
    yield from section("API, durable (CPU in cores)")
    header = (
        "ledger", "batch × connections", "duplicates", "events/s", "(lowest to highest)",
        "requests/s", "p50 ms", "p99 ms", "errors", "of COPY", "of echo", "slower",
        "CPU API", "PostgreSQL", "load",
    )  # fmt: skip
    rows = []
    for result in throughput.cells:
        rates = [turn.sample.load.events_per_s for turn in result.turns]
        slower = result.slower_with_overlap
        rows.append(
            (
                str(result.variant),
                str(result.cell.shape),
                "50 %" if result.cell.overlap else "none",
                f"{result.events_per_s:,.0f}",
                f"({min(rates):,.0f} to {max(rates):,.0f})",
                f"{result.requests_per_s:,.0f}",
                f"{result.p50_ms:.1f}",
                f"{result.p99_ms:.1f}",
                str(result.errors),
                f"{result.of_raw_copy:.2f}",
                f"{result.of_echo:.3f}",
                "" if slower is None else f"{slower:.2f} ×",
                f"{result.api_cpu_share:.2f}",
                f"{result.postgres_cpu_share:.2f}",
                f"{result.generator_cpu_share:.2f}",
            )
        )
    yield from table(header, rows)


def _generator(throughput: Throughput) -> Iterator[str]:
    yield from section("Why the load generator is not the bottleneck")
    yield "  It is one process. To the echo server it sends so many a second for so much of a core,"
    yield "  with a whole core it could send so many; the API takes so many, for so much of a core."
    rows = []
    for shape in SHAPES:
        echo = throughput.echo(shape)
        fastest = max(
            (throughput.cell(variant, shape) for variant in VARIANTS),
            key=lambda result: result.requests_per_s,
        )
        ceiling = echo.requests_per_s / echo.generator_cpu_share
        rows.append(
            (
                str(shape),
                f"{echo.requests_per_s:,.0f}",
                f"{echo.generator_cpu_share:.2f}",
                f"{ceiling:,.0f}",
                f"{fastest.requests_per_s:,.0f} ({fastest.variant})",
                f"{fastest.generator_cpu_share:.2f}",
                f"{ceiling / fastest.requests_per_s:.1f} ×",
            )
        )
    yield from table(
        ("", "to echo", "of a core", "with a core", "to the API, fastest", "of a core", "room"),
        rows,
    )


def _growth(stores: Sequence[Growth]) -> Iterator[str]:
    yield from section(f"Growth, {SHAPES[-1]}, without duplicates")
    yield from table(
        ("ledger", "small", "events/s", "large", "events/s", "ratio", "errors"),
        [
            (
                growth.store,
                f"{growth.small_rows:,}",
                f"{growth.small_events_per_s:,.0f}",
                f"{growth.large_rows:,}",
                f"{growth.large_events_per_s:,.0f}",
                f"{growth.ratio:.2f}",
                str(growth.errors),
            )
            for growth in stores
        ],
    )
    for growth in stores:
        every = max(1, len(growth.fill) // FILL_STEPS_SHOWN)
        steps = ", ".join(
            f"{step.rows_before:,}: {step.events_per_s:,.0f}" for step in growth.fill[::every]
        )
        yield f"  {growth.store}, events/s while it was filled, by rows: {steps}"


def _memory(memory: Memory) -> Iterator[str]:
    yield from section("Memory of the API's process on PostgreSQL under overload")
    yield (
        f"  idle {memory.idle_mib:.0f} MiB, after {SHAPES[-1]} {memory.normal_mib:.0f} MiB,"
        f" most ever {memory.peak_mib:.0f} MiB"
    )
    yield from table(
        ("overload", "stored events/s", "429/s", "peak MiB", "first half", "second half", "errors"),
        [
            (
                pressure.name,
                f"{pressure.load.events_per_s:,.0f}",
                f"{pressure.load.refused / pressure.load.seconds:,.0f}",
                f"{pressure.peak_mib:.0f}",
                f"{pressure.peak_first_half_mib:.0f}",
                f"{pressure.peak_second_half_mib:.0f}",
                str(pressure.load.errors),
            )
            for pressure in memory.pressures
        ],
    )


def _costs(costs: Sequence[Cost]) -> Iterator[str]:
    yield from section("CPU of one event in a batch of 1000")
    yield from table(("step", "µs"), [(cost.step, f"{cost.us:.2f}") for cost in costs])


def section(title: str) -> Iterator[str]:
    yield ""
    yield title


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of text; the first is aligned left, the others right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield ("  " + "  ".join(cells)).rstrip()
