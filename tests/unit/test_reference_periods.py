from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generated.ledgers import BOUNDS, FIRST_INSTANT, LAST_INSTANT
from tests.reference.instants import format_instant, parse_instant
from tests.reference.periods import HOUR_US, PeriodName, period_of

PERIODS: tuple[PeriodName, ...] = ("hour", "day", "week", "month")
ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo")

instants = st.integers(FIRST_INSTANT, LAST_INSTANT) | st.builds(
    int.__add__, st.sampled_from(BOUNDS), st.integers(-1, 1)
)


@pytest.mark.parametrize(
    ("ts", "period", "zone", "start", "end"),
    [
        ("2025-11-10T00:00:00Z", "week", "UTC", "2025-11-10T00:00:00Z", "2025-11-17T00:00:00Z"),
        ("2025-11-09T23:59:59Z", "week", "UTC", "2025-11-03T00:00:00Z", "2025-11-10T00:00:00Z"),
        ("2024-02-29T12:00:00Z", "month", "UTC", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
        ("2025-12-31T12:00:00Z", "month", "UTC", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        # A local day is not the day in UTC, and not always 24 hours long.
        (
            *("2025-11-02T04:00:00Z", "day", "America/New_York"),
            *("2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"),
        ),
        (
            *("2026-03-29T12:00:00Z", "day", "Europe/Berlin"),
            *("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ),
        # November in New York begins in summer time and ends in winter time.
        (
            *("2025-11-15T00:00:00Z", "month", "America/New_York"),
            *("2025-11-01T04:00:00Z", "2025-12-01T05:00:00Z"),
        ),
        # Half past one comes twice, in two hours.
        (
            *("2025-11-02T05:30:00Z", "hour", "America/New_York"),
            *("2025-11-02T05:00:00Z", "2025-11-02T06:00:00Z"),
        ),
        (
            *("2025-11-02T06:30:00Z", "hour", "America/New_York"),
            *("2025-11-02T06:00:00Z", "2025-11-02T07:00:00Z"),
        ),
        # Local hours begin at half past in UTC.
        (
            *("2025-11-02T05:29:59Z", "hour", "Asia/Kolkata"),
            *("2025-11-02T04:30:00Z", "2025-11-02T05:30:00Z"),
        ),
        # On this day there was no midnight: the clock went from 23:59 to 01:00.
        (
            *("2017-10-15T12:00:00Z", "day", "America/Sao_Paulo"),
            *("2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z"),
        ),
        # Here midnight came twice: the clock went from 00:59 back to 00:00.
        (
            *("2025-11-02T12:00:00Z", "day", "America/Havana"),
            *("2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"),
        ),
    ],
)
def test_a_period_begins_and_ends_by_the_local_clock(
    ts: str, period: PeriodName, zone: str, start: str, end: str
) -> None:
    found = period_of(parse_instant(ts), period, zone)
    assert [format_instant(bound) for bound in found] == [
        format_instant(parse_instant(bound)) for bound in (start, end)
    ]


@given(instants, st.sampled_from(PERIODS), st.sampled_from(ZONES))
def test_periods_follow_one_another_without_gap_or_overlap(
    ts: int, period: PeriodName, zone: str
) -> None:
    found = period_of(ts, period, zone)
    assert found.start <= ts < found.end
    assert period_of(found.start, period, zone) == found
    assert period_of(found.end - 1, period, zone) == found
    assert period_of(found.end, period, zone).start == found.end
    assert (found.end - found.start) % (HOUR_US // 2) == 0
