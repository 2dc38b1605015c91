"""The server's memory when far more is sent than can be stored.

Senders do not wait as they are told: what is refused with 429 comes again 50 ms later. Memory is
bounded if its peak in the second half of the time is that of the first half.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import msgspec

from benchmarks.ingest.load import Load
from benchmarks.ingest.rig import Rig
from benchmarks.ingest.services import Service
from benchmarks.ingest.workload import SHAPES, Shape, Workload

SAMPLE_EVERY_S: Final = 0.05
NORMAL: Final = SHAPES[-1]
BATCH: Final = 1000
LARGE_PADDING: Final = 4_000


class Pressure(msgspec.Struct, frozen=True):
    """One kind of overload and what the server's memory did under it."""

    name: str
    load: Load
    peak_mib: float
    peak_first_half_mib: float
    peak_second_half_mib: float


class Memory(msgspec.Struct, frozen=True):
    """The memory of one API process; `peak_mib` is the most it ever had."""

    idle_mib: float
    normal_mib: float
    peak_mib: float
    pressures: list[Pressure]


class _RssSampler:
    """Reads a process's memory while somebody else is working."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.samples: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.samples.append((time.monotonic(), self._service.rss_mib()))
            if self._stop.wait(SAMPLE_EVERY_S):
                return

    def halves_mib(self) -> tuple[float, float]:
        middle = (self.samples[0][0] + self.samples[-1][0]) / 2
        return (
            max(rss for at, rss in self.samples if at <= middle),
            max((rss for at, rss in self.samples if at > middle), default=0.0),
        )


def measure_memory(rig: Rig) -> Memory:
    scale = rig.scale
    many = Shape(BATCH, scale.many_connections)
    large = Shape(BATCH, scale.large_connections)
    with rig.start_api("postgres") as service:
        idle_mib = service.rss_mib()
        rig.measure(service, Workload(NORMAL, scale.events(NORMAL)))
        normal_mib = service.rss_mib()
        ordinary = Workload(many, 2 * many.round_events, 10_000_000)
        padded = Workload(large, large.round_events, 20_000_000, padding=LARGE_PADDING)
        pressures = [
            _press(rig, service, f"{many}", ordinary),
            _press(rig, service, f"{large}, events of {LARGE_PADDING // 1000} kB", padded),
        ]
        return Memory(idle_mib, normal_mib, service.peak_rss_mib(), pressures)


def _press(rig: Rig, service: Service, name: str, workload: Workload) -> Pressure:
    with _RssSampler(service) as sampler:
        load = rig.overload(service, workload, rig.scale.overload_seconds)
    first, second = sampler.halves_mib()
    return Pressure(name, load, max(first, second), first, second)
