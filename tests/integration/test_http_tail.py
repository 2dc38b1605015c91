"""The websocket tail: every event in order, from any sequence on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.integration.http_client import Api, assert_error, trade, usage
from tests.services.processes import processor_seconds, resident_bytes
from tests.services.tidemark_server import TidemarkServer
from tidemark.ops.tail import MAX_TAILS

PATH: Final = "/admin/events/tail"
RECEIVED_WITHIN_S: Final = 20.0
CLOSED_WITHIN_S: Final = 5.0


class Tail:
    """An open tail."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.progress: str | None = None

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.connection.recv(timeout=RECEIVED_WITHIN_S))
        return message

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next events; progress is noted on the way."""
        events: list[dict[str, Any]] = []
        while len(events) < count:
            message = self.message()
            if message["type"] == "event":
                events.append(message["event"])
            else:
                assert set(message) == {"type", "ingressSequence"}
                self.progress = message["ingressSequence"]
        return events

    def until_progress(self, sequence: str) -> list[dict[str, Any]]:
        """All events up to the message that says that everything to this sequence was sent."""
        events: list[dict[str, Any]] = []
        while True:
            message = self.message()
            if message["type"] == "event":
                events.append(message["event"])
            elif int(message["ingressSequence"]) >= int(sequence):
                return events


@contextmanager
def tail(server: TidemarkServer, **query: str) -> Iterator[Tail]:
    url = f"{server.websocket_url}{PATH}?{urlencode(query)}"
    with connect(url, max_size=None, close_timeout=0.5, proxy=None) as connection:
        yield Tail(connection)


def refs(events: list[dict[str, Any]]) -> list[str]:
    return [event["customerRef"] for event in events]


def send(api: Api, *customer_refs: str) -> list[dict[str, Any]]:
    return api.accept(*(usage(api.tenant, customerRef=ref) for ref in customer_refs))


def test_a_tail_from_the_beginning_shows_all_there_is_and_goes_on(
    api: Api, server: TidemarkServer
) -> None:
    send(api, "a", "b")
    with tail(server, after="0", tenantId=api.tenant) as watched:
        assert refs(watched.take(2)) == ["a", "b"]
        send(api, "c")
        send(api, "d", "e")
        events = watched.take(3)
    assert refs(events) == ["c", "d", "e"]
    assert events == api.events()[2:]


def test_without_a_sequence_a_tail_begins_now(api: Api, server: TidemarkServer) -> None:
    send(api, "before")
    with tail(server, tenantId=api.tenant) as watched:
        send(api, "after")
        assert refs(watched.take(1)) == ["after"]


def test_a_tail_that_resumes_after_a_sequence_misses_and_repeats_nothing(
    api: Api, server: TidemarkServer
) -> None:
    send(api, "a", "b", "c")
    seen: list[dict[str, Any]] = []
    while len(seen) < 7:
        after = seen[-1]["ingressSequence"] if seen else "0"
        with tail(server, after=after, tenantId=api.tenant) as watched:
            seen += watched.take(1)
        if len(seen) == 2:
            send(api, "d", "e", "f", "g")
    assert refs(seen) == list("abcdefg")


def test_unfiltered_the_sequences_have_no_gap(api: Api, server: TidemarkServer) -> None:
    with tail(server, after="0") as watched:
        [last] = send(api, "last")
        events = watched.until_progress(last["ingressSequence"])
    sequences = [int(event["ingressSequence"]) for event in events]
    assert sequences == list(range(1, len(events) + 1))
    assert sequences[-1] >= int(last["ingressSequence"])


def test_progress_says_how_far_a_tail_has_come_even_if_nothing_matched(
    api: Api, server: TidemarkServer
) -> None:
    with tail(server, stream="trades", tenantId=api.tenant) as watched:
        [result] = send(api, "a")
        assert watched.until_progress(result["ingressSequence"]) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"stream": "trades"}, ["t-1", "t-2"]),
        ({"stream": "usage"}, ["x", "y"]),
        ({"causalityKey": "run"}, ["x", "t-2"]),
        ({"customerRef": "y"}, ["y"]),
        ({"metric": "seats"}, ["y"]),
        ({"occurredTo": "2025-01-15T00:00:00Z"}, ["x"]),
    ],
)
def test_a_tail_can_be_filtered(
    api: Api, server: TidemarkServer, query: dict[str, str], expected: list[str]
) -> None:
    results = api.accept(
        usage(api.tenant, customerRef="x", ts="2025-01-01T00:00:00Z", causalityKey="run"),
        trade(api.tenant, "t-1"),
        usage(api.tenant, customerRef="y", metric="seats"),
        {**trade(api.tenant, "t-2"), "causalityKey": "run"},
    )
    with tail(server, after="0", tenantId=api.tenant, **query) as watched:
        events = watched.until_progress(results[-1]["ingressSequence"])
    found = [event.get("customerRef") or event["data"]["trade_id"] for event in events]
    assert found == expected


def test_two_tails_see_the_same(api: Api, server: TidemarkServer) -> None:
    with (
        tail(server, tenantId=api.tenant) as one,
        tail(server, tenantId=api.tenant) as other,
    ):
        send(api, *(f"c{n}" for n in range(50)))
        assert one.take(50) == other.take(50) == api.events()


def test_more_events_than_a_page_holds_come_in_order(api: Api, server: TidemarkServer) -> None:
    send(api, *(f"c{n}" for n in range(1000)))
    send(api, *(f"c{n}" for n in range(1000, 1300)))
    with tail(server, after="0", tenantId=api.tenant) as watched:
        assert refs(watched.take(1300)) == [f"c{n}" for n in range(1300)]


def test_a_tail_sees_what_another_process_commits(postgres_url: str, tenant: str) -> None:
    with (
        TidemarkServer(ledger_url=postgres_url) as here,
        TidemarkServer(ledger_url=postgres_url) as there,
        tail(here, tenantId=tenant) as watched,
    ):
        send(Api(there.base_url, tenant), "from there")
        send(Api(here.base_url, tenant), "from here")
        assert refs(watched.take(2)) == ["from there", "from here"]


def until_closed(watched: Tail) -> tuple[list[dict[str, Any]], int | None, str | None]:
    """All events, and how the server closed."""
    events: list[dict[str, Any]] = []
    deadline = time.monotonic() + CLOSED_WITHIN_S
    with contextlib.suppress(ConnectionClosed):
        while True:
            message = json.loads(watched.connection.recv(timeout=CLOSED_WITHIN_S))
            assert time.monotonic() < deadline
            if message["type"] == "event":
                events.append(message["event"])
    connection = watched.connection
    return events, connection.close_code, connection.close_reason


END = (1000, "the end of the range was reached")


def test_a_tail_ends_where_its_sequences_end(api: Api, server: TidemarkServer) -> None:
    results = send(api, "a", "b", "c")
    sequence_to = results[2]["ingressSequence"]
    for after in ("0", sequence_to, "999999"):
        with tail(server, after=after, sequenceTo=sequence_to, tenantId=api.tenant) as watched:
            events, *how = until_closed(watched)
        assert refs(events) == (["a", "b"] if after == "0" else [])
        assert tuple(how) == END


def test_a_tail_whose_end_is_to_come_goes_on_to_it(api: Api, server: TidemarkServer) -> None:
    [first] = send(api, "a")
    sequence_to = str(int(first["ingressSequence"]) + 3)
    with tail(server, after="0", sequenceTo=sequence_to, tenantId=api.tenant) as watched:
        assert refs(watched.take(1)) == ["a"]
        send(api, "b")
        assert refs(watched.take(1)) == ["b"]
        send(api, "c", "d")
        events, *how = until_closed(watched)
    assert refs(events) == ["c"]
    assert tuple(how) == END


def test_a_tail_ends_when_whatever_comes_is_received_too_late(
    api: Api, server: TidemarkServer
) -> None:
    send(api, "a")
    [late] = send(api, "b")
    query = {"after": "0", "tenantId": api.tenant, "receivedTo": late["receivedAt"]}
    with tail(server, **query) as watched:
        events, *how = until_closed(watched)
    assert refs(events) == ["a"]
    assert tuple(how) == END


def test_a_tail_whose_time_is_over_waits_until_the_ledger_is_beyond_it(
    api: Api, server: TidemarkServer
) -> None:
    [first] = send(api, "a")
    # Two microseconds later: the next commit could still be in between.
    time_to = f"{first['receivedAt'][:-7]}{int(first['receivedAt'][-7:-1]) + 2:06d}Z"
    with tail(server, after="0", tenantId=api.tenant, receivedTo=time_to) as watched:
        assert refs(watched.take(1)) == ["a"]
        before = processor_seconds(server.pid)
        with contextlib.suppress(TimeoutError):
            while True:
                assert json.loads(watched.connection.recv(timeout=1))["type"] == "progress"
        assert processor_seconds(server.pid) - before < 0.5
        send(api, "b")
        events, *how = until_closed(watched)
    assert events == []
    assert tuple(how) == END


async def test_no_more_tails_are_open_than_may_be_even_if_all_come_at_once() -> None:
    with TidemarkServer() as server:
        url = f"{server.websocket_url}{PATH}"
        async with contextlib.AsyncExitStack() as opened:

            async def open_one() -> int:
                try:
                    await opened.enter_async_context(
                        connect_async(url, proxy=None, close_timeout=1)
                    )
                except InvalidStatus as refused:
                    return refused.response.status_code
                return 101

            statuses = await asyncio.gather(*(open_one() for _ in range(MAX_TAILS + 40)))
        assert (statuses.count(101), statuses.count(429)) == (MAX_TAILS, 40)
        # A place is free again when its tail is gone.
        deadline = time.monotonic() + RECEIVED_WITHIN_S
        while True:
            with contextlib.suppress(InvalidStatus), tail(server):
                break
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ("?after=-1", 400, "invalid_parameter", "after"),
        ("?after=now", 400, "invalid_parameter", "after"),
        ("?limit=5", 400, "unknown_parameter", "limit"),
        ("?stream=a&stream=b", 400, "repeated_parameter", "stream"),
        ("?receivedFrom=2025-02-30T00:00:00Z", 400, "invalid_parameter", "receivedFrom"),
        ("?tenantId=%FF", 400, "invalid_query", None),
        ("s", 404, "not_found", None),
    ],
)
def test_a_bad_tail_is_refused_before_the_handshake_in_the_one_error_shape(
    sqlite_server: TidemarkServer, query: str, status: int, code: str, field: str | None
) -> None:
    url = f"{sqlite_server.websocket_url}{PATH}{query}"
    with pytest.raises(InvalidStatus) as caught, connect(url, proxy=None):
        pass
    response = caught.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body = json.loads(response.body or b"")
    assert set(body) == {"error", "requestId"}
    assert_error(body["error"], code, field)


def test_a_server_that_stops_says_so_to_its_tails(tenant: str) -> None:
    with TidemarkServer() as server:
        with tail(server, after="0") as one, tail(server, tenantId=tenant) as other:
            send(Api(server.base_url, tenant), "a")
            assert refs(other.take(1)) == ["a"]
            server.stop()
            for watched in (one, other):
                with pytest.raises(ConnectionClosed) as caught:
                    watched.until_progress("999")
                assert caught.value.rcvd is not None
                assert caught.value.rcvd.code == 1001
                assert "resume" in caught.value.rcvd.reason
        assert "Traceback" not in server.log_text()
        server.restart()
        with tail(server, after="0") as again:
            assert refs(again.take(1)) == ["a"]


def test_a_client_that_vanishes_does_no_harm(api: Api, server: TidemarkServer) -> None:
    for _ in range(3):
        with tail(server, after="0") as watched:
            watched.connection.socket.close()
    send(api, *(f"c{n}" for n in range(200)))
    with tail(server, after="0", tenantId=api.tenant) as watched:
        assert len(watched.take(200)) == 200


def test_what_a_client_says_on_a_tail_is_passed_over(api: Api, server: TidemarkServer) -> None:
    with tail(server, tenantId=api.tenant) as watched:
        watched.connection.send("hello")
        watched.connection.send(b"\x00\xff")
        send(api, "a")
        assert refs(watched.take(1)) == ["a"]


def test_a_reader_that_does_not_read_costs_no_memory(postgres_url: str, tenant: str) -> None:
    # On PostgreSQL, because the cache of SQLite is in this process and grows as it should.
    with TidemarkServer(ledger_url=postgres_url) as server:
        api = Api(server.base_url, tenant)

        def fill(name: str) -> None:
            meta = {"filling": "x" * 10_000}
            for part in range(5):
                api.accept(
                    *(usage(tenant, meta=meta, resourceId=f"{name}-{part}-{n}") for n in range(400))
                )

        fill("to warm up")
        with tail(server, after="0") as lazy:
            lazy.take(1)
            before = resident_bytes(server.pid)
            fill("unread")
            fill("unread too")
            assert resident_bytes(server.pid) - before < 30_000_000
            with tail(server, after="0") as quick:
                assert len(quick.take(6000)) == 6000
