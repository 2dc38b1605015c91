"""Delivery against real receivers, good and bad, over an outbox whose books are open."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services.webhook_receiver import (
    Received,
    WebhookReceiver,
    answering,
    reply,
    silent,
)
from tests.unit.live.memory_outbox import MemoryOutbox
from tidemark.clock import SystemClock
from tidemark.errors import TidemarkError
from tidemark.live.webhooks.addresses import Allowance
from tidemark.live.webhooks.delivery import Deliverer
from tidemark.live.webhooks.lanes import DeliveryLimits
from tidemark.live.webhooks.outbox import Delivery, Settlement
from tidemark.live.webhooks.schedule import RetrySchedule
from tidemark.live.webhooks.sender import Sender
from tidemark.live.webhooks.signing import Signer, new_secret

SIGNER = Signer([new_secret()])
LOCAL = Allowance(["127.0.0.0/8"])
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
WITHIN_S = 20


class SettableClock(SystemClock):
    """The machine's clock, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_us


class Delivering:
    """A deliverer at work, and how to wait for what it does."""

    def __init__(self, outbox: MemoryOutbox, deliverer: Deliverer, clock: SettableClock) -> None:
        self.outbox = outbox
        self.deliverer = deliverer
        self.counters = deliverer.counters
        self.clock = clock

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not happened():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def advance_to_next_attempts(self, within_us: int) -> bool:
        """Waits until nothing is on its way, then lets time pass until something is again.

        False if that would take it further than this from the beginning.
        """
        await self.until(lambda: not self.counters.held and not self.is_due())
        settled = self.counters.attempts
        due = await self.outbox.next_due(())
        if due is None or self.clock.ahead_us + due - self.clock.wall_us() > within_us:
            return False
        self.advance((due - self.clock.wall_us()) / SECOND_US)
        await self.until(lambda: self.counters.attempts > settled)
        return True

    def is_due(self) -> bool:
        now = self.clock.wall_us()
        return any(e.status == "pending" and e.next_attempt_at <= now for e in self.outbox.heads())

    def advance(self, seconds: float) -> None:
        self.clock.ahead_us += int(seconds * SECOND_US)
        self.deliverer.wake()


@asynccontextmanager
async def delivering(
    outbox: MemoryOutbox,
    *,
    timeout_s: float = 0.5,
    schedule: RetrySchedule | None = None,
    limits: DeliveryLimits | None = None,
) -> AsyncIterator[Delivering]:
    clock = SettableClock()
    async with Sender(SIGNER, clock, allow=LOCAL, timeout_s=timeout_s) as sender:
        deliverer = Deliverer(outbox, sender, clock, schedule, limits)
        running = asyncio.create_task(deliverer.run())
        try:
            yield Delivering(outbox, deliverer, clock)
        finally:
            deliverer.stop()
            await running


async def test_everything_is_delivered_once_and_settled() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver() as receiver:
        entries = [outbox.enqueue(receiver.url) for _ in range(1_200)]
        # This is not about time: on a busy machine half a second may be too short for an answer.
        async with delivering(outbox, timeout_s=15) as work:
            await work.until(lambda: outbox.is_settled)
            assert (work.counters.delivered, work.counters.failed) == (1_200, 0)
        assert sorted(receiver.event_ids) == sorted(entry.event_id for entry in entries)
        assert {e.body for e in receiver.received} == {entry.payload for entry in entries}
    assert {(e.status, e.attempts, e.last_status) for e in outbox.entries.values()} == {
        ("delivered", 1, 200)
    }
    assert (work.counters.held, work.counters.in_flight, work.counters.latency.count) == (
        0,
        0,
        1_200,
    )


async def test_what_is_enqueued_later_is_delivered_on_waking() -> None:
    outbox = MemoryOutbox()
    async with (
        WebhookReceiver() as receiver,
        delivering(outbox, limits=DeliveryLimits(poll_s=60)) as work,
    ):
        await work.until(lambda: outbox.claims > 0)
        await asyncio.sleep(0.05)
        outbox.enqueue(receiver.url)
        started = time.monotonic()
        work.deliverer.wake()
        await work.until(lambda: outbox.is_settled)
        assert time.monotonic() - started < 5


