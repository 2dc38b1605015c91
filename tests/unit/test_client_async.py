"""`AsyncClient`: buffering, back-pressure, flushing and closing with tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest

import tidemark
from tests.unit.client_peer import Peer, wait_until
from tests.unit.test_client_delivery import QUICK, assert_each_stored_once, unused_url, usage
from tidemark.client import AsyncClient, ClientError, DeliveryFailed

WAIT_S = 10


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as running:
        yield running


def test_the_package_offers_the_client() -> None:
    assert tidemark.AsyncClient is AsyncClient


async def test_submitted_events_share_a_request_and_keep_their_order(peer: Peer) -> None:
    events = [usage(number) for number in range(50)]
    async with AsyncClient(peer.url, linger_s=0.2) as client:
        futures = [await client.submit(event) for event in events]
        await client.flush()
        assert all(future.done() for future in futures)
    assert_each_stored_once(peer, events, [future.result() for future in futures])
    assert len(peer.bodies) == 1


async def test_an_event_does_not_linger_for_long_and_a_full_batch_not_at_all(peer: Peer) -> None:
    async with AsyncClient(peer.url, linger_s=0.05, batch_events=2) as client:
        future = await client.submit(usage(1))
        assert (await asyncio.wait_for(future, WAIT_S)).is_stored
    async with AsyncClient(peer.url, linger_s=3600, batch_events=2) as client:
        futures = [await client.submit(usage(number)) for number in (2, 3)]
        results = await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
        assert [result.ingress_sequence for result in results] == [2, 3]


async def test_submit_waits_while_the_buffer_is_full_and_the_loop_goes_on(peer: Peer) -> None:
    peer.hold()
    submitted: list[int] = []

    async def submit(client: AsyncClient, numbers: range) -> None:
        for number in numbers:
            await client.submit(usage(number))
            submitted.append(number)

    async with AsyncClient(peer.url, max_queued=4, **QUICK) as client:
        tasks = [asyncio.create_task(submit(client, range(first, first + 5))) for first in (0, 100)]
        await asyncio.to_thread(wait_until, lambda: len(submitted) == 4)
        await asyncio.sleep(0.05)
        assert len(submitted) == 4
        peer.release()
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)
    assert len(peer.stored) == 10
    quantities = [stored.event["quantity"] for stored in peer.stored.values()]
    assert [n for n in quantities if n < 100] == list(range(5))
    assert [n for n in quantities if n >= 100] == list(range(100, 105))


async def test_a_task_that_only_submits_lets_the_requests_go_out(peer: Peer) -> None:
    async with AsyncClient(peer.url, batch_events=2, linger_s=3600) as client:
        deadline = time.monotonic() + 30
        number = 0
        # They do not wait for the task to do something else.
        while len(peer.bodies) < 2:
            assert time.monotonic() < deadline, "nothing goes out"
            await client.submit(usage(number))
            number += 1


async def test_one_request_is_in_flight_unless_more_are_asked_for(peer: Peer) -> None:
    for max_in_flight in (1, 3):
        peer.hold()
        before = peer.waiting
        options = {**QUICK, "batch_events": 1, "max_in_flight": max_in_flight}
        async with AsyncClient(peer.url, **options) as client:
            for number in range(5):
                await client.submit(usage(number))
            await asyncio.to_thread(peer.await_waiting, before + max_in_flight)
            peer.release()
    assert len(peer.stored) == 10


async def test_a_flush_whose_time_is_up_leaves_the_events_under_way(peer: Peer) -> None:
    peer.hold()
    async with AsyncClient(peer.url, **QUICK) as client:
        future = await client.submit(usage(1))
        with pytest.raises(ClientError) as caught:
            await client.flush(0.05)
        assert caught.value.code == "flush_timeout"
        peer.release()
        assert (await future).is_stored


async def test_flush_tells_of_what_was_not_delivered_once() -> None:
    client = AsyncClient(unused_url(), **{**QUICK, "retry_for_s": 0})
    future = await client.submit(usage(1))
    with pytest.raises(DeliveryFailed) as caught:
        await client.flush()
    assert caught.value.event_count == 1
    assert caught.value.events[0]["ts"]
    assert isinstance(future.exception(), ClientError)
    await client.flush()
    await client.close()


async def test_close_reports_what_it_could_not_deliver_in_time(peer: Peer) -> None:
    peer.hold()
    client = AsyncClient(peer.url, batch_events=2, **QUICK)
    futures = [await client.submit(usage(number)) for number in range(5)]
    with pytest.raises(DeliveryFailed) as caught:
        await client.close(0.1)
    assert caught.value.event_count == 5
    for future in futures:
        error = future.exception()
        assert isinstance(error, ClientError)
        assert error.code == "delivery_failed"


async def test_a_close_that_is_cancelled_tells_every_future(peer: Peer) -> None:
    peer.hold()
    client = AsyncClient(peer.url, **QUICK)
    future = await client.submit(usage(1))
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert "closed before the server answered" in str(future.exception())


async def test_a_cancelled_block_delivers_what_it_submitted(peer: Peer) -> None:
    submitted = asyncio.Event()

    async def submit_and_wait() -> None:
        async with AsyncClient(peer.url, linger_s=3600) as client:
            await client.submit(usage(1))
            submitted.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(submit_and_wait())
    await submitted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(peer.stored) == 1


async def test_leaving_the_block_with_an_error_leaves_failures_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {**QUICK, "retry_for_s": 0}
    with pytest.raises(ZeroDivisionError):
        async with AsyncClient(unused_url(), **options) as client:
            _ = [await client.submit(usage(1)), 1 // 0]
    assert "1 submitted events were not delivered" in caplog.text


async def test_a_future_that_is_cancelled_does_not_take_its_event_back(peer: Peer) -> None:
    async with AsyncClient(peer.url, **QUICK) as client:
        cancelled = await client.submit(usage(1))
        cancelled.cancel()
        kept = await client.submit(usage(2))
        assert (await kept).ingress_sequence == 2
    assert len(peer.stored) == 2


async def test_a_closed_client_takes_nothing_and_closes_again_without_complaint(
    peer: Peer,
) -> None:
    client = AsyncClient(peer.url)
    await client.submit(usage(1))
    await client.close()
    await client.close()
    for take in (client.submit, client.send):
        with pytest.raises(ClientError) as caught:
            await take(usage(2))
        assert caught.value.code == "client_closed"


async def test_a_send_under_way_learns_of_the_close(peer: Peer) -> None:
    peer.hold()
    client = AsyncClient(peer.url, **QUICK)
    sending = asyncio.create_task(client.send(usage(1)))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(DeliveryFailed) as caught:
        await asyncio.wait_for(sending, WAIT_S)
    assert caught.value.code == "client_closed"


async def test_a_client_that_was_never_used_closes(peer: Peer) -> None:
    await AsyncClient(peer.url).close()


def test_a_client_belongs_to_the_loop_of_its_first_use(peer: Peer) -> None:
    client = AsyncClient(peer.url)

    async def use() -> None:
        await client.send(usage(1))

    asyncio.run(use())
    with pytest.raises(ClientError) as caught:
        asyncio.run(use())
    assert caught.value.code == "wrong_loop"


async def test_refused_events_are_logged_since_nobody_may_look_at_their_futures(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncClient(peer.url, linger_s=3600) as client:
        await client.submit(usage(1))
        await client.submit(usage(2, metric="bad"))
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "1 of 2 events were not stored: unknown_metric × 1"
    ]
