"""The parts of the client that decide: limits, buffer, retries, answers, settings."""

from __future__ import annotations

import json
import pickle
import ssl
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.client.answers import (
    HttpAnswer,
    Judged,
    NoAnswer,
    Refused,
    TooLarge,
    TryAgain,
    Unreachable,
    judge,
)
from tidemark.client.batches import Limits, request_body, request_bytes, split
from tidemark.client.blocking import Client
from tidemark.client.buffer import Buffer
from tidemark.client.reports import Failures
from tidemark.client.results import DeliveryFailed, Result
from tidemark.client.retry import Outage, Patience, RetryPolicy, after_failure
from tidemark.errors import ClientError, EventRejected

SECOND_US = 1_000_000
POLICY = RetryPolicy(retry_for_us=60 * SECOND_US)


Cut = Callable[[Sequence[bytes], Limits], Iterator[Sequence[bytes]]]


def assert_cut_fills_requests_within_limits(cut: Cut, *, is_planted: bool = False) -> None:
    # A planted bug must be found on every run, not on most.
    @settings(database=None, derandomize=is_planted, max_examples=200, deadline=None)
    @given(
        st.lists(st.binary(min_size=2, max_size=20), max_size=30),
        st.integers(1, 10),
        st.integers(40, 120),
    )
    def check(events: list[bytes], max_events: int, max_bytes: int) -> None:
        limits = Limits(max_events, max_bytes)
        parts = list(cut(events, limits))
        assert [event for part in parts for event in part] == events
        for part in parts:
            size = sum(map(len, part))
            assert 1 <= len(part) <= max_events
            assert len(request_body(part)) == request_bytes(len(part), size) <= max_bytes
        for part, following in pairwise(parts):
            assert not limits.admits(len(part) + 1, sum(map(len, part)) + len(following[0]))

    check()


def cut_that_forgets_the_commas(
    events: Sequence[bytes], limits: Limits
) -> Iterator[Sequence[bytes]]:
    part: list[bytes] = []
    for event in events:
        size = request_bytes(1, sum(map(len, part)) + len(event))
        if part and (len(part) == limits.max_events or size > limits.max_bytes):
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def test_requests_hold_every_event_in_order_within_both_limits() -> None:
    assert_cut_fills_requests_within_limits(split)


def test_a_cut_that_forgets_the_commas_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_cut_fills_requests_within_limits(cut_that_forgets_the_commas, is_planted=True)


def test_a_body_is_the_events_and_nothing_else() -> None:
    body = request_body([b'{"a":1}', b'{"b":2}'])
    assert json.loads(body) == {"events": [{"a": 1}, {"b": 2}]}


def buffer_of(max_events: int = 10, max_bytes: int = 1000, batch: int = 3) -> Buffer[None]:
    return Buffer(Limits(batch, 200), max_events=max_events, max_bytes=max_bytes, linger_us=50_000)


def test_a_batch_is_due_when_its_oldest_event_has_lingered() -> None:
    buffer = buffer_of()
    assert buffer.wait_us(0) is None
    buffer.add(b"{}", None, 1_000)
    buffer.add(b"{}", None, 40_000)
    assert buffer.wait_us(1_000) == 50_000
    assert buffer.wait_us(51_000) == 0
    assert len(buffer.pop_batch()) == 2
    assert buffer.wait_us(51_000) is None


def test_a_full_batch_is_due_at_once() -> None:
    buffer = buffer_of(batch=3)
    for _ in range(3):
        buffer.add(b"{}", None, 0)
    assert buffer.wait_us(0) == 0


def test_a_batch_is_full_by_bytes_too() -> None:
    buffer = buffer_of(batch=100)
    buffer.add(b"x" * 150, None, 0)
    assert buffer.wait_us(0) == 50_000
    buffer.add(b"x" * 60, None, 0)
    assert buffer.wait_us(0) == 0
    assert [len(entry.body) for entry in buffer.pop_batch()] == [150]


def test_a_flush_ends_the_lingering_of_what_is_there_and_of_nothing_later() -> None:
    buffer = buffer_of()
    buffer.add(b"{}", None, 0)
    buffer.hurry()
    assert buffer.wait_us(0) == 0
    buffer.pop_batch()
    buffer.add(b"{}", None, 0)
    assert buffer.wait_us(0) == 50_000


def test_room_is_taken_until_the_answer_and_not_only_until_the_request() -> None:
    buffer = buffer_of(max_events=2)
    buffer.add(b"{}", None, 0)
    buffer.add(b"{}", None, 0)
    batch = buffer.pop_batch()
    assert not buffer.has_room(2)
    buffer.claim(batch)
    assert buffer.has_room(2)


