"""Both clients, by `send` and by `submit`, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.client_peer import Fault, Peer
from tidemark.client import AsyncClient, Client, ClientError, DeliveryFailed, Result

WAYS = ("send", "submit", "async send", "async submit")
QUICK: dict[str, Any] = {
    "first_delay_s": 0.001,
    "max_delay_s": 0.01,
    "retry_for_s": 20,
    "timeout_s": 5,
    "linger_s": 0.005,
}


def usage(number: int, **more: Any) -> dict[str, Any]:
    return {
        "tenantId": "t1",
        "metric": "api_calls",
        "customerRef": f"c{number}",
        "quantity": number,
        **more,
    }


def deliver(
    way: str, url: str, events: Sequence[dict[str, Any]], **options: Any
) -> list[Result | ClientError]:
    """What each event came to. A failed `send` gives its error to each event without a result."""
    options = {**QUICK, **options}
    if way.startswith("async"):
        return asyncio.run(_deliver_async(way, url, events, options))
    client = Client(url, **options)
    try:
        if way == "send":
            return list(client.send(events))
        futures = [client.submit(event) for event in events]
        return [_outcome(future.exception(10), future) for future in futures]
    except DeliveryFailed as error:
        return [result or error for result in error.results]
    finally:
        _close_quietly(client)


async def _deliver_async(
    way: str, url: str, events: Sequence[dict[str, Any]], options: dict[str, Any]
) -> list[Result | ClientError]:
    client = AsyncClient(url, **options)
    try:
        if way == "async send":
            return list(await client.send(events))
        futures = [await client.submit(event) for event in events]
        await asyncio.wait(futures)
        return [_outcome(future.exception(), future) for future in futures]
    except DeliveryFailed as error:
        return [result or error for result in error.results]
    finally:
        try:
            await client.close()
        except DeliveryFailed:
            assert way == "async submit"


def _outcome(error: BaseException | None, future: Any) -> Result | ClientError:
    assert error is None or isinstance(error, ClientError)
    if error is not None:
        return error
    result: Result = future.result()
    return result


def _close_quietly(client: Client) -> None:
    try:
        client.close()
    except DeliveryFailed:
        return


def assert_each_stored_once(
    peer: Peer, events: Sequence[dict[str, Any]], outcomes: Sequence[Result | ClientError]
) -> None:
    """Exactly the events are stored, in order, and each result is the one of its event."""
    assert len(outcomes) == len(events) == len(peer.stored)
    for place, (event, outcome) in enumerate(zip(events, outcomes, strict=True), start=1):
        assert isinstance(outcome, Result)
        assert outcome.is_stored
        assert outcome.ingress_sequence == place
        assert outcome.idempotency_key is not None
        stored = peer.stored[outcome.idempotency_key]
        assert stored.sequence == place
        assert stored.event["customerRef"] == event["customerRef"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


FAULTS_TO_SURVIVE: list[list[Fault]] = [
    ["drop_before_storing"],
    ["drop_after_storing"],
    ["cut_the_answer"],
    ["garbage"],
    ["too_few_results"],
    ["429"],
    ["502"],
    ["503"],
    ["504"],
    ["drop_after_storing", "503", "garbage", "cut_the_answer", "502"],
]


@pytest.mark.parametrize("script", FAULTS_TO_SURVIVE, ids="+".join)
def test_a_fault_is_retried_with_the_same_bytes_and_nothing_doubles(
    way: str, script: list[Fault]
) -> None:
    events = [usage(number) for number in range(7)]
    with Peer(list(script)) as peer:
        outcomes = deliver(way, peer.url, events, batch_events=3)
        assert_each_stored_once(peer, events, outcomes)
        assert len(set(peer.bodies)) == 3
        assert len(peer.bodies) == 3 + len(script)


@pytest.mark.parametrize("fault", ["slow", "trickle"])
def test_an_answer_that_does_not_come_in_time_is_asked_for_again(way: str, fault: Fault) -> None:
    events = [usage(1)]
    with Peer([fault], slow_s=8.0) as peer:
        assert_each_stored_once(peer, events, deliver(way, peer.url, events, timeout_s=0.3))
        first, second, *_ = peer.arrived_at
        assert second - first < 7.0


@pytest.mark.parametrize("client", ["urllib3", "aiohttp"])
def test_an_endless_answer_is_cut_off(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"tidemark.client.{client}_transport.MAX_ANSWER_BYTES", 200_000)
    events = [usage(1)]
    with Peer(["endless"]) as peer:
        way = "send" if client == "urllib3" else "async send"
        assert_each_stored_once(peer, events, deliver(way, peer.url, events))


@pytest.mark.parametrize("way", ["send", "async submit"])
@pytest.mark.parametrize("fault", ["429", "503"])
def test_a_retry_after_is_honoured(way: str, fault: Fault) -> None:
    with Peer([fault], retry_after="1") as peer:
        deliver(way, peer.url, [usage(1)])
        first, second = peer.arrived_at
        assert 1.0 <= second - first < 10.0


@pytest.mark.parametrize("way", ["send", "async submit"])
def test_pauses_grow_while_the_server_is_away(way: str) -> None:
    with Peer(["503"] * 5, retry_after=None) as peer:
        deliver(way, peer.url, [usage(1)], first_delay_s=0.02, max_delay_s=10)
        pauses = [later - earlier for earlier, later in pairwise(peer.arrived_at)]
        for failures, pause in enumerate(pauses):
            assert pause >= 0.01 * 2**failures


@pytest.mark.parametrize("status", ["400", "401", "302"])
def test_a_refused_request_is_not_retried_and_has_the_servers_words(
    way: str, status: Fault
) -> None:
    with Peer([status]) as peer:
        [error] = deliver(way, peer.url, [usage(1)])
        assert isinstance(error, ClientError)
        assert error.code == f"code_{status}"
        assert f"it is code_{status}" in error.message
        assert error.hint == "do otherwise"
        assert len(peer.bodies) == 1


def test_one_bad_event_does_not_harm_its_neighbours(way: str) -> None:
    events = [usage(1), usage(2, metric="bad"), usage(3)]
    with Peer() as peer:
        first, second, third = deliver(way, peer.url, events)
        assert isinstance(first, Result)
        assert isinstance(second, Result)
        assert isinstance(third, Result)
        assert [first.status, second.status, third.status] == ["accepted", "rejected", "accepted"]
        assert second.error is not None
        assert (second.error.code, second.error.field) == ("unknown_metric", "metric")


def test_a_repeat_is_a_duplicate_and_other_content_a_conflict(way: str) -> None:
    moment = "2025-01-01T00:00:00Z"
    events = [usage(1, ts=moment), usage(1, ts=moment), {**usage(1, ts=moment), "quantity": 2}]
    with Peer() as peer:
        outcomes = deliver(way, peer.url, events)
        statuses = [outcome.status for outcome in outcomes if isinstance(outcome, Result)]
        assert statuses == ["accepted", "duplicate", "conflict"]


def test_requests_are_cut_by_count(way: str) -> None:
    events = [usage(number) for number in range(10)]
    with Peer() as peer:
        assert_each_stored_once(peer, events, deliver(way, peer.url, events, batch_events=4))
        assert [len(json.loads(body)["events"]) for body in peer.bodies] == [4, 4, 2]


def test_requests_are_cut_by_bytes(way: str) -> None:
    events = [usage(number, meta={"text": "x" * 400}) for number in range(10)]
    with Peer() as peer:
        outcomes = deliver(way, peer.url, events, max_request_bytes=2000)
        assert_each_stored_once(peer, events, outcomes)
        assert max(map(len, peer.bodies)) <= 2000
        assert len(peer.bodies) == 4


def test_a_server_that_takes_less_gets_halves_in_order(way: str) -> None:
    events = [usage(number) for number in range(20)]
    with Peer(max_events=3) as peer:
        outcomes = deliver(way, peer.url, events)
        assert_each_stored_once(peer, events, outcomes)


def test_halves_survive_faults_too(way: str) -> None:
    events = [usage(number) for number in range(8)]
    with Peer(["413", "drop_after_storing", "413", "503"]) as peer:
        assert_each_stored_once(peer, events, deliver(way, peer.url, events))


def test_an_event_that_the_server_finds_too_large_is_rejected_alone(way: str) -> None:
    events = [usage(1), usage(2, meta={"text": "x" * 5000}), usage(3)]
    with Peer(max_bytes=2000) as peer:
        first, second, third = deliver(way, peer.url, events)
        assert isinstance(first, Result)
        assert isinstance(second, Result)
        assert isinstance(third, Result)
        assert [first.status, second.status, third.status] == ["accepted", "rejected", "accepted"]
        assert second.error is not None
        assert second.error.code == "code_413"


def test_an_event_that_fits_no_request_is_rejected_without_being_sent(way: str) -> None:
    events = [usage(1), usage(2, meta={"text": "x" * 5000}), usage(3)]
    with Peer() as peer:
        first, second, third = deliver(way, peer.url, events, max_request_bytes=2000)
        assert isinstance(first, Result)
        assert isinstance(second, Result)
        assert isinstance(third, Result)
        assert [first.status, second.status, third.status] == ["accepted", "rejected", "accepted"]
        assert second.error is not None
        assert second.error.code == "event_too_large"
        assert all(b"xxxx" not in body for body in peer.bodies)


def unused_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_server_that_stays_away_is_given_up_after_the_budget(way: str) -> None:
    events = [usage(number) for number in range(3)]
    outcomes = deliver(way, unused_url(), events, retry_for_s=0.2)
    assert len(outcomes) == 3
    for error in outcomes:
        assert isinstance(error, ClientError)
        assert error.code == "delivery_failed"
        assert "0.2 s" in error.message


def test_with_no_budget_there_is_one_attempt(way: str) -> None:
    with Peer(["503"]) as peer:
        [error] = deliver(way, peer.url, [usage(1)], retry_for_s=0)
        assert isinstance(error, ClientError)
        assert len(peer.bodies) == 1


@pytest.mark.parametrize("way", ["submit", "async submit"])
def test_a_batch_that_is_given_up_does_not_take_those_behind_it_along(way: str) -> None:
    events = [usage(number) for number in range(3)]
    with Peer(["503"]) as peer:
        first, *others = deliver(way, peer.url, events, batch_events=1, retry_for_s=0)
        assert isinstance(first, ClientError)
        assert [getattr(outcome, "status", None) for outcome in others] == ["accepted"] * 2


def test_automatic_keys_are_fixed_before_the_first_attempt(way: str) -> None:
    events = [{"stream": "s", "tenantId": "t1", "data": {}, "customerRef": n} for n in range(3)]
    with Peer(["drop_after_storing", "garbage"]) as peer:
        outcomes = deliver(way, peer.url, events, idempotency_key="auto")
        assert_each_stored_once(peer, events, outcomes)


def test_requests_share_a_connection(way: str) -> None:
    with Peer() as peer:
        deliver(way, peer.url, [usage(number) for number in range(5)], batch_events=1)
        assert len(peer.bodies) == 5
        assert peer.connections == 1


def test_the_api_key_is_sent(way: str) -> None:
    with Peer() as peer:
        deliver(way, peer.url, [usage(1)], api_key="hush")
        assert peer.headers[0]["Authorization"] == "Bearer hush"
        assert peer.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("way", ["send", "async send"])
def test_a_send_that_fails_in_the_middle_says_what_was_stored_and_what_to_send_again(
    way: str,
) -> None:
    events = [usage(number) for number in range(5)]
    # Of three requests the second is stored, but nobody learns of it.
    with Peer(["none", "drop_after_storing"]) as peer:
        options = {**QUICK, "batch_events": 2, "retry_for_s": 0}
        failed = failed_send(way, peer.url, events, options)
        assert failed.code == "delivery_failed"
        sequences = [result and result.ingress_sequence for result in failed.results]
        assert sequences == [1, 2, None, None, None]
        assert failed.event_count == 3
        assert [event["customerRef"] for event in failed.events] == ["c2", "c3", "c4"]
        again = deliver(way, peer.url, failed.events)
        statuses = [outcome.status for outcome in again if isinstance(outcome, Result)]
        assert statuses == ["duplicate", "duplicate", "accepted"]
        assert len(peer.stored) == 5


def failed_send(
    way: str, url: str, events: list[dict[str, Any]], options: dict[str, Any]
) -> DeliveryFailed:
    async def send_async() -> None:
        async with AsyncClient(url, **options) as client:
            await client.send(events)

    def send() -> None:
        if way == "async send":
            asyncio.run(send_async())
        with Client(url, **options) as client:
            client.send(events)

    with pytest.raises(DeliveryFailed) as caught:
        send()
    return caught.value


@pytest.mark.parametrize("way", ["send", "async send"])
def test_an_event_without_a_json_form_is_named_and_nothing_is_sent(way: str) -> None:
    with Peer() as peer:
        with pytest.raises(ClientError, match="event 1: quantity") as caught:
            deliver(way, peer.url, [usage(1), usage(2, quantity=float("nan")), usage(3)])
        assert caught.value.code == "invalid_event"
        assert caught.value.field == "[1].quantity"
        assert peer.bodies == []


@pytest.mark.parametrize("way", ["send", "async send"])
def test_sending_nothing_asks_nobody(way: str) -> None:
    assert deliver(way, unused_url(), []) == []
