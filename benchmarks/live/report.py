"""The results as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.ingest.report import machine_lines, section, table
from benchmarks.live.delivery import Delivery
from benchmarks.live.driving import COMMITS_PER_S
from benchmarks.live.engine import engine_lines
from benchmarks.live.many import Many
from benchmarks.live.results import Results, targets
from benchmarks.live.rig import Used
from benchmarks.live.webhooks import WebhookRate

# Parts of one core.
CORES: Final = ("server", "clients", "feeder", "PostgreSQL")


def report(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield from machine_lines("Live", results.machine, results.command, results.seconds)
    if results.engine is not None:
        yield from engine_lines(results.engine)
    if results.delivery is not None:
        yield from _delivery(results.delivery)
    if results.many is not None:
        yield from _many(results.many)
    if results.webhooks is not None:
        yield from _webhooks(results.webhooks)
    promised = list(targets(results))
    if promised:
        yield from section("Promised")
        yield from table(
            ("", "wanted", "measured", "met"),
            [(t.what, t.wanted, t.measured, "yes" if t.met else "NO") for t in promised],
        )


def _delivery(found: Delivery) -> Iterator[str]:
    yield from section("Every change to every client, as fast as they take it (parts of one core)")
    yield from table(
        (
            "store, clients",
            "changes a commit",
            "under way",
            "messages/s",
            "changes/s",
            "messages a read",
            *CORES,
        ),
        [
            (
                f"{run.store}, {run.cell.clients:,}",
                f"{run.cell.commit_changes:,}",
                f"{run.cell.outstanding:,}",
                f"{run.messages_per_s:,.0f}",
                f"{run.messages_per_s / run.cell.clients:,.0f}",
                f"{run.messages_per_read:.1f}",
                *_cores(run.used),
            )
            for run in found.throughput
        ],
    )
    yield from section(
        f"From commit to client, {COMMITS_PER_S} commits a second (parts of one core)"
    )
    yield from table(
        (
            "store, clients",
            "rows",
            "changes/s",
            "messages",
            "p50 ms",
            "p99 ms",
            "max ms",
            "s to join",
            *CORES,
        ),
        [
            (
                f"{late.store}, {late.clients:,}",
                f"{late.rows:,}",
                f"{late.changes_per_s:,}",
                f"{late.messages:,}",
                *_milliseconds(late.p50_ms, late.p99_ms, late.max_ms),
                f"{late.joined_in_s:.2f}",
                *_cores(late.used),
            )
            for late in found.lateness
        ],
    )
    yield from section("Idle subscribers, each with a filter and a socket of its own")
    yield from table(
        (
            "store",
            "subscribers",
            "rows",
            "s to join",
            "s to resume",
            "MiB before",
            "MiB with them",
            "KiB each",
        ),
        [
            (
                idle.store,
                f"{idle.subscribers:,}",
                f"{idle.rows:,}",
                f"{idle.joined_in_s:.2f}",
                f"{idle.resumed_in_s:.2f}",
                f"{idle.mib_before:.1f}",
                f"{idle.mib_with:.1f}",
                f"{idle.kib_each:.1f}",
            )
            for idle in found.idle
        ],
    )


def _many(found: Sequence[Many]) -> Iterator[str]:
    first = found[0]
    yield from section(
        f"{first.views} views of {first.rows:,} rows, {first.clients:,} clients with filters of"
        " their own (parts of one core)"
    )
    header = ("store", "messages/s", "messages a change", "p50 ms", "p99 ms", "max ms", *CORES)
    rows = []
    for many in found:
        a_change = f"{many.messages_per_change:.1f}"
        rows.append(
            (
                f"{many.store}, as fast as taken",
                f"{many.messages_per_s:,.0f}",
                a_change,
                *("",) * 3,
                *_cores(many.used),
            )
        )
        rows.append(
            (
                f"{many.store}, {many.changes_per_s:,} changes/s",
                f"{many.rate_messages_per_s:,.0f}",
                a_change,
                *_milliseconds(many.p50_ms, many.p99_ms, many.max_ms),
                *_cores(many.rate_used),
            )
        )
    yield from table(header, rows)


def _webhooks(found: Sequence[WebhookRate]) -> Iterator[str]:
    yield from section("Webhooks from the durable outbox (parts of one core)")
    yield from table(
        (
            "store",
            "events",
            "rows",
            "webhooks/s",
            "attempts",
            "p50 ≤ ms",
            "p99 ≤ ms",
            "deliverer",
            "receiver",
        ),
        [
            (
                rate.store,
                f"{rate.events:,}",
                f"{rate.rows:,}",
                f"{rate.webhooks_per_s:,.0f}",
                f"{rate.attempts:,}",
                f"{rate.p50_ms:,.0f}",
                f"{rate.p99_ms:,.0f}",
                f"{rate.deliverer_cpu_share:.2f}",
                f"{rate.receiver_cpu_share:.2f}",
            )
            for rate in found
        ],
    )


def _milliseconds(*values: float) -> tuple[str, ...]:
    return tuple(f"{value:,.1f}" for value in values)


def _cores(used: Used) -> tuple[str, ...]:
    shares = [f"{share:.2f}" for share in (used.server, used.clients, used.feeder)]
    return (*shares, "" if used.postgres is None else f"{used.postgres:.2f}")
