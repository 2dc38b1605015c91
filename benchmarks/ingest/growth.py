"""The same throughput when the ledger is small and when it is large.

Two ledgers stand side by side, one filled a little and one filled far, and take turns, so that the
hour of the day is the same for both.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Final

import msgspec

from benchmarks.ingest.rig import Rig, Sample
from benchmarks.ingest.services import Service, Store
from benchmarks.ingest.workload import SHAPES, Workload

SHAPE: Final = SHAPES[-1]
STORES: Final[tuple[Store, ...]] = ("postgres", "sqlite")


class FillStep(msgspec.Struct, frozen=True):
    """One step on the way to the large ledger."""

    rows_before: int
    events_per_s: float


class Growth(msgspec.Struct, frozen=True):
    """One store. `ratio` is large to small, the median of turns."""

    store: Store
    small_rows: int
    large_rows: int
    small_events_per_s: float
    large_events_per_s: float
    ratio: float
    errors: int
    first_error: str | None
    fill: list[FillStep]
    small: list[Sample]
    large: list[Sample]


class _Ledger:
    """An API over a ledger of which we know how many rows it has."""

    def __init__(self, rig: Rig, service: Service) -> None:
        self._rig = rig
        self._service = service
        self.rows = 0
        self.samples: list[Sample] = []

    def send(self, events: int) -> Sample:
        sample = self._rig.measure(self._service, Workload(SHAPE, events, self.rows))
        self.rows += events
        self.samples.append(sample)
        return sample

    def fill(self, rows: int, chunk: int) -> list[FillStep]:
        steps = []
        while self.rows < rows:
            before = self.rows
            sample = self.send(min(chunk, rows - self.rows))
            steps.append(FillStep(before, sample.load.events_per_s))
        return steps


def measure_growth(rig: Rig) -> list[Growth]:
    return [_measure_store(rig, store) for store in STORES]


def _measure_store(rig: Rig, store: Store) -> Growth:
    scale = rig.scale
    print(f"growth: filling {store} to {scale.large_rows:,} rows", file=sys.stderr)
    starting = rig.start_api(store), rig.start_api(store)
    with starting[0] as small_service, starting[1] as large_service:
        small, large = _Ledger(rig, small_service), _Ledger(rig, large_service)
        fill = large.fill(scale.large_rows, scale.fill_chunk)
        small.fill(scale.small_rows, scale.fill_chunk)
        print(f"growth: measuring {store}", file=sys.stderr)
        pairs = [
            (small.send(scale.growth_events), large.send(scale.growth_events))
            for _ in range(scale.repetitions)
        ]
    everything = [sample.load for sample in (*small.samples, *large.samples)]
    return Growth(
        store=store,
        small_rows=scale.small_rows,
        large_rows=scale.large_rows,
        small_events_per_s=median(pair[0].load.events_per_s for pair in pairs),
        large_events_per_s=median(pair[1].load.events_per_s for pair in pairs),
        ratio=median(pair[1].load.events_per_s / pair[0].load.events_per_s for pair in pairs),
        errors=sum(load.errors for load in everything),
        first_error=next((load.first_error for load in everything if load.errors), None),
        fill=fill,
        small=[pair[0] for pair in pairs],
        large=[pair[1] for pair in pairs],
    )
