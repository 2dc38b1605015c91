"""Everything that one run found, and what of it was promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.ingest.costs import Cost
from benchmarks.ingest.growth import Growth
from benchmarks.ingest.machine import Machine
from benchmarks.ingest.memory import Memory
from benchmarks.ingest.throughput import VARIANTS, Throughput
from benchmarks.ingest.workload import SHAPES

SINGLE, _, THOUSANDS = SHAPES
POSTGRES: Final = VARIANTS[0]
LEAST_GROWTH_RATIO: Final = {"postgres": 0.8, "sqlite": 0.6}


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was not asked for is None."""

    command: str
    machine: Machine
    seconds: float
    costs: list[Cost] | None = None
    throughput: Throughput | None = None
    memory: Memory | None = None
    growth: list[Growth] | None = None

    @property
    def errors(self) -> list[str]:
        """What went wrong on the way; a figure with an error says nothing."""
        found = []
        if self.throughput is not None:
            found += [
                f"{result.variant}, {result.cell.shape}: {result.errors} errors,"
                f" first: {result.first_error}"
                for result in self.throughput.cells
                if result.errors
            ]
            found += [
                f"echo, {echo.shape}: {echo.errors} errors"
                for echo in self.throughput.echoes
                if echo.errors
            ]
        if self.memory is not None:
            found += [
                f"overload, {pressure.name}: {pressure.load.errors} errors,"
                f" first: {pressure.load.first_error}"
                for pressure in self.memory.pressures
                if pressure.load.errors
            ]
        found += [
            f"growth, {growth.store}: {growth.errors} errors, first: {growth.first_error}"
            for growth in self.growth or ()
            if growth.errors
        ]
        return found


class Target(msgspec.Struct, frozen=True):
    """Something promised, and what was measured."""

    what: str
    wanted: str
    measured: str
    met: bool


def targets(results: Results) -> Iterator[Target]:
    if results.throughput is not None:
        yield from _throughput_targets(results.throughput)
    for growth in results.growth or ():
        least = LEAST_GROWTH_RATIO[growth.store]
        yield Target(
            f"{growth.store}: throughput at {growth.large_rows:,} rows to that at"
            f" {growth.small_rows:,}",
            f"≥ {least}",
            f"{growth.ratio:.2f}",
            growth.ratio >= least,
        )


def _throughput_targets(throughput: Throughput) -> Iterator[Target]:
    batched = throughput.cell(POSTGRES, THOUSANDS)
    single = throughput.cell(POSTGRES, SINGLE)
    yield Target(
        f"{POSTGRES}, {THOUSANDS}: part of raw COPY",
        "≥ 0.35",
        f"{batched.of_raw_copy:.2f}",
        batched.of_raw_copy >= 0.35,
    )
    yield Target(
        f"{POSTGRES}, {THOUSANDS}: events/s (where raw COPY gives 130,000; here"
        f" {throughput.raw_copy_per_s:,.0f})",
        "≥ 40,000",
        f"{batched.events_per_s:,.0f}",
        batched.events_per_s >= 40_000,
    )
    yield Target(
        f"{POSTGRES}, {SINGLE}: events/s",
        "≥ 5,000",
        f"{single.events_per_s:,.0f}",
        single.events_per_s >= 5_000,
    )
    yield Target(
        f"{POSTGRES}, {SINGLE}: p99", "< 50 ms", f"{single.p99_ms:.1f} ms", single.p99_ms < 50
    )
    for shape in SHAPES:
        slower = throughput.cell(POSTGRES, shape, overlap=True).slower_with_overlap
        assert slower is not None
        yield Target(
            f"{POSTGRES}, {shape}: times slower with 50 % overlap",
            "≤ 1.5",
            f"{slower:.2f}",
            slower <= 1.5,
        )
