"""`Client`: buffering, back-pressure, flushing and closing with threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import tidemark
from tests.unit.client_peer import Peer, wait_until
from tests.unit.test_client_delivery import QUICK, assert_each_stored_once, unused_url, usage
from tidemark.client import Client, ClientError, DeliveryFailed, Result
from tidemark.client.settings import Settings

WAIT_S = 10


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as running:
        yield running


def test_the_package_offers_the_client() -> None:
    assert tidemark.Client is Client


def test_one_event_gives_a_list_of_one_result(peer: Peer) -> None:
    with Client(peer.url) as client:
        [result] = client.send(usage(1))
    assert result.status == "accepted"
    assert result.ingress_sequence == 1
    assert result.received_at is not None


def test_any_iterable_of_events_is_sent(peer: Peer) -> None:
    with Client(peer.url) as client:
        assert len(client.send(usage(number) for number in range(3))) == 3


def test_submitted_events_share_a_request_and_keep_their_order(peer: Peer) -> None:
    events = [usage(number) for number in range(50)]
    with Client(peer.url, linger_s=0.2) as client:
        futures = [client.submit(event) for event in events]
        client.flush()
        assert all(future.done() for future in futures)
    assert_each_stored_once(peer, events, [future.result() for future in futures])
    assert len(peer.bodies) == 1


def test_an_event_does_not_linger_for_long(peer: Peer) -> None:
    with Client(peer.url, linger_s=0.05) as client:
        assert client.submit(usage(1)).result(WAIT_S).is_stored


def test_a_full_batch_does_not_linger_at_all(peer: Peer) -> None:
    with Client(peer.url, linger_s=3600, batch_events=2) as client:
        futures = [client.submit(usage(number)) for number in range(2)]
        assert [future.result(WAIT_S).ingress_sequence for future in futures] == [1, 2]


def test_an_event_that_is_changed_after_submit_is_sent_as_it_was(peer: Peer) -> None:
    event = usage(1)
    with Client(peer.url) as client:
        future = client.submit(event)
        event["quantity"] = 99
        future.result(WAIT_S)
    [stored] = peer.stored.values()
    assert stored.event["quantity"] == 1


def test_submit_waits_while_the_buffer_is_full(peer: Peer) -> None:
    peer.hold()
    submitted = 0

    def submit_ten(client: Client) -> None:
        nonlocal submitted
        for number in range(10):
            client.submit(usage(number))
            submitted += 1

    with Client(peer.url, max_queued=4, **QUICK) as client:
        thread = threading.Thread(target=submit_ten, args=(client,))
        thread.start()
        wait_until(lambda: submitted == 4)
        time.sleep(0.05)
        assert submitted == 4
        peer.release()
        thread.join(WAIT_S)
        assert submitted == 10
    assert len(peer.stored) == 10


def test_submit_waits_for_room_in_bytes_too(peer: Peer) -> None:
    peer.hold()
    with Client(peer.url, max_queued_bytes=1024, **QUICK) as client:
        client.submit(usage(1, meta={"text": "x" * 700}))
        thread = threading.Thread(target=client.submit, args=(usage(2, meta={"text": "x" * 700}),))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        peer.release()
        thread.join(WAIT_S)
    assert len(peer.stored) == 2


def test_threads_share_a_client_and_every_event_arrives_once(peer: Peer) -> None:
    def submit_some(client: Client, first: int) -> None:
        for number in range(first, first + 100):
            client.submit(usage(number))

    with Client(peer.url, max_queued=50, batch_events=20, **QUICK) as client:
        threads = [
            threading.Thread(target=submit_some, args=(client, first)) for first in (0, 100, 200)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert len(peer.stored) == 300
    for first in (0, 100, 200):
        places = [
            stored.event["quantity"]
            for stored in peer.stored.values()
            if first <= stored.event["quantity"] < first + 100
        ]
        assert places == sorted(places)


def test_one_request_is_in_flight_unless_more_are_asked_for(peer: Peer) -> None:
    for max_in_flight in (1, 3):
        peer.hold()
        before = peer.waiting
        with Client(peer.url, batch_events=1, max_in_flight=max_in_flight, **QUICK) as client:
            for number in range(5):
                client.submit(usage(number))
            peer.await_waiting(before + max_in_flight)
            peer.release()
    assert len(peer.stored) == 10


def test_flush_ends_when_everything_submitted_before_is_settled(peer: Peer) -> None:
    with Client(peer.url, linger_s=3600) as client:
        future = client.submit(usage(1))
        client.flush(WAIT_S)
        assert future.done()
        client.flush()


def test_a_flush_whose_time_is_up_leaves_the_events_under_way(peer: Peer) -> None:
    peer.hold()
    with Client(peer.url, **QUICK) as client:
        future = client.submit(usage(1))
        with pytest.raises(ClientError) as caught:
            client.flush(0.05)
        assert caught.value.code == "flush_timeout"
        peer.release()
        assert future.result(WAIT_S).is_stored


def test_flush_tells_of_what_was_not_delivered_once() -> None:
    client = Client(unused_url(), **{**QUICK, "retry_for_s": 0})
    future = client.submit(usage(1))
    with pytest.raises(DeliveryFailed) as caught:
        client.flush()
    assert caught.value.event_count == 1
    [event] = caught.value.events
    assert event["customerRef"] == "c1"
    assert event["ts"]
    assert isinstance(future.exception(), ClientError)
    client.flush()
    client.close()


def test_close_delivers_what_is_buffered(peer: Peer) -> None:
    client = Client(peer.url, linger_s=3600)
    futures = [client.submit(usage(number)) for number in range(5)]
    client.close()
    assert all(future.result().is_stored for future in futures)


def test_close_reports_what_it_could_not_deliver_in_time(peer: Peer) -> None:
    peer.hold()
    client = Client(peer.url, batch_events=2, **QUICK)
    futures = [client.submit(usage(number)) for number in range(5)]
    with pytest.raises(DeliveryFailed) as caught:
        client.close(0.1)
    assert caught.value.code == "delivery_failed"
    assert caught.value.event_count == 5
    assert [event["customerRef"] for event in caught.value.events] == [f"c{n}" for n in range(5)]
    for future in futures:
        error = future.exception(0)
        assert isinstance(error, ClientError)
        assert error.code == "delivery_failed"


def test_close_ends_the_pauses_between_retries() -> None:
    client = Client(unused_url(), first_delay_s=60, max_delay_s=60, retry_for_s=600)
    client.submit(usage(1))
    started = time.monotonic()
    with pytest.raises(DeliveryFailed):
        client.close(0.2)
    assert time.monotonic() - started < 5


def test_close_waits_for_a_slow_server_as_long_as_it_makes_progress(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All answers together take longer than the patience with a server that gives none.
    monkeypatch.setattr(Settings, "patience_us", 700_000)
    peer.script[:] = ["slow"] * 6
    peer.slow_s = 0.15
    client = Client(peer.url, **{**QUICK, "batch_events": 1})
    futures = [client.submit(usage(number)) for number in range(6)]
    client.close()
    assert all(future.result().is_stored for future in futures)


def test_a_closed_client_takes_nothing_and_closes_again_without_complaint(peer: Peer) -> None:
    client = Client(peer.url)
    client.submit(usage(1))
    client.close()
    client.close()
    for take in (client.submit, client.send):
        with pytest.raises(ClientError) as caught:
            take(usage(2))
        assert caught.value.code == "client_closed"


def test_a_submit_that_waits_for_room_learns_of_the_close(peer: Peer) -> None:
    peer.hold()
    client = Client(peer.url, max_queued=1, **QUICK)
    client.submit(usage(1))
    errors: list[ClientError] = []

    def submit_more() -> None:
        try:
            client.submit(usage(2))
        except ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=submit_more)
    thread.start()
    time.sleep(0.05)
    with pytest.raises(DeliveryFailed):
        client.close(0.1)
    thread.join(WAIT_S)
    assert [error.code for error in errors] == ["client_closed"]


def test_leaving_the_block_with_an_error_delivers_and_keeps_the_error(peer: Peer) -> None:
    with pytest.raises(ZeroDivisionError), Client(peer.url, linger_s=3600) as client:
        _ = [client.submit(usage(1)), 1 // 0]
    assert len(peer.stored) == 1


def test_leaving_the_block_with_an_error_leaves_failures_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {**QUICK, "retry_for_s": 0}
    with pytest.raises(ZeroDivisionError), Client(unused_url(), **options) as client:
        _ = [client.submit(usage(1)), 1 // 0]
    assert "1 submitted events were not delivered" in caplog.text


def test_a_future_cannot_be_cancelled_since_its_event_is_taken(peer: Peer) -> None:
    with Client(peer.url, linger_s=3600) as client:
        future = client.submit(usage(1))
        assert not future.cancel()


def test_refused_events_are_logged_since_nobody_may_look_at_their_futures(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(peer.url, linger_s=3600) as client:
        client.submit(usage(1))
        client.submit(usage(2, metric="bad"))
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "1 of 2 events were not stored: unknown_metric × 1"
    ]


@pytest.mark.parametrize("what", ["flush", "close", "submit"])
def test_a_callback_that_would_wait_for_itself_is_told_so(peer: Peer, what: str) -> None:
    codes: list[str] = []
    done = threading.Event()
    client = Client(peer.url, max_queued=1, **QUICK)

    def wait_for_itself(_: Future[Result]) -> None:
        try:
            if what == "submit":
                client.submit(usage(2))
                client.submit(usage(3))
            else:
                getattr(client, what)()
        except ClientError as error:
            codes.append(error.code)
        done.set()

    client.submit(usage(1)).add_done_callback(wait_for_itself)
    assert done.wait(WAIT_S)
    client.close()
    assert codes == ["would_deadlock"]


def test_a_callback_that_fails_does_not_stop_the_client(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Future[Result]) -> None:
        raise RuntimeError("a bug of the caller")

    with Client(peer.url, **QUICK) as client:
        client.submit(usage(1)).add_done_callback(fail)
        client.flush()
        assert client.submit(usage(2)).result(WAIT_S).is_stored
    assert "a bug of the caller" in caplog.text


def test_a_bug_of_the_client_reaches_the_futures(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug of the client")

    monkeypatch.setattr("tidemark.client.urllib3_transport.Urllib3Transport.post", fail)
    client = Client(peer.url, **QUICK)
    error = client.submit(usage(1)).exception(WAIT_S)
    assert isinstance(error, ClientError)
    assert error.code == "client_error"
    assert "a bug of the client" in caplog.text
    with pytest.raises(DeliveryFailed):
        client.close()
