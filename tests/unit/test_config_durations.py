"""Durations: what is one, what was meant, and that writing and reading are inverse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.config.durations import (
    MAX_DURATION_US,
    format_duration,
    parse_duration,
    suggest_duration,
)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0s", 0),
        ("7us", 7),
        ("250ms", 250_000),
        ("1s", 1_000_000),
        ("5m", 300_000_000),
        ("48h", 172_800_000_000),
        ("7d", 604_800_000_000),
        ("36500d", MAX_DURATION_US),
        ("007s", 7_000_000),
    ],
)
def test_a_number_and_a_unit_are_a_duration(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "s", "5 s", "-5s", "+5s", "1.5s", "1e3s", "5S", "5w", "1h30m", "5s\n"),
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "36501d",
        "9" * 18 + "d",
        "9" * 5000 + "s",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration|longer than"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5 minutes", "5m"),
        ("5 s", "5s"),
        ("5S", "5s"),
        ("10 MSEC", "10ms"),
        ("3µs", "3us"),
        ("1 hour", "1h"),
        ("07days", "7d"),
        ("5 weeks", None),
        ("soon", None),
        ("5", None),
    ],
)
def test_a_spoken_duration_is_understood_for_a_hint(text: str, meant: str | None) -> None:
    assert suggest_duration(text) == meant


def check_round_trip(write: Callable[[int], str]) -> None:
    @settings(database=None)
    @given(st.integers(0, MAX_DURATION_US) | st.integers(0, 5_000))
    def reads_back(micros: int) -> None:
        assert parse_duration(write(micros)) == micros

    reads_back()


def test_what_is_written_reads_back_as_the_same_time() -> None:
    check_round_trip(format_duration)


def test_the_round_trip_catches_a_unit_that_does_not_divide() -> None:
    def whole_milliseconds(micros: int) -> str:
        return f"{micros // 1_000}ms"

    with pytest.raises(AssertionError):
        check_round_trip(whole_milliseconds)


def check_shortest(write: Callable[[int], str]) -> None:
    @settings(database=None)
    @given(st.integers(1, MAX_DURATION_US) | st.integers(1, 36_500).map(lambda days: days * DAY_US))
    def no_other_unit_would_be_shorter(micros: int) -> None:
        written = [f"{micros // size}{unit}" for unit, size in UNITS.items() if micros % size == 0]
        assert len(write(micros)) == min(map(len, written))

    no_other_unit_would_be_shorter()


def test_no_other_unit_would_be_shorter() -> None:
    check_shortest(format_duration)


def test_that_property_catches_a_unit_that_is_too_small() -> None:
    with pytest.raises(AssertionError):
        check_shortest(lambda micros: f"{micros}us")


DAY_US = 86400 * 10**6
UNITS = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": DAY_US}
