"""Webhooks from the durable outbox to a receiver: claimed, signed, sent, settled.

The outbox is filled before the clock starts. Deliverer and store's client run in this process, the
receiver in another; both say how much of one core they used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.live.webhook_receiver import ReceiverProcess
from tidemark.clock import SystemClock
from tidemark.live.triggers.definition import NewTrigger
from tidemark.live.triggers.port import Advance, NewEvent, TriggerStore
from tidemark.live.triggers.postgres import PostgresTriggers
from tidemark.live.triggers.sqlite import SqliteTriggers
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.counters import LATENCY_BOUNDS_S, Latency
from tidemark.live.webhooks.delivery import Deliverer
from tidemark.live.webhooks.lanes import DeliveryLimits
from tidemark.live.webhooks.sender import Sender
from tidemark.live.webhooks.signing import Signer, new_secret

SQLITE_SCHEME: Final = "sqlite:///"
TRIGGER: Final = "measured"
EVENTS_PER_STEP: Final = 1_000
DONE_WITHIN_S: Final = 600.0
POLL_S: Final = 0.01
# A row of twenty columns or so.
PAYLOAD: Final = (
    '{"event_id":"%s","event_type":"MATCH","trigger_name":"measured","timestamp":"1","data":"'
    + "x" * 500
    + '"}'
)


class WebhookRate(msgspec.Struct, frozen=True):
    """How fast an outbox was emptied. Shares are of one core; `p50_ms` and `p99_ms` are bounds."""

    store: str
    events: int
    rows: int
    seconds: float
    attempts: int
    p50_ms: float
    p99_ms: float
    deliverer_cpu_share: float
    receiver_cpu_share: float

    @property
    def webhooks_per_s(self) -> float:
        return self.events / self.seconds


async def measure_webhooks(
    places: Mapping[str, str],
    *,
    events: int = 10_000,
    rows: int = 5_000,
    limits: DeliveryLimits | None = None,
) -> list[WebhookRate]:
    """For each store: its name and `sqlite:///path` or `postgresql://…`, an empty place."""
    return [
        await _measure(store, url, events, rows, limits or DeliveryLimits())
        for store, url in places.items()
    ]


async def _measure(
    store: str, url: str, events: int, rows: int, limits: DeliveryLimits
) -> WebhookRate:
    triggers = await _open(url)
    try:
        with ReceiverProcess() as receiver:
            await _fill(triggers, receiver.url, events, rows)
            clock = SystemClock()
            async with Sender(
                Signer([new_secret()]), clock, allow=Allowance(["127.0.0.1"])
            ) as sender:
                deliverer = Deliverer(triggers, sender, clock, limits=limits)
                before = receiver.taken()
                started, worked = time.perf_counter(), time.process_time()
                running = asyncio.create_task(deliverer.run())
                await _until_settled(deliverer, running, events)
                seconds = time.perf_counter() - started
                worked = time.process_time() - worked
                after = receiver.taken()
                deliverer.stop()
                await running
    finally:
        await triggers.close()
    if after.requests - before.requests != deliverer.counters.attempts:
        raise RuntimeError("the receiver has counted other requests than were sent")
    latency = deliverer.counters.latency
    return WebhookRate(
        store=store,
        events=events,
        rows=rows,
        seconds=seconds,
        attempts=deliverer.counters.attempts,
        p50_ms=_bound_ms(latency, 0.50),
        p99_ms=_bound_ms(latency, 0.99),
        deliverer_cpu_share=worked / seconds,
        receiver_cpu_share=(after.cpu_s - before.cpu_s) / seconds,
    )


async def _open(url: str) -> TriggerStore:
    if url.startswith(SQLITE_SCHEME):
        return await SqliteTriggers.open(Path(url.removeprefix(SQLITE_SCHEME)))
    return await PostgresTriggers.open(url)


async def _fill(triggers: TriggerStore, webhook: str, events: int, rows: int) -> None:
    trigger = await triggers.add(NewTrigger(TRIGGER, "measured", webhook, "{}"), 0, 0)
    position = trigger.position
    for first in range(0, events, EVENTS_PER_STEP):
        step = [
            NewEvent(
                f"{number:032x}",
                "MATCH",
                f"[{number % rows}]",
                position + 1,
                (PAYLOAD % f"{number:032x}").encode(),
                0,
            )
            for number in range(first, min(first + EVENTS_PER_STEP, events))
        ]
        await triggers.advance([Advance(trigger.id, position, position + 1, events=step)])
        position += 1


async def _until_settled(deliverer: Deliverer, running: asyncio.Task[None], events: int) -> None:
    """Until every event is durably settled: delivered, and no longer held."""
    counters = deliverer.counters
    async with asyncio.timeout(DONE_WITHIN_S):
        while counters.delivered < events or counters.held:
            if running.done():
                running.result()
            if counters.failed or counters.dead:
                raise RuntimeError("a webhook to the receiver of the benchmark has failed")
            await asyncio.sleep(POLL_S)


def _bound_ms(latency: Latency, share: float) -> float:
    """The bound below which this share of the attempts took."""
    reached = 0
    for bound_s, count in zip(LATENCY_BOUNDS_S, latency.counts, strict=False):
        reached += count
        if reached >= share * latency.count:
            return bound_s * 1_000
    return float("inf")
