"""Empties the outbox: claims what is due, sends it, settles what came of it.

Attempts are bounded in all and for each host, so one bad receiver slows no other. What is claimed
but cannot be sent yet waits in the lane of its host; a claim that would run out before its attempt
could end is given back unsent, so no event is on its way from two processes at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.crash import crash_point
from tidemark.errors import TidemarkError
from tidemark.live.webhooks.counters import Counters
from tidemark.live.webhooks.lanes import DeliveryLimits, Lane, Lanes
from tidemark.live.webhooks.outbox import Delivery, Outbox, Settlement
from tidemark.live.webhooks.schedule import (
    NoAnswer,
    Result,
    RetrySchedule,
    is_congested,
    settlement,
)

log = logging.getLogger(__name__)

STORE_PAUSE_S = 1.0
SHORTEST_WAIT_S = 0.01

T = TypeVar("T")


class SendsWebhooks(Protocol):
    """What delivery needs of a `Sender`."""

    @property
    def timeout_s(self) -> float: ...

    async def send(self, delivery: Delivery) -> Result: ...


class Deliverer:
    """Delivers until it is stopped. `counters` may be read at any time."""

    def __init__(
        self,
        outbox: Outbox,
        sender: SendsWebhooks,
        clock: Clock,
        schedule: RetrySchedule | None = None,
        limits: DeliveryLimits | None = None,
    ) -> None:
        self.counters = Counters()
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._schedule = schedule or RetrySchedule()
        self._limits = limits or DeliveryLimits()
        self._lanes = Lanes(self._limits)
        self._attempts: dict[asyncio.Task[None], Delivery] = {}
        self._settlements: deque[Settlement] = deque()
        self._unsent: deque[Delivery] = deque()
        self._look = asyncio.Event()
        self._write = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_over = False

    def wake(self) -> None:
        """Look at the outbox now: there may be something new, or time has passed."""
        self._look.set()

    def stop(self) -> None:
        """Ask `run` to end: attempts may finish within `drain_s`, everything else is given back."""
        self._stopping.set()
        self._look.set()

    async def run(self) -> None:
        """Deliver until `stop`. An error that is not the store's ends this with that error."""
        claiming = asyncio.create_task(self._claim_until_stopped())
        settling = asyncio.create_task(self._settle_until_over())
        try:
            await asyncio.wait({claiming, settling}, return_when=asyncio.FIRST_COMPLETED)
            if settling.done():
                settling.result()
            await claiming
            await self._finish_attempts()
            await self._finish_settling(settling)
        finally:
            tasks = [claiming, settling, *self._attempts]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Claiming.

    async def _claim_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._look.clear()
            room = min(self._limits.held - self.counters.held, self._limits.batch)
            if room <= 0:
                await self._look.wait()
                continue
            full_hosts = self._lanes.full_hosts()
            lease_us = _us(self._limits.lease_s)
            now_us = self._clock.wall_us()
            claimed = await self._patiently(
                partial(self._outbox.claim, now_us, room, lease_us, full_hosts)
            )
            if claimed:
                crash_point("webhook.claimed")
                self._hold(claimed)
            if claimed is not None and len(claimed) < room:
                await self._wait_for_work(full_hosts)

    def _hold(self, claimed: list[Delivery]) -> None:
        self.counters.held += len(claimed)
        for delivery in claimed:
            self._lanes.add(delivery)
        self._start_attempts()
        if self.counters.held > self._limits.held // 2:
            self._give_back(self._lanes.trim())

    async def _wait_for_work(self, full_hosts: set[str]) -> None:
        if self._look.is_set():
            return
        due_us = await self._patiently(partial(self._outbox.next_due, full_hosts))
        wait_s = self._limits.poll_s
        if due_us is not None:
            wait_s = min(wait_s, (due_us - self._clock.wall_us()) / MICROS_PER_SECOND)
        await _wait(self._look, max(wait_s, SHORTEST_WAIT_S))

    # Sending.

    def _start_attempts(self) -> None:
        needed_s = self._sender.timeout_s + self._limits.lease_margin_s
        needed_until = self._clock.wall_us() + _us(needed_s)
        while self.counters.in_flight < self._limits.in_flight and not self._stopping.is_set():
            turn = self._lanes.take_turn()
            if turn is None:
                return
            lane, delivery = turn
            if delivery.lease_until < needed_until:
                lane.in_flight -= 1
                self._lanes.queue_up(lane)
                self._give_back([delivery])
                continue
            self.counters.in_flight += 1
            task = asyncio.create_task(self._attempt(delivery, lane))
            self._attempts[task] = delivery
            task.add_done_callback(self._attempts.pop)

    async def _attempt(self, delivery: Delivery, lane: Lane) -> None:
        attempted_at = self._clock.wall_us()
        started_us = self._clock.elapsed_us()
        try:
            result = await self._send(delivery)
        finally:
            lane.in_flight -= 1
            self.counters.in_flight -= 1
        crash_point("webhook.sent")
        took_s = (self._clock.elapsed_us() - started_us) / MICROS_PER_SECOND
        self.counters.latency.add(took_s)
        if is_congested(result):
            lane.window.congested()
        else:
            lane.window.answered(took_s)
        self._settle(
            settlement(delivery, result, attempted_at, self._clock.wall_us(), self._schedule)
        )
        self._lanes.queue_up(lane)
        self._start_attempts()

    async def _send(self, delivery: Delivery) -> Result:
        try:
            return await self._sender.send(delivery)
        except Exception as error:
            # One event that cannot be sent must not keep the others from it.
            log.exception("webhook %s could not be sent", delivery.event_id)
            return NoAnswer(f"internal error: {type(error).__name__}")

    # Settling.

    def _settle(self, settled: Settlement) -> None:
        counters = self.counters
        if settled.status == "delivered":
            counters.delivered += 1
        elif settled.status == "dead":
            counters.dead += 1
        else:
            counters.failed += 1
        if settled.disable_trigger:
            counters.triggers_disabled += 1
            self._give_back(self._lanes.take_out(settled.trigger))
        self._settlements.append(settled)
        self._write.set()

    def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        before = len(self._unsent)
        self._unsent.extend(deliveries)
        self.counters.released += len(self._unsent) - before
        self._write.set()

    async def _settle_until_over(self) -> None:
        while self._settlements or self._unsent or not self._is_over:
            await self._write.wait()
            self._write.clear()
            await self._write_down()
            self._look.set()

    async def _write_down(self) -> None:
        """Write what has gathered; what the store does not take stays for the next time."""
        while self._settlements:
            settled = list(islice(self._settlements, self._limits.batch))
            await self._until_stored(partial(self._outbox.settle, settled))
            crash_point("webhook.settled")
            self._written(self._settlements, len(settled))
        while self._unsent:
            unsent = list(islice(self._unsent, self._limits.batch))
            await self._until_stored(partial(self._outbox.release, unsent))
            self._written(self._unsent, len(unsent))

    def _written(self, gathered: deque[T], count: int) -> None:
        for _ in range(count):
            gathered.popleft()
        self.counters.held -= count

    # The store may be away.

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """An answer of the store; None, after a pause, if it has none now."""
        try:
            return await ask()
        except TidemarkError as error:
            log.warning("the outbox does not answer: %s", error.message)
            await _wait(self._stopping, STORE_PAUSE_S)
            return None

    async def _until_stored(self, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await write()
            except TidemarkError as error:
                log.warning("webhooks could not be settled yet: %s", error.message)
                await asyncio.sleep(STORE_PAUSE_S)

    # Ending.

    async def _finish_attempts(self) -> None:
        """Give back what waits, and let attempts finish for a while."""
        self._give_back(self._lanes.take_out())
        if self._attempts:
            await asyncio.wait(set(self._attempts), timeout=self._limits.drain_s)
        cut_off = dict(self._attempts)
        for task in cut_off:
            task.cancel()
        await asyncio.gather(*cut_off, return_exceptions=True)
        self._give_back(delivery for task, delivery in cut_off.items() if task.cancelled())

    async def _finish_settling(self, settling: asyncio.Task[None]) -> None:
        self._is_over = True
        self._write.set()
        try:
            async with asyncio.timeout(self._limits.drain_s):
                await settling
        except TimeoutError:
            log.warning(
                "%d webhooks could not be settled before the end; they are sent again, with the"
                " same ids, when their claims have run out",
                self.counters.held,
            )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _us(seconds: float) -> int:
    return int(seconds * MICROS_PER_SECOND)
