"""What an answer means, and when the next attempt is."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.live.webhooks.outbox import Delivery
from tidemark.live.webhooks.schedule import (
    DAY_US,
    HOUR_US,
    SECOND_US,
    Answer,
    NoAnswer,
    Outcome,
    RetrySchedule,
    is_congested,
    judge,
    parse_retry_after,
    settlement,
)

NOW_US = 1_800_000_000 * SECOND_US
SCHEDULE = RetrySchedule()


def delivery(attempts: int = 0, first_attempt_at: int | None = None) -> Delivery:
    return Delivery(
        7, "e" * 32, "t", "https://a.example", "k", b"{}", attempts, first_attempt_at, NOW_US
    )


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_delivered(status: int) -> None:
    assert judge(Answer(status)).outcome is Outcome.DELIVERED


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_a_failure_that_is_retried(status: int) -> None:
    verdict = judge(Answer(status))
    assert verdict.outcome is Outcome.RETRY
    assert "redirects are not followed" in (verdict.error or "")


@pytest.mark.parametrize("status", [400, 401, 404, 408, 418, 429, 500, 502, 503, 504, 599])
def test_any_other_status_is_retried(status: int) -> None:
    verdict = judge(Answer(status, "oh no"))
    assert verdict.outcome is Outcome.RETRY
    assert verdict.error == f"answered {status}: oh no"


def test_410_is_final_and_disables_the_trigger() -> None:
    settled = settlement(delivery(), Answer(410), NOW_US, NOW_US, SCHEDULE)
    assert (settled.status, settled.disable_trigger) == ("dead", True)
    assert settled.next_attempt_at is None


def test_no_answer_is_retried_with_its_reason() -> None:
    settled = settlement(delivery(), NoAnswer("refused"), NOW_US, NOW_US + 3, SCHEDULE)
    assert (settled.status, settled.last_status, settled.last_error) == ("pending", None, "refused")
    assert (settled.attempts, settled.first_attempt_at) == (1, NOW_US)
    assert not settled.disable_trigger


def test_a_delivered_event_has_no_error_and_no_next_attempt() -> None:
    settled = settlement(delivery(3, NOW_US - 9), Answer(204, "fine"), NOW_US, NOW_US, SCHEDULE)
    assert (settled.status, settled.attempts, settled.last_status) == ("delivered", 4, 204)
    assert (settled.last_error, settled.next_attempt_at) == (None, None)
    assert settled.first_attempt_at == NOW_US - 9


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_honoured_by_the_statuses_that_mean_it(status: int) -> None:
    asked = Answer(status, retry_after_us=2 * HOUR_US)
    settled = settlement(delivery(), asked, NOW_US, NOW_US, SCHEDULE)
    assert settled.next_attempt_at is not None
    assert 2 * HOUR_US <= settled.next_attempt_at - NOW_US <= 2 * HOUR_US + 5 * SECOND_US


def test_retry_after_means_nothing_on_a_500() -> None:
    asked = Answer(500, retry_after_us=2 * HOUR_US)
    settled = settlement(delivery(), asked, NOW_US, NOW_US, SCHEDULE)
    assert settled.next_attempt_at is not None
    assert settled.next_attempt_at - NOW_US <= 5 * SECOND_US


def test_retry_after_cannot_park_an_event_for_longer_than_its_bound() -> None:
    again = SCHEDULE.next_attempt_at("e", 1, NOW_US, NOW_US, 10**6 * HOUR_US)
    assert again is not None
    assert again - NOW_US <= SCHEDULE.max_retry_after_us + 5 * SECOND_US


def test_retry_after_shortens_no_pause() -> None:
    plain = SCHEDULE.next_attempt_at("e", 9, NOW_US, NOW_US)
    assert SCHEDULE.next_attempt_at("e", 9, NOW_US, NOW_US, 0) == plain


@given(st.text(max_size=40), st.integers(1, 200))
def test_a_pause_is_between_half_and_all_of_the_doubled_delay(event_id: str, attempts: int) -> None:
    again = SCHEDULE.next_attempt_at(event_id, attempts, NOW_US, NOW_US)
    doubled = min(5 * SECOND_US * 2 ** (attempts - 1), 6 * HOUR_US)
    assert again is not None
    assert doubled // 2 <= again - NOW_US <= doubled
    assert again == SCHEDULE.next_attempt_at(event_id, attempts, NOW_US, NOW_US)


def test_the_jitter_spreads_events_and_attempts() -> None:
    pauses = {SCHEDULE.next_attempt_at(f"e{i}", 12, NOW_US, NOW_US) for i in range(100)}
    assert len(pauses) == 100


@given(st.text(max_size=40), st.integers(0, 15 * SECOND_US), st.booleans())
def test_a_receiver_that_never_answers_is_tried_for_three_days_and_no_longer(
    event_id: str, took_us: int, asks: bool
) -> None:
    now_us, attempts = NOW_US, 0
    while True:
        attempts += 1
        ended_us = now_us + took_us
        again = SCHEDULE.next_attempt_at(
            event_id, attempts, NOW_US, ended_us, 9 * HOUR_US if asks else None
        )
        if again is None:
            break
        assert again > now_us
        now_us = again
    assert 3 * DAY_US - took_us <= now_us - NOW_US <= 3 * DAY_US
    assert attempts < 200


@pytest.mark.parametrize(
    ("text", "pause_s"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        (formatdate(NOW_US / SECOND_US + 90, usegmt=True), 90),
        (formatdate(NOW_US / SECOND_US - 90, usegmt=True), 0),
        ("9" * 500, 999_999_999),
        ("-5", None),
        ("soon", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, pause_s: int | None) -> None:
    expected = None if pause_s is None else pause_s * SECOND_US
    assert parse_retry_after(text, NOW_US) == expected


@given(st.text(max_size=60))
def test_no_retry_after_header_is_too_odd_to_read(text: str) -> None:
    pause_us = parse_retry_after(text, NOW_US)
    assert pause_us is None or pause_us >= 0


def test_silence_429_and_503_mean_that_the_host_is_in_trouble() -> None:
    assert [is_congested(Answer(status)) for status in (200, 404, 429, 500, 503)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert is_congested(NoAnswer("no answer within 15 s"))
