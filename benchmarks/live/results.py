"""Everything that one run found, and what of it was promised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.ingest.machine import Machine
from benchmarks.ingest.results import Target
from benchmarks.live.delivery import Delivery
from benchmarks.live.engine import EngineResult, engine_targets
from benchmarks.live.many import Many
from benchmarks.live.webhooks import WebhookRate

MANY_SOCKETS: Final = 1_000
LEAST_MESSAGES_PER_S: Final = 30_000
HOPED_MESSAGES_PER_S: Final = 100_000
MOST_P99_MS: Final = 100.0


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A part that was not asked for is None."""

    command: str
    machine: Machine
    seconds: float
    engine: list[EngineResult] | None = None
    delivery: Delivery | None = None
    many: list[Many] | None = None
    webhooks: list[WebhookRate] | None = None


def targets(results: Results) -> Iterator[Target]:
    if results.engine is not None:
        yield from engine_targets(results.engine)
    if results.delivery is not None:
        yield from _delivery_targets(results.delivery)


def _delivery_targets(delivery: Delivery) -> Iterator[Target]:
    for found in delivery.throughput:
        if found.cell.clients >= MANY_SOCKETS:
            yield Target(
                f"messages/s to {found.cell.clients:,} sockets, {found.cell.commit_changes} changes"
                f" a commit ({HOPED_MESSAGES_PER_S:,} hoped for)",
                f"≥ {LEAST_MESSAGES_PER_S:,}",
                f"{found.messages_per_s:,.0f}",
                found.messages_per_s >= LEAST_MESSAGES_PER_S,
            )
    for late in delivery.lateness:
        yield Target(
            f"{late.store}: commit to client at {late.changes_per_s:,} changes/s of"
            f" {late.rows:,} rows, {late.clients} clients, p99",
            f"< {MOST_P99_MS:.0f} ms",
            f"{late.p99_ms:.1f} ms",
            late.p99_ms < MOST_P99_MS,
        )
