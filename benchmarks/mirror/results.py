"""Everything that one run found."""

from __future__ import annotations

import msgspec

from benchmarks.ingest.machine import Machine
from benchmarks.mirror.away import Away
from benchmarks.mirror.sources import Sources
from benchmarks.mirror.throughput import Throughput


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was not asked for is None."""

    command: str
    machine: Machine
    kafka: str
    seconds: float
    throughput: list[Throughput] | None = None
    away: list[Away] | None = None
    pipeline: Sources | None = None
