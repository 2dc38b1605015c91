"""One event → bytes that never change again."""

from __future__ import annotations

import json
import math
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.client.events import MAX_STAMP_LEAD_US, Stamps, encode, take
from tidemark.errors import ClientError
from tidemark.timestamps import parse_timestamp

USAGE = {"tenantId": "t1", "metric": "api_calls", "customerRef": "c1", "quantity": 1}


class FixedClock:
    def __init__(self, wall_us: int) -> None:
        self._wall_us = wall_us

    def wall_us(self) -> int:
        return self._wall_us

    def elapsed_us(self) -> int:
        return 0


NOON = FixedClock(1_735_732_800_000_000)


def taken(event: Any, *, auto_key: bool = False) -> Any:
    return json.loads(take(event, NOON, auto_key=auto_key))


def fault_of(event: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        take(event, NOON, auto_key=False)
    assert caught.value.code == "invalid_event"
    assert caught.value.hint
    return caught.value


def test_a_usage_event_without_ts_gets_one_in_utc_microseconds() -> None:
    ts = taken(USAGE)["ts"]
    assert len(ts) == len("2025-01-01T12:00:00.000000Z")
    assert ts.startswith("2025-01-01T12:00:00.")


def test_fields_that_are_null_are_absent() -> None:
    event = {**USAGE, "ts": None, "stream": None, "control": None, "idempotencyKey": None}
    fixed = taken(event, auto_key=True)
    assert fixed["ts"].startswith("2025-01-01T12:00:00.")
    assert fixed["idempotencyKey"]


def test_a_ts_that_is_there_is_left_as_it_is() -> None:
    assert taken({**USAGE, "ts": "2025-01-01T01:00:00+01:00"})["ts"] == "2025-01-01T01:00:00+01:00"


@pytest.mark.parametrize(
    "event",
    [
        {"stream": "trades", "tenantId": "t1", "data": {}},
        {"control": "void", "tenantId": "t1", "target": "k"},
        {"specversion": "1.0", "id": "1", "source": "s", "type": "trades"},
    ],
)
def test_only_usage_events_get_a_ts(event: dict[str, Any]) -> None:
    assert taken(event) == event


def test_two_usage_events_of_the_same_microsecond_get_different_ts() -> None:
    assert taken(USAGE)["ts"] < taken(USAGE)["ts"]


def test_stamps_are_unique_across_threads() -> None:
    stamps = Stamps()
    seen: list[int] = []

    def stamp() -> None:
        seen.extend([stamps.next_us(5) for _ in range(1000)])

    threads = [threading.Thread(target=stamp) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4000


def assert_stamps_never_repeat(make_stamps: type[Stamps], *, is_planted: bool = False) -> None:
    @settings(database=None, derandomize=is_planted, deadline=None)
    @given(st.lists(st.integers(0, MAX_STAMP_LEAD_US // 2)))
    def check(readings: list[int]) -> None:
        stamps = make_stamps()
        given_us = [stamps.next_us(reading) for reading in readings]
        assert given_us == sorted(set(given_us))

    check()


class StampsThatTrustTheClock(Stamps):
    def next_us(self, wall_us: int) -> int:
        return wall_us


def test_a_clock_that_jumps_within_half_an_hour_never_gives_a_stamp_twice() -> None:
    assert_stamps_never_repeat(Stamps)


def test_stamps_that_trust_the_clock_are_caught() -> None:
    with pytest.raises(AssertionError):
        assert_stamps_never_repeat(StampsThatTrustTheClock, is_planted=True)


def test_a_clock_that_was_far_ahead_and_is_set_right_is_followed() -> None:
    stamps = Stamps()
    stamps.next_us(10 * MAX_STAMP_LEAD_US)
    assert stamps.next_us(1_000_000) == 1_000_000


def test_an_automatic_key_is_random_and_does_not_replace_a_given_one() -> None:
    first = taken(USAGE, auto_key=True)["idempotencyKey"]
    second = taken(USAGE, auto_key=True)["idempotencyKey"]
    assert uuid.UUID(first) != uuid.UUID(second)
    assert taken({**USAGE, "idempotencyKey": "k"}, auto_key=True)["idempotencyKey"] == "k"


def test_a_cloudevent_gets_no_key_since_it_has_an_identity() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "trades"}
    assert taken(event, auto_key=True) == event


def test_the_callers_event_is_not_changed() -> None:
    event = dict(USAGE)
    taken(event, auto_key=True)
    assert event == USAGE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-9"), "0.000000001"),
        (Decimal("-12345678901234567890.123456789"), "-12345678901234567890.123456789"),
    ],
)
def test_a_decimal_becomes_its_exact_plain_text(value: Decimal, text: str) -> None:
    assert json.loads(encode({"q": value})) == {"q": text}


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2025, 1, 1, 12, tzinfo=UTC),
        datetime(2025, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_datetime_becomes_the_instant_in_utc(moment: datetime) -> None:
    assert json.loads(encode({"ts": moment})) == {"ts": "2025-01-01T12:00:00.000000Z"}


def test_no_microsecond_of_a_datetime_is_lost() -> None:
    moment = datetime(2261, 12, 31, 23, 59, 59, 999_999, tzinfo=ZoneInfo("Asia/Kathmandu"))
    us = parse_timestamp(json.loads(encode({"ts": moment}))["ts"])
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) == moment


def test_a_naive_datetime_is_refused_with_its_path() -> None:
    fault = fault_of(
        {"stream": "s", "data": {"at": [datetime(2025, 1, 1, tzinfo=UTC).replace(tzinfo=None)]}}
    )
    assert fault.field == "data.at[0]"
    assert "without a time zone" in fault.message


@pytest.mark.parametrize("value", [math.nan, math.inf, Decimal("NaN"), Decimal("-Infinity")])
def test_what_is_not_a_number_is_refused_with_its_path(value: float | Decimal) -> None:
    assert fault_of({**USAGE, "quantity": value}).field == "quantity"


def test_a_decimal_that_would_unfold_into_a_megabyte_is_refused() -> None:
    assert fault_of({**USAGE, "quantity": Decimal("1e999999")}).field == "quantity"


def test_a_lone_surrogate_is_refused_with_its_path() -> None:
    assert fault_of({**USAGE, "customerRef": "a\ud800"}).field == "customerRef"


def test_a_lone_surrogate_in_a_key_is_refused() -> None:
    assert fault_of({**USAGE, "meta": {"\ud800": 1}}).field == "meta.\\ud800"


def test_a_value_without_a_json_form_is_refused_by_the_name_of_its_type() -> None:
    fault = fault_of({**USAGE, "meta": {"raw": b"bytes"}})
    assert fault.field == "meta.raw"
    assert "bytes" in fault.message


def test_a_key_that_is_no_string_is_refused() -> None:
    assert fault_of({**USAGE, "meta": {("a", "b"): 1}}).field == "meta.('a', 'b')"


def test_an_event_that_contains_itself_is_refused() -> None:
    event: dict[str, Any] = dict(USAGE)
    event["meta"] = event
    assert "nested deeper" in fault_of(event).message


def test_what_is_no_mapping_is_refused() -> None:
    assert "mapping" in fault_of([1, 2]).message
    assert "mapping" in fault_of("text").message


def test_floats_mappings_and_uuids_have_their_usual_json_form() -> None:
    some_id = uuid.uuid4()
    event = MappingProxyType({"a": 0.1, "b": MappingProxyType({"c": (1, None)}), "d": some_id})
    assert json.loads(encode(event)) == {"a": 0.1, "b": {"c": [1, None]}, "d": str(some_id)}


def test_text_beyond_ascii_is_sent_as_it_is() -> None:
    assert encode({"a": "zoë-株"}) == '{"a":"zoë-株"}'.encode()
