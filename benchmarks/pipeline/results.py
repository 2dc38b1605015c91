"""Everything that one run found, and what of it was promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.ingest.machine import Machine
from benchmarks.ingest.results import Target
from benchmarks.pipeline.catch_up import CatchUps
from benchmarks.pipeline.growth import Step
from benchmarks.pipeline.landing import Landings
from benchmarks.pipeline.latency import Latency
from benchmarks.pipeline.replay import Replays
from benchmarks.pipeline.windows import Windowed

LEAST_EVENTS_PER_S: Final = 30_000
# "Flat" needs a bound: from run to run the same work varies by up to a third here.
LEAST_OF_SMALLEST: Final = 0.7
MOST_P95_MS: Final = 1_000.0


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was not asked for is None."""

    command: str
    machine: Machine
    seconds: float
    catch_up: CatchUps | None = None
    growth: list[Step] | None = None
    latency: list[Latency] | None = None
    windows: Windowed | None = None
    landing: Landings | None = None
    replay: Replays | None = None


def targets(results: Results) -> Iterator[Target]:
    for found in results.catch_up.stores if results.catch_up is not None else ():
        yield Target(
            f"{found.store}: catch-up with the change log, events/s",
            f"≥ {LEAST_EVENTS_PER_S:,}",
            f"{found.events_per_s:,.0f}",
            found.events_per_s >= LEAST_EVENTS_PER_S,
        )
    if results.growth:
        first = results.growth[0]
        for step in results.growth[1:]:
            share = step.events_per_s / first.events_per_s
            yield Target(
                f"the same work on top of {step.ledger_events:,} events and {step.keys:,} keys, to"
                f" that on top of {first.ledger_events:,}",
                f"≥ {LEAST_OF_SMALLEST}",
                f"{share:.2f}",
                share >= LEAST_OF_SMALLEST,
            )
    for latency in results.latency or ():
        yield Target(
            f"commit to row at {latency.events_per_s:,} events/s, p95",
            f"< {MOST_P95_MS:,.0f} ms",
            f"{latency.p95_ms:,.0f} ms",
            latency.p95_ms < MOST_P95_MS,
        )