def test_room_is_bounded_by_bytes_but_an_empty_buffer_takes_any_event() -> None:
    buffer = buffer_of(max_bytes=100)
    assert buffer.has_room(150)
    buffer.add(b"x" * 90, None, 0)
    assert buffer.has_room(10)
    assert not buffer.has_room(11)


def test_an_event_is_claimed_once_and_flush_sees_it_settled_after() -> None:
    buffer = buffer_of()
    first, second = (buffer.add(b"{}", None, 0) for _ in range(2))
    assert buffer.claim([first, second]) == [first, second]
    assert buffer.claim([first, second]) == []
    buffer.settle([second])
    assert not buffer.is_settled_through(1)
    buffer.settle([first])
    assert buffer.is_settled_through(2)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("failures", [1, 2, 6, 7, 1000])
def test_pauses_double_up_to_a_bound_with_jitter(failures: int, chance: float) -> None:
    delay_us = POLICY.delay_us(failures, chance)
    full_us = min(POLICY.first_delay_us * 2 ** (failures - 1), POLICY.max_delay_us)
    assert full_us // 2 <= delay_us <= full_us


def failed(
    outage: Outage | None, now_us: int, *, taken_at_us: int = 0, retry_after_us: int | None = None
) -> tuple[Outage, bool]:
    return after_failure(
        outage,
        now_us=now_us,
        taken_at_us=taken_at_us,
        retry_after_us=retry_after_us,
        policy=POLICY,
        chance=0.5,
    )


def test_an_event_that_queued_for_long_has_all_of_its_time_when_an_outage_begins() -> None:
    outage, may_retry = failed(None, 1_000 * SECOND_US)
    assert may_retry
    assert outage.since_us == 1_000 * SECOND_US


def test_an_event_is_given_up_when_the_outage_has_lasted_its_time() -> None:
    outage = Outage(since_us=0, failure_count=9, next_attempt_us=0)
    assert failed(outage, 59 * SECOND_US)[1]
    assert not failed(outage, 60 * SECOND_US)[1]
    assert failed(outage, 60 * SECOND_US, taken_at_us=30 * SECOND_US)[1]


def test_the_last_attempt_is_at_the_deadline() -> None:
    outage = Outage(since_us=0, failure_count=9, next_attempt_us=0)
    assert failed(outage, 59 * SECOND_US)[0].next_attempt_us == 60 * SECOND_US


def test_a_retry_after_is_waited_for() -> None:
    outage, may_retry = failed(None, 0, retry_after_us=7 * SECOND_US)
    assert may_retry
    assert 7 * SECOND_US <= outage.next_attempt_us <= 7 * SECOND_US + POLICY.first_delay_us


def test_a_retry_after_beyond_the_deadline_gives_up_and_does_not_silence_the_client() -> None:
    outage, may_retry = failed(None, 0, retry_after_us=3600 * SECOND_US)
    assert not may_retry
    assert outage.next_attempt_us <= POLICY.max_delay_us


def test_patience_ends_by_time_or_by_the_lack_of_progress_or_never() -> None:
    assert Patience(100, timeout_us=50).remaining_us(120, progress_us=119) == 30
    assert Patience(100, stall_us=50).remaining_us(120, progress_us=119) == 49
    assert Patience(100, stall_us=50).remaining_us(200, progress_us=0) == 0
    assert Patience(100).remaining_us(10**9, progress_us=0) is None


ACCEPTED = {
    "status": "accepted",
    "idempotencyKey": "k",
    "ingressSequence": "9007199254740993",
    "receivedAt": "2025-01-01T00:00:00.123456Z",
}
ERROR = {"code": "future_timestamp", "message": "m", "hint": "h", "field": "ts"}


def answered(status: int, body: Any, retry_after: str | None = None) -> HttpAnswer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status, text, retry_after)


