"""Calendar periods, held to the plain reference in every kind of time zone."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.generated.ledgers import BOUNDS
from tests.reference.instants import format_instant, parse_instant
from tests.reference.periods import period_of
from tidemark.pipeline.periods import HOUR_US, Period, period_end, period_start
from tidemark.timestamps import MAX_TIMESTAMP_US

PERIODS: Final[tuple[Period, ...]] = ("hour", "day", "week", "month")
# With summer time in both hemispheres, changes at midnight and by half an hour, offsets of quarters
# of an hour and of 14 hours, a day that never was, and clocks that go back across midnight.
ZONES: Final = (
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Apia",
    "America/St_Johns",
    "Africa/Monrovia",
)
# What happened to whose clock.
CHANGES: Final = tuple(
    (parse_instant(text), zone)
    for text, zone in (
        ("1972-01-07T00:44:30Z", "Africa/Monrovia"),  # whole minutes from here on
        ("2006-10-29T02:31:00Z", "America/St_Johns"),  # from 00:01 back to 23:01
        ("2011-12-30T10:00:00Z", "Pacific/Apia"),  # a day is left out
        ("2017-10-15T03:00:00Z", "America/Sao_Paulo"),  # no midnight
        ("2025-04-05T15:00:00Z", "Australia/Lord_Howe"),  # back by half an hour
        ("2025-11-02T05:00:00Z", "America/Havana"),  # two midnights
        ("2025-11-02T06:00:00Z", "America/New_York"),
        ("2026-03-29T01:00:00Z", "Europe/Berlin"),
    )
)

# An instant anywhere, or near a change of the very zone that it is asked in.
places = st.tuples(
    st.integers(0, MAX_TIMESTAMP_US)
    | st.builds(int.__add__, st.sampled_from(BOUNDS), st.integers(-1, 1)),
    st.sampled_from(ZONES),
) | st.builds(
    lambda change, distance: (change[0] + distance, change[1]),
    st.sampled_from(CHANGES),
    st.integers(-1, 1) | st.integers(-30 * HOUR_US, 30 * HOUR_US),
)


@given(places, st.sampled_from(PERIODS))
@example((0, "America/New_York"), "month")
@example((MAX_TIMESTAMP_US, "Pacific/Kiritimati"), "month")
def test_a_period_begins_and_ends_where_the_reference_says(
    place: tuple[int, str], period: Period
) -> None:
    ts, zone = place
    expected = period_of(ts, period, zone)
    start = period_start(ts, period, zone)
    assert (start, period_end(start, period, zone)) == expected


# Not of hours: one in which the clock jumps by some minutes was never begun by the clock.
@given(places, st.sampled_from(PERIODS[1:]))
def test_the_start_of_a_period_is_in_it(place: tuple[int, str], period: Period) -> None:
    ts, zone = place
    # Where the clock goes back across midnight, a moment of the old day comes after the new one
    # has begun; so it is of starts only that this can be said of every zone.
    start = period_start(ts, period, zone)
    assert period_start(start, period, zone) == start


@pytest.mark.parametrize(
    ("ts", "period", "zone", "start", "end"),
    [
        (
            *("2025-11-10T12:34:56.789012Z", "hour", "UTC"),
            *("2025-11-10T12:00:00.000000Z", "2025-11-10T13:00:00.000000Z"),
        ),
        (
            *("2025-11-09T23:59:59Z", "week", "UTC"),
            *("2025-11-03T00:00:00.000000Z", "2025-11-10T00:00:00.000000Z"),
        ),
        # A day of 25 hours.
        (
            *("2025-11-02T12:00:00Z", "day", "America/New_York"),
            *("2025-11-02T04:00:00.000000Z", "2025-11-03T05:00:00.000000Z"),
        ),
        # The day before one that never was ends where the day after it begins.
        (
            *("2011-12-29T12:00:00Z", "day", "Pacific/Apia"),
            *("2011-12-29T10:00:00.000000Z", "2011-12-30T10:00:00.000000Z"),
        ),
        # Local hours begin a quarter past.
        (
            *("2025-06-01T00:14:59Z", "hour", "Asia/Kathmandu"),
            *("2025-05-31T23:15:00.000000Z", "2025-06-01T00:15:00.000000Z"),
        ),
    ],
)
def test_periods_that_are_easily_got_wrong(
    ts: str, period: Period, zone: str, start: str, end: str
) -> None:
    found = period_start(parse_instant(ts), period, zone)
    assert format_instant(found) == start
    assert format_instant(period_end(found, period, zone)) == end
