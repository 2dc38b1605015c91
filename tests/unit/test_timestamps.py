from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.errors import EventRejected
from tidemark.timestamps import (
    MAX_TIMESTAMP_US,
    format_timestamp,
    normalise_timestamp,
    parse_timestamp,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

Parse = Callable[[str], int]
Check = Callable[[], None]

instants = st.integers(min_value=0, max_value=MAX_TIMESTAMP_US)
offsets = st.integers(min_value=-(23 * 60 + 59), max_value=23 * 60 + 59)


def code_of(text: str, *, truncate: bool = False) -> str:
    with pytest.raises(EventRejected) as caught:
        parse_timestamp(text, truncate=truncate)
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        ("2261-12-31T23:59:59.999999Z", "2261-12-31T23:59:59.999999Z"),
        ("2025-01-01T01:00:00+01:00", "2025-01-01T00:00:00.000000Z"),
        ("2025-01-01T00:00:00.5Z", "2025-01-01T00:00:00.500000Z"),
        ("2025-01-01T00:00:00.123456Z", "2025-01-01T00:00:00.123456Z"),
        ("2025-01-01T00:00:00.123456000Z", "2025-01-01T00:00:00.123456Z"),
        ("2025-01-01t00:00:00z", "2025-01-01T00:00:00.000000Z"),
        ("2025-01-01t00:00:00.123456Z", "2025-01-01T00:00:00.123456Z"),
        ("2025-01-01T00:00:00-00:00", "2025-01-01T00:00:00.000000Z"),
        ("2025-01-01T00:00:00+23:59", "2024-12-31T00:01:00.000000Z"),
        ("2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000000Z"),
        ("1969-12-31T23:30:00-01:00", "1970-01-01T00:30:00.000000Z"),
        ("2262-01-01T00:30:00+01:00", "2261-12-31T23:30:00.000000Z"),
    ],
)
def test_a_time_with_an_offset_is_written_in_one_way(text: str, canonical: str) -> None:
    us, written = normalise_timestamp(text)
    assert written == canonical
    assert us == parse_timestamp(canonical)
    assert format_timestamp(us) == canonical


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_timestamp"),
        ("yesterday", "invalid_timestamp"),
        ("2025-01-01", "invalid_timestamp"),
        ("2025-01-01 00:00:00Z", "invalid_timestamp"),
        ("2025-01-01T00:00Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00+0100", "invalid_timestamp"),
        ("2025-01-01T00:00:00+01", "invalid_timestamp"),
        ("2025-01-01T00:00:00+24:00", "invalid_timestamp"),
        ("2025-01-01T00:00:00+01:60", "invalid_timestamp"),
        ("2025-W01-1T00:00:00Z", "invalid_timestamp"),
        ("2025-001T00:00:00Z", "invalid_timestamp"),
        ("20250101T000000Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00,5Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00.Z", "invalid_timestamp"),
        (" 2025-01-01T00:00:00Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00Z\n", "invalid_timestamp"),
        ("2025-01-01T00:00:00ZZ", "invalid_timestamp"),
        ("٢٠٢٥-01-01T00:00:00Z", "invalid_timestamp"),
        ("1735689600", "invalid_timestamp"),
        ("2025-02-30T00:00:00Z", "invalid_timestamp"),
        ("2025-02-29T00:00:00.123456Z", "invalid_timestamp"),
        ("2025-13-01T00:00:00Z", "invalid_timestamp"),
        ("2025-00-10T00:00:00Z", "invalid_timestamp"),
        ("2025-01-00T00:00:00Z", "invalid_timestamp"),
        ("2025-01-01T24:00:00Z", "invalid_timestamp"),
        ("2025-01-01T00:60:00Z", "invalid_timestamp"),
        ("2016-12-31T23:59:60Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00." + "0" * 31 + "Z", "invalid_timestamp"),
        ("2025-01-01T00:00:00", "timestamp_without_offset"),
        ("2025-01-01T00:00:00.123456", "timestamp_without_offset"),
        ("2025-01-01T00:00:00.1234567Z", "timestamp_too_precise"),
        ("0000-01-01T00:00:00Z", "timestamp_out_of_range"),
        ("1969-12-31T23:59:59.999999Z", "timestamp_out_of_range"),
        ("1970-01-01T00:00:00+00:01", "timestamp_out_of_range"),
        ("2262-01-01T00:00:00Z", "timestamp_out_of_range"),
        ("2261-12-31T23:59:59-00:01", "timestamp_out_of_range"),
        ("9999-12-31T23:59:59Z", "timestamp_out_of_range"),
    ],
)
def test_what_is_no_instant_in_range_is_refused(text: str, code: str) -> None:
    assert code_of(text) == code


