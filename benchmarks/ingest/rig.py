"""What stands ready for a whole run, and how much of everything is measured."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Final, Self

import msgspec

from benchmarks.ingest.load import Job, Load, LoadGenerator
from benchmarks.ingest.raw_copy import RawCopy
from benchmarks.ingest.services import (
    ApiService,
    CpuMeter,
    EchoService,
    Service,
    Store,
    postmaster_pid,
)
from benchmarks.ingest.workload import Shape, Workload, whole_rounds
from tests.services.postgres import PostgresServer

# Far from the numbers of all events that are measured.
WARM_UP_FIRST: Final = 900_000_000


class Scale(msgspec.Struct, frozen=True):
    """How much is measured. `ledger_per_cell` gives each figure an empty ledger of its own.

    `many_connections` send ordinary requests in an overload, `large_connections` very large ones.
    """

    repetitions: int
    single_events: int
    batched_events: int
    echo_seconds: float
    ledger_per_cell: bool
    warm_up_rounds: int
    small_rows: int
    large_rows: int
    fill_chunk: int
    growth_events: int
    overload_seconds: float
    many_connections: int
    large_connections: int

    def events(self, shape: Shape) -> int:
        return whole_rounds(shape, self.single_events if shape.batch == 1 else self.batched_events)


FULL: Final = Scale(
    repetitions=3,
    single_events=15_000,
    batched_events=120_000,
    echo_seconds=1.0,
    ledger_per_cell=True,
    warm_up_rounds=2,
    small_rows=100_000,
    large_rows=2_000_000,
    fill_chunk=100_000,
    growth_events=50_000,
    overload_seconds=8.0,
    many_connections=256,
    large_connections=32,
)
QUICK: Final = Scale(
    repetitions=1,
    single_events=128,
    batched_events=1_600,
    echo_seconds=0.05,
    ledger_per_cell=False,
    warm_up_rounds=1,
    small_rows=1_000,
    large_rows=4_000,
    fill_chunk=2_000,
    growth_events=2_000,
    overload_seconds=0.3,
    many_connections=32,
    large_connections=8,
)


class Sample(msgspec.Struct, frozen=True):
    """One measurement of the API: what was sent, and how much of a core who used."""

    load: Load
    api_cpu_share: float
    postgres_cpu_share: float


class Rig:
    """PostgreSQL with everything flushed, the load generator and the two limits."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        with contextlib.ExitStack() as stack:
            self.postgres = stack.enter_context(PostgresServer(durable=True))
            self._generator = stack.enter_context(LoadGenerator())
            self._echo = stack.enter_context(EchoService())
            self._raw_copy = RawCopy(self.postgres, scale.batched_events)
            self._postgres_cpu = CpuMeter(postmaster_pid(self.postgres))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def start_api(self, store: Store, *, workers: int = 1) -> ApiService:
        return ApiService(store, self.postgres, workers=workers)

    def warm_up(self, service: Service, shape: Shape) -> None:
        """Connections made, statements prepared, code paths taken once."""
        events = self.scale.warm_up_rounds * shape.round_events
        first = WARM_UP_FIRST + shape.batch * 1_000_000
        self._generator.run(Job(service.port, Workload(shape, events, first)))

    def measure(self, service: Service, workload: Workload) -> Sample:
        """Send the workload once and look at who worked how much for it."""
        api_cpu = CpuMeter(service.pid)

        def start_meters() -> None:
            api_cpu.start()
            self._postgres_cpu.start()

        load = self._generator.run(Job(service.port, workload), just_before=start_meters)
        if load.accepted != workload.keys and not load.errors:
            reason = f"{load.accepted} events were accepted and {workload.keys} are new"
            load = msgspec.structs.replace(load, errors=1, first_error=reason)
        return Sample(load, api_cpu.share(load.seconds), self._postgres_cpu.share(load.seconds))

    def overload(self, service: Service, workload: Workload, seconds: float) -> Load:
        """Send for some time, and what is refused for want of room again and again."""
        job = Job(service.port, workload, seconds=seconds, retry_pause_ms=50.0)
        return self._generator.run(job)

    def echo(self, shape: Shape) -> Load:
        """The echo server at this shape."""
        workload = Workload(shape, 4 * shape.round_events)
        seconds = self.scale.echo_seconds
        return self._generator.run(Job(self._echo.port, workload, seconds, answer="echo"))

    def raw_copy_per_s(self) -> float:
        return self._raw_copy.rows_per_s()