async def test_a_retry_comes_by_itself_when_it_is_due() -> None:
    outbox = MemoryOutbox()
    soon = RetrySchedule(first_delay_us=SECOND_US // 5)
    async with WebhookReceiver(answering(500)) as receiver:
        outbox.enqueue(receiver.url)
        async with delivering(outbox, schedule=soon, limits=DeliveryLimits(poll_s=60)) as work:
            await work.until(lambda: work.counters.failed == 1)
            receiver.behave = answering(200)
            await work.until(lambda: outbox.is_settled)
    assert outbox.entries[1].attempts == 2


async def test_a_receiver_that_is_down_for_an_hour_gets_everything_in_order_afterwards() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver() as receiver:
        await receiver.down()
        for number in range(30):
            outbox.enqueue(receiver.url, key=f"key-{number % 3}")
        async with delivering(outbox) as work:
            while await work.advance_to_next_attempts(within_us=HOUR_US):
                assert outbox.of("delivered") == []
            heads, behind = list(outbox.entries.values())[:3], list(outbox.entries.values())[3:]
            assert all(5 <= entry.attempts <= 15 for entry in heads)
            assert {entry.attempts for entry in behind} == {0}
            await receiver.up()
            # A pause is never longer than twice the outage so far, and each success makes the next
            # of its key due.
            while await work.advance_to_next_attempts(within_us=3 * HOUR_US + MINUTE_US):
                pass
            await work.until(lambda: outbox.is_settled)
    assert outbox.is_settled
    assert outbox.of("dead") == []
    assert_in_order(outbox, receiver.event_ids)


async def test_a_receiver_that_never_comes_back_ends_in_dead_letters_that_free_their_keys() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver(answering(500, b"broken")) as receiver:
        first = outbox.enqueue(receiver.url, key="k")
        second = outbox.enqueue(receiver.url, key="k")
        async with delivering(outbox) as work:
            await work.until(lambda: work.counters.failed == 1)
            work.advance(3 * 24 * 3_600 + 1)
            await work.until(lambda: outbox.entries[1].status == "dead")
            receiver.behave = answering(200)
            await work.until(lambda: outbox.entries[2].attempts > 0)
            work.advance(60)
            await work.until(lambda: outbox.is_settled)
    assert outbox.entries[1].last_error == "answered 500: broken"
    assert outbox.entries[2].status == "delivered"
    assert receiver.event_ids[:2] == [first.event_id] * 2
    assert set(receiver.event_ids[2:]) == {second.event_id}
    assert work.counters.dead == 1


async def test_410_disables_the_trigger_and_stops_its_events() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver(answering(410)) as receiver, WebhookReceiver() as other:
        for _ in range(300):
            outbox.enqueue(receiver.url, trigger="gone")
        outbox.enqueue(other.url, trigger="fine")
        async with delivering(outbox) as work:
            await work.until(lambda: bool(outbox.of("delivered")) and not outbox.of("delivering"))
            await asyncio.sleep(0.1)
            attempts = work.counters.dead
            assert 1 <= attempts <= 40
            assert len(receiver.received) == attempts == len(outbox.of("dead"))
            assert len(outbox.of("pending")) == 300 - attempts
    assert outbox.disabled == {"gone"}
    assert len(other.received) == 1


@pytest.mark.parametrize("badness", ["silent", "slow", "garbage", "endless", "refusing"])
async def test_one_bad_receiver_slows_no_other(badness: str) -> None:
    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5)
        writer.write(reply(200))

    async def garbage(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00" * 50)
        writer.close()

    async def endless(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 9999999999\r\n\r\n")
        while True:
            writer.write(b"no " * 10)
            await writer.drain()
            await asyncio.sleep(0.02)

    behaviours = {"silent": silent(), "slow": slow, "garbage": garbage, "endless": endless}
    outbox = MemoryOutbox()
    bad = WebhookReceiver(behaviours.get(badness))
    async with WebhookReceiver() as good:
        if badness != "refusing":
            await bad.up()
        try:
            for _ in range(3_000):
                outbox.enqueue(bad.url, trigger="bad")
            for _ in range(300):
                outbox.enqueue(good.url, trigger="good")
            limits = DeliveryLimits(in_flight=50, in_flight_per_host=10, drain_s=0.2)
            async with delivering(outbox, timeout_s=10, limits=limits) as work:
                started = time.monotonic()
                await work.until(lambda: len(good.received) == 300)
                took_s = time.monotonic() - started
                # With its bad neighbour in the way it would be at least a timeout.
                assert took_s < 5
                assert work.counters.held <= limits.held
        finally:
            await bad.down()
    assert [e.status for e in outbox.entries.values() if e.trigger == "good"] == ["delivered"] * 300


async def test_a_dozen_silent_receivers_slow_no_other() -> None:
    outbox = MemoryOutbox()
    limits = DeliveryLimits(in_flight=50, in_flight_per_host=10, held=600, drain_s=0.2)
    async with AsyncExitStack() as stack:
        bad = [await stack.enter_async_context(WebhookReceiver(silent())) for _ in range(12)]
        good = await stack.enter_async_context(WebhookReceiver())
        for _ in range(60):
            for receiver in bad:
                outbox.enqueue(receiver.url)
        for _ in range(200):
            outbox.enqueue(good.url)
        async with delivering(outbox, timeout_s=10, limits=limits) as work:
            started = time.monotonic()
            await work.until(lambda: len(good.received) == 200)
            assert time.monotonic() - started < 5
            assert work.counters.held <= limits.held


async def test_a_silent_host_is_probed_one_at_a_time_until_it_answers() -> None:
    outbox = MemoryOutbox()
    at_once = 0
    most_at_once: list[int] = []

    async def hold(request: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once
        at_once += 1
        most_at_once.append(at_once)
        try:
            # Hardly longer than the other waits: a busy machine may let some of these overlap.
            await asyncio.sleep(0.35)
            writer.close()
        finally:
            at_once -= 1

    async with WebhookReceiver(hold) as receiver:
        for _ in range(100):
            outbox.enqueue(receiver.url)
        async with delivering(outbox, timeout_s=0.3) as work:
            await work.until(lambda: len(receiver.received) >= 20)
            assert max(most_at_once[:8]) > 1
            assert max(most_at_once[-4:]) <= 2
            receiver.behave = answering(200)
            await work.until(lambda: len(outbox.of("delivered")) >= 50)


def assert_in_order(outbox: MemoryOutbox, event_ids: Sequence[str]) -> None:
    """For each key every event came, repeats aside in the order in which they were enqueued."""
    places = {entry.event_id: entry for entry in outbox.entries.values()}
    came: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event_id in event_ids:
        entry = places[event_id]
        came[entry.trigger, entry.row_key].append(entry.outbox_id)
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    for entry in outbox.entries.values():
        expected[entry.trigger, entry.row_key].append(entry.outbox_id)
    for key, order in came.items():
        assert order == sorted(order), key
        assert sorted(set(order)) == expected[key], key
    assert came.keys() == expected.keys()


class FlakyOutbox(MemoryOutbox):
    """A store that is away now and then, before or after it did what it was asked."""

    chance: random.Random = random.Random(0)
    failing = 0.0

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        if self.chance.random() < self.failing:
            raise TidemarkError("the store is away")
        await super().settle(settlements)
        if self.chance.random() < self.failing:
            raise TidemarkError("the store is away")


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 8), st.floats(0, 0.6))
async def test_the_order_of_each_key_is_kept_under_random_failures(
    seed: int, events: int, keys: int, trouble: float
) -> None:
    chance = random.Random(seed)

    async def moody(request: Received, writer: asyncio.StreamWriter) -> None:
        if chance.random() >= trouble:
            await asyncio.sleep(chance.random() * 0.003)
            writer.write(reply(200))
            return
        mood = chance.choice(["500", "503", "close", "garbage", "redirect", "late"])
        if mood == "500":
            writer.write(reply(500))
        elif mood == "503":
            writer.write(reply(503, retry_after="0"))
        elif mood == "redirect":
            writer.write(reply(307, location="http://127.0.0.1:1/"))
        elif mood == "garbage":
            writer.write(b"\x00\x01\x02\r\n\r\n")
            writer.close()
        elif mood == "late":
            await asyncio.sleep(0.06)
            writer.write(reply(200))
        else:
            writer.close()

    outbox = MemoryOutbox()
    soon = RetrySchedule(first_delay_us=2_000, max_delay_us=10_000)
    async with WebhookReceiver(moody) as receiver:
        for _ in range(events):
            trigger = chance.choice("ab")
            outbox.enqueue(receiver.url, trigger=trigger, key=f"key-{chance.randrange(keys)}")
        async with delivering(outbox, timeout_s=0.05, schedule=soon) as work:
            await work.until(lambda: outbox.is_settled)
        assert_in_order(outbox, receiver.event_ids)
    assert len(outbox.of("delivered")) == events
    assert outbox.late_settlements == 0


async def test_settling_goes_on_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.live.webhooks.delivery.STORE_PAUSE_S", 0.01)
    outbox = FlakyOutbox()
    outbox.failing = 0.5
    async with WebhookReceiver() as receiver:
        for _ in range(200):
            outbox.enqueue(receiver.url)
        async with delivering(outbox, limits=DeliveryLimits(batch=20)) as work:
            await work.until(lambda: outbox.is_settled)
    # Known to the store by their leases, answers that were written twice count once. On a busy
    # machine a lease may run out while the store is away: then the event is sent again, by its id.
    assert len({request.event_id for request in receiver.received}) == 200
    assert len(outbox.of("delivered")) == 200
    assert work.counters.held == 0


async def test_stopping_lets_attempts_finish_and_gives_the_rest_back() -> None:
    outbox = MemoryOutbox()
    arrived = asyncio.Event()

    async def unhurried(request: Received, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.sleep(0.2)
        writer.write(reply(200))

    async with WebhookReceiver(unhurried) as receiver:
        for _ in range(100):
            outbox.enqueue(receiver.url)
        async with delivering(outbox) as work:
            await arrived.wait()
    delivered = len(outbox.of("delivered"))
    assert delivered == len(receiver.received) == 8
    assert len(outbox.of("pending")) == 100 - delivered
    assert {entry.attempts for entry in outbox.of("pending")} == {0}
    assert work.counters.held == 0


async def test_stopping_cuts_attempts_that_do_not_end() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver(silent()) as receiver:
        for _ in range(3):
            outbox.enqueue(receiver.url)
        limits = DeliveryLimits(drain_s=0.2)
        async with delivering(outbox, timeout_s=30, limits=limits) as work:
            await work.until(lambda: len(receiver.received) == 3)
            started = time.monotonic()
        assert time.monotonic() - started < 5
    assert [(e.status, e.attempts) for e in outbox.entries.values()] == [("pending", 0)] * 3


async def test_a_claim_that_would_run_out_is_given_back_unsent() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver() as receiver:
        outbox.enqueue(receiver.url)
        too_short = DeliveryLimits(lease_s=1.0, lease_margin_s=1.0)
        async with delivering(outbox, limits=too_short) as work:
            await work.until(lambda: work.counters.released >= 1)
        assert receiver.received == []
    assert outbox.entries[1].attempts == 0


async def test_an_event_left_behind_by_a_dead_process_is_sent_again_before_later_ones() -> None:
    outbox = MemoryOutbox()
    async with WebhookReceiver() as receiver:
        left = outbox.enqueue(receiver.url, key="k")
        later = outbox.enqueue(receiver.url, key="k")
        clock = SystemClock()
        assert len(await outbox.claim(clock.wall_us(), 10, 60 * SECOND_US, ())) == 1
        async with delivering(outbox) as work:
            await asyncio.sleep(0.1)
            assert receiver.received == []
            work.advance(61)
            await work.until(lambda: outbox.is_settled)
        assert receiver.event_ids == [left.event_id, later.event_id]


async def test_a_sender_that_breaks_fails_only_the_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        timeout_s = 1.0

        async def send(self, delivery: Delivery) -> None:
            raise ZeroDivisionError

    outbox = MemoryOutbox()
    outbox.enqueue("https://a.example")
    deliverer = Deliverer(outbox, Broken(), SystemClock())  # type: ignore[arg-type]
    running = asyncio.create_task(deliverer.run())
    work = Delivering(outbox, deliverer, SettableClock())
    await work.until(lambda: outbox.entries[1].attempts == 1)
    deliverer.stop()
    await running
    assert outbox.entries[1].last_error == "internal error: ZeroDivisionError"
    assert "could not be sent" in caplog.text


async def test_an_outbox_that_breaks_ends_the_run_with_its_error() -> None:
    class Broken(MemoryOutbox):
        async def settle(self, settlements: Sequence[Settlement]) -> None:
            raise ZeroDivisionError

    outbox = Broken()
    async with (
        WebhookReceiver() as receiver,
        Sender(SIGNER, SystemClock(), allow=LOCAL) as sender,
    ):
        outbox.enqueue(receiver.url)
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(WITHIN_S):
                await Deliverer(outbox, sender, SystemClock()).run()
