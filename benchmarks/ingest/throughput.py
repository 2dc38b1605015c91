"""The API at each shape, with and without duplicates, against the limits.

The machine is noisy, so nothing is measured once: limits and API take turns, all of it is repeated,
a ratio is taken between neighbours in time, and what is reported is the median.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from statistics import median
from typing import Final

import msgspec

from benchmarks.ingest.load import Load
from benchmarks.ingest.rig import Rig, Sample
from benchmarks.ingest.services import Store
from benchmarks.ingest.workload import SHAPES, Shape, Workload

# So that no two cells share an event, also where they share a ledger.
EVENTS_APART: Final = 10_000_000


class Variant(msgspec.Struct, frozen=True):
    """What the API stands on and how many processes of it there are."""

    store: Store
    workers: int

    def __str__(self) -> str:
        return self.store if self.workers == 1 else f"{self.store}, {self.workers} workers"


VARIANTS: Final = (Variant("postgres", 1), Variant("sqlite", 1), Variant("postgres", 2))


class Cell(msgspec.Struct, frozen=True):
    """One figure of the table."""

    shape: Shape
    overlap: bool

    def workload(self, rig: Rig) -> Workload:
        number = 2 * SHAPES.index(self.shape) + self.overlap
        events = rig.scale.events(self.shape)
        return Workload(self.shape, events, number * EVENTS_APART, self.overlap)


CELLS: Final = tuple(Cell(shape, overlap) for shape in SHAPES for overlap in (False, True))


class Turn(msgspec.Struct, frozen=True):
    """A sample of the API with the limits that were measured beside it."""

    sample: Sample
    raw_copy_per_s: float
    echo_events_per_s: float


class CellResult(msgspec.Struct, frozen=True):
    """All samples of one cell, and what is said of them: medians, and every error."""

    variant: Variant
    cell: Cell
    turns: list[Turn]
    events_per_s: float
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    first_error: str | None
    of_raw_copy: float
    of_echo: float
    api_cpu_share: float
    postgres_cpu_share: float
    generator_cpu_share: float
    slower_with_overlap: float | None


class EchoResult(msgspec.Struct, frozen=True):
    """The echo server at one shape: medians."""

    shape: Shape
    loads: list[Load]
    events_per_s: float
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    generator_cpu_share: float


class Throughput(msgspec.Struct, frozen=True):
    """The limits and every cell."""

    raw_copy_per_s: float
    raw_copy_samples: list[float]
    echoes: list[EchoResult]
    cells: list[CellResult]

    def cell(self, variant: Variant, shape: Shape, *, overlap: bool = False) -> CellResult:
        return next(
            result
            for result in self.cells
            if result.variant == variant and result.cell == Cell(shape, overlap)
        )

    def echo(self, shape: Shape) -> EchoResult:
        return next(result for result in self.echoes if result.shape == shape)


def measure_throughput(rig: Rig) -> Throughput:
    """Everything, `repetitions` times over."""
    copies: list[float] = []
    echoes: dict[Shape, list[Load]] = {shape: [] for shape in SHAPES}
    turns: dict[tuple[Variant, Cell], list[Turn]] = {}
    for repetition in range(rig.scale.repetitions):
        for variant in VARIANTS:
            print(f"throughput {repetition + 1}: {variant}", file=sys.stderr)
            for cells in _by_ledger(rig):
                with rig.start_api(variant.store, workers=variant.workers) as service:
                    for cell in cells:
                        if not cell.overlap:
                            copies.append(rig.raw_copy_per_s())
                            echoes[cell.shape].append(rig.echo(cell.shape))
                        rig.warm_up(service, cell.shape)
                        sample = rig.measure(service, cell.workload(rig))
                        turn = Turn(sample, copies[-1], echoes[cell.shape][-1].events_per_s)
                        turns.setdefault((variant, cell), []).append(turn)
    return Throughput(
        raw_copy_per_s=median(copies),
        raw_copy_samples=copies,
        echoes=[_echo(shape, loads) for shape, loads in echoes.items()],
        cells=[_cell(variant, cell, turns) for variant, cell in turns],
    )


def _by_ledger(rig: Rig) -> Iterator[tuple[Cell, ...]]:
    if rig.scale.ledger_per_cell:
        for cell in CELLS:
            yield (cell,)
    else:
        yield CELLS


def _cell(
    variant: Variant, cell: Cell, turns: dict[tuple[Variant, Cell], list[Turn]]
) -> CellResult:
    own = turns[variant, cell]
    samples = [turn.sample for turn in own]
    loads = [sample.load for sample in samples]
    slower = None
    if cell.overlap:
        apart = turns[variant, Cell(cell.shape, False)]
        slower = median(
            without.sample.load.events_per_s / turn.sample.load.events_per_s
            for without, turn in zip(apart, own, strict=True)
        )
    return CellResult(
        variant=variant,
        cell=cell,
        turns=own,
        events_per_s=median(load.events_per_s for load in loads),
        requests_per_s=median(load.requests_per_s for load in loads),
        p50_ms=median(load.p50_ms for load in loads),
        p99_ms=median(load.p99_ms for load in loads),
        errors=sum(load.errors for load in loads),
        first_error=next((load.first_error for load in loads if load.errors), None),
        of_raw_copy=median(turn.sample.load.events_per_s / turn.raw_copy_per_s for turn in own),
        of_echo=median(turn.sample.load.events_per_s / turn.echo_events_per_s for turn in own),
        api_cpu_share=median(sample.api_cpu_share for sample in samples),
        postgres_cpu_share=median(sample.postgres_cpu_share for sample in samples),
        generator_cpu_share=median(load.cpu_share for load in loads),
        slower_with_overlap=slower,
    )


def _echo(shape: Shape, loads: list[Load]) -> EchoResult:
    return EchoResult(
        shape=shape,
        loads=loads,
        events_per_s=median(load.events_per_s for load in loads),
        requests_per_s=median(load.requests_per_s for load in loads),
        p50_ms=median(load.p50_ms for load in loads),
        p99_ms=median(load.p99_ms for load in loads),
        errors=sum(load.errors for load in loads),
        generator_cpu_share=median(load.cpu_share for load in loads),
    )