def test_an_error_quotes_what_was_sent_also_when_the_minute_is_at_fault() -> None:
    with pytest.raises(EventRejected, match=r"2025-02-30T10:11:12\.5Z"):
        parse_timestamp("2025-02-30T10:11:12.5Z")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("2025-01-01 00:00:00Z", "T between"),
        ("2025-01-01T00:00:00+0100", "colon"),
        ("1735689600", "Unix"),
        ("2025-01-01", "date alone"),
        ("2025-01-01T24:00:00Z", "next"),
        ("2016-12-31T23:59:60Z", "Leap"),
    ],
)
def test_a_common_misspelling_has_its_own_hint(text: str, word: str) -> None:
    with pytest.raises(EventRejected) as caught:
        parse_timestamp(text)
    assert word in caught.value.hint


def test_truncation_cuts_and_never_rounds() -> None:
    assert normalise_timestamp("2025-01-01T00:00:00.1234569Z", truncate=True)[1] == (
        "2025-01-01T00:00:00.123456Z"
    )
    assert code_of("2025-02-30T00:00:00.1234567Z", truncate=True) == "invalid_timestamp"


def test_scattered_minutes_do_not_grow_the_caches_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemark import timestamps

    monkeypatch.setattr(timestamps, "_MAX_CACHED_MINUTES", 3)
    for minute in range(10):
        us = parse_timestamp(f"1999-01-01T00:{minute:02d}:00Z")
        assert format_timestamp(us) == f"1999-01-01T00:{minute:02d}:00.000000Z"
    assert len(timestamps._minute_starts) <= 3
    assert len(timestamps._minute_texts) <= 3


def spelled(us: int, offset_minutes: int, digits: int) -> str:
    """The instant with this offset, with at least this many fractional digits."""
    zone = timezone(timedelta(minutes=offset_minutes))
    local = (EPOCH + us * MICROSECOND).astimezone(zone)
    fraction = f"{local.microsecond:06d}"
    while len(fraction) > digits and fraction.endswith("0"):
        fraction = fraction[:-1]
    sign = "-" if offset_minutes < 0 else "+"
    hours, minutes = divmod(abs(offset_minutes), 60)
    offset = "Z" if offset_minutes == 0 else f"{sign}{hours:02d}:{minutes:02d}"
    point = f".{fraction}" if fraction else ""
    return local.strftime("%Y-%m-%dT%H:%M:%S").zfill(19) + point + offset


def agrees_with_datetime(parse: Parse) -> Check:
    @given(instants, offsets, st.integers(min_value=0, max_value=6))
    def check(us: int, offset: int, digits: int) -> None:
        text = spelled(us, offset, digits)
        expected = (datetime.fromisoformat(text) - EPOCH) // MICROSECOND
        assert parse(text) == expected == us

    return check


def is_its_own_inverse(write: Callable[[int], str]) -> Check:
    @given(instants)
    def check(us: int) -> None:
        text = write(us)
        assert parse_timestamp(text) == us
        assert text == (EPOCH + us * MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return check


test_every_spelling_is_the_instant_that_datetime_reads = agrees_with_datetime(parse_timestamp)
test_formatting_and_parsing_are_inverse = is_its_own_inverse(format_timestamp)


def test_a_parser_that_goes_through_a_float_is_caught() -> None:
    def by_float(text: str) -> int:
        return int(datetime.fromisoformat(text).timestamp() * 1_000_000)

    assert_catches(agrees_with_datetime, by_float)


def test_a_parser_that_adds_the_offset_is_caught() -> None:
    def wrong_sign(text: str) -> int:
        moment = datetime.fromisoformat(text)
        offset = moment.utcoffset()
        assert offset is not None
        return (moment.replace(tzinfo=UTC) + offset - EPOCH) // MICROSECOND

    assert_catches(agrees_with_datetime, wrong_sign)


def test_a_writer_that_drops_zeros_is_caught() -> None:
    def short(us: int) -> str:
        return (EPOCH + us * MICROSECOND).isoformat().replace("+00:00", "Z")

    assert_catches(is_its_own_inverse, short)


@given(st.text(max_size=40) | st.from_regex(r"[0-9TtZz:+. -]{15,35}", fullmatch=True))
def test_any_text_is_an_instant_in_range_or_refused(text: str) -> None:
    try:
        us, written = normalise_timestamp(text)
    except EventRejected:
        return
    assert 0 <= us <= MAX_TIMESTAMP_US
    assert written == format_timestamp(us)
