"""Each caller may send so many documents a second, and some at once."""

from __future__ import annotations

import pytest

from tests.unit.live.graphql_views import StillClock
from tidemark.live.graphql import rate
from tidemark.live.graphql.problems import DocumentRefused
from tidemark.live.graphql.rate import DocumentRate, RateLimits, price_of_reading


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = StillClock()
    documents = DocumentRate(RateLimits(documents_per_second=2, burst=3), clock)
    for _ in range(3):
        documents.take("ada")
    with pytest.raises(DocumentRefused) as refused:
        documents.take("ada")
    assert (refused.value.status, refused.value.code) == (429, "rate_limited")
    assert refused.value.retry_after_s == 1
    clock.now_us += 499_999
    with pytest.raises(DocumentRefused):
        documents.take("ada")
    clock.now_us += 1
    documents.take("ada")
    with pytest.raises(DocumentRefused):
        documents.take("ada")


def test_silence_saves_up_no_more_than_a_burst() -> None:
    clock = StillClock()
    documents = DocumentRate(RateLimits(documents_per_second=100, burst=2), clock)
    clock.now_us += 3_600_000_000
    documents.take("ada")
    documents.take("ada")
    with pytest.raises(DocumentRefused):
        documents.take("ada")


def test_one_caller_does_not_use_up_anothers() -> None:
    documents = DocumentRate(RateLimits(documents_per_second=1, burst=1), StillClock())
    documents.take("ada")
    documents.take("bob")
    with pytest.raises(DocumentRefused):
        documents.take("ada")


def test_a_document_that_has_to_be_read_costs_by_its_length() -> None:
    assert [price_of_reading(size) for size in (0, 4_095, 4_096, 65_536)] == [1, 1, 2, 17]
    clock = StillClock()
    documents = DocumentRate(RateLimits(documents_per_second=1, burst=10), clock)
    documents.take("ada", 8)
    with pytest.raises(DocumentRefused) as refused:
        documents.take("ada", 8)
    assert refused.value.retry_after_s == 6
    documents.take("ada", 2)


def test_a_document_costs_no_more_than_a_full_bucket() -> None:
    clock = StillClock()
    documents = DocumentRate(RateLimits(documents_per_second=1, burst=2), clock)
    documents.take("ada", 17)
    with pytest.raises(DocumentRefused) as refused:
        documents.take("ada", 17)
    assert refused.value.retry_after_s == 2
    clock.now_us += 2_000_000
    documents.take("ada", 17)


def test_names_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_BUCKETS", 3)
    documents = DocumentRate(RateLimits(documents_per_second=1, burst=1), StillClock())
    for name in "abcd":
        documents.take(name)
    # Three are known to have used up theirs; the oldest was forgotten.
    for name in "dcb":
        with pytest.raises(DocumentRefused):
            documents.take(name)
    documents.take("a")