def test_results_keep_64_bit_numbers_and_microseconds() -> None:
    verdict = judge(answered(200, {"results": [ACCEPTED]}), 1)
    assert verdict == Judged(
        [
            Result(
                "accepted",
                "k",
                9_007_199_254_740_993,
                datetime(2025, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
            )
        ]
    )


def test_a_rejected_event_has_the_servers_error() -> None:
    body = {"results": [{"status": "rejected", "error": ERROR}]}
    verdict = judge(answered(200, body), 1)
    assert isinstance(verdict, Judged)
    [result] = verdict.results
    assert not result.is_stored
    assert result.error is not None
    assert result.error.as_dict() == ERROR


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff",
        {"results": []},
        {"results": [ACCEPTED, ACCEPTED]},
        {"results": [{"status": "perhaps"}]},
        {"results": [{"status": "accepted"}]},
        {"results": [{**ACCEPTED, "ingressSequence": "many"}]},
        {"results": [{**ACCEPTED, "receivedAt": "yesterday"}]},
        {"events": 1},
    ],
)
def test_an_answer_that_cannot_be_read_is_asked_for_again(body: Any) -> None:
    assert isinstance(judge(answered(200, body), 1), TryAgain)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_says_later_is_asked_later(status: int) -> None:
    verdict = judge(answered(status, {"error": ERROR}, "3"), 1)
    assert isinstance(verdict, TryAgain)
    assert verdict.retry_after_us == 3 * SECOND_US


@pytest.mark.parametrize("value", ["soon", "-1", "", "1e9", "9" * 10, None, "Wed, 21 Oct 2026"])
def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(value: str | None) -> None:
    verdict = judge(answered(503, b"", value), 1)
    assert isinstance(verdict, TryAgain)
    assert verdict.retry_after_us is None


@pytest.mark.parametrize("status", [201, 302, 400, 401, 403, 404, 415])
def test_every_other_status_is_final_with_the_servers_words(status: int) -> None:
    verdict = judge(answered(status, {"error": ERROR, "requestId": "r"}), 1)
    assert isinstance(verdict, Refused)
    assert verdict.error.as_dict() == ERROR


def test_an_answer_of_something_in_between_is_quoted_but_not_at_length() -> None:
    verdict = judge(answered(404, b"<html>" + b"x" * 10_000), 1)
    assert isinstance(verdict, Refused)
    assert verdict.error.code == "unexpected_answer"
    assert len(verdict.error.message) < 300


def test_too_large_no_answer_and_unreachable_are_told_apart() -> None:
    error = ClientError("no")
    assert isinstance(judge(answered(413, {"error": ERROR}), 2), TooLarge)
    assert isinstance(judge(NoAnswer("reset"), 2), TryAgain)
    assert judge(Unreachable(error), 2) == Refused(error)


def test_failures_are_counted_beyond_what_is_kept_and_told_once() -> None:
    failures = Failures(max_events=2, max_bytes=1000)
    assert failures.told() is None
    for number in range(5):
        failures.add(b'{"n":%d}' % number, ClientError("why", code="delivery_failed"))
    told = failures.told()
    assert told is not None
    assert told.event_count == 5
    assert told.events == [{"n": 0}, {"n": 1}]
    assert failures.told() is None


def test_errors_and_results_pickle() -> None:
    result = Result("rejected", error=EventRejected("m", hint="h", field="f", code="c"))
    failed = DeliveryFailed("m", code="c", events=[{"a": 1}], event_count=1, results=[result, None])
    again = pickle.loads(pickle.dumps(failed))
    assert isinstance(again, DeliveryFailed)
    assert (again.code, again.events, again.event_count) == ("c", [{"a": 1}], 1)
    first, second = again.results
    assert second is None
    assert first is not None
    assert first.error is not None
    assert first.error.code == "c"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "127.0.0.1:8787"),
        ("url", "ftp://host"),
        ("url", "http://user:secret@host"),
        ("url", "http://host/?a=b"),
        ("url", "http://host:port"),
        ("api_key", "two\nlines"),
        ("batch_events", 0),
        ("batch_events", 1001),
        ("max_queued", 0),
        ("max_in_flight", 0),
        ("timeout_s", 0),
        ("timeout_s", float("nan")),
        ("retry_for_s", -1),
        ("max_delay_s", 0.0001),
        ("idempotency_key", "mine"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ClientError) as caught:
        Client(**{name: value})
    assert caught.value.code == "invalid_setting"
    assert caught.value.field == name
    assert "secret" not in str(caught.value)


def test_the_url_and_the_key_come_from_the_environment_and_the_key_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEMARK_URL", "https://tides.example/base/")
    monkeypatch.setenv("TIDEMARK_API_KEY", "hush")
    with Client(ssl_context=ssl.create_default_context()) as client:
        assert client._settings.endpoint == "https://tides.example/base/v1/events"
        assert client._settings.headers["Authorization"] == "Bearer hush"
        assert "hush" not in repr(client) + repr(client._settings)
    with Client(api_key="") as client:
        assert "Authorization" not in client._settings.headers
