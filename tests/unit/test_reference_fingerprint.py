from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.generated.ledgers import Shape, random_ledger
from tests.generated.meters import random_meter
from tests.reference.amounts import format_amount, mean, parse_amount
from tests.reference.definitions import Meter
from tests.reference.fingerprint import MeterResult, fingerprint, fingerprint_lines
from tests.reference.history import Commit, Event
from tests.reference.instants import parse_instant
from tests.reference.meters import fold_meters

RECEIVED_AT = parse_instant("2025-11-15T12:00:00.000001Z")
LEDGER: list[Commit] = [
    (
        RECEIVED_AT,
        [
            Event(
                seq=1,
                key="k1",
                tenant_id="t1",
                stream="usage",
                metric="api_calls",
                customer_ref="größer\n",
                resource_id=None,
                quantity="2.50",
                ts=parse_instant("2025-11-10T00:00:00Z"),
                meta=None,
                control=None,
            ),
        ],
    )
]
ROW = (
    '{"adjusted":"0","agg_count":1,"agg_last":"2.5","agg_max":"2.5","agg_min":"2.5",'
    '"agg_sum":"2.5","counted":"2.5","customer_ref":"größer\\n","metric":"api_calls",'
    '"period_start":"2025-11-01T00:00:00.000000Z","region":null,"tenant_id":"t1","total":"2.5",'
    '"watermark_ts":"2025-11-10T00:00:00.000000Z"}'
)
KEY = '["t1","api_calls","größer\\n",null,"2025-11-01T00:00:00.000000Z"]'
LINES = [
    f'["row","m",{ROW}]',
    f'["change","m",{{"key":{KEY},"old_row":null,"op":"INSERT",'
    f'"received_at":"2025-11-15T12:00:00.000001Z","row":{ROW}}}]',
]


def test_the_lines_are_as_documented() -> None:
    results = fold_meters(LEDGER, [Meter("m", "api_calls", group_by=("region",))])
    assert list(fingerprint_lines(results)) == LINES
    assert (
        fingerprint(results)
        == hashlib.sha256("".join(f"{x}\n" for x in LINES).encode()).hexdigest()
    )


def test_the_order_in_which_results_are_given_plays_no_part() -> None:
    meters = [random_meter(seed) for seed in range(3)]
    results = fold_meters(random_ledger(8, Shape(max_commits=12)), meters)
    reversed_results = {
        name: MeterResult(
            [dict(reversed(result.rows.items()))], result.adjustments[::-1], result.changes[::-1]
        )
        for name, result in reversed(results.items())
    }
    assert all(result.adjustments and result.changes for result in results.values())
    assert fingerprint(reversed_results) == fingerprint(results)


def test_every_part_of_a_result_counts() -> None:
    results = fold_meters(random_ledger(8, Shape(max_commits=12)), [random_meter(1)])
    (result,) = results.values()
    for part in (
        replace(result, rows_after=[{}]),
        replace(result, adjustments=result.adjustments[1:]),
        replace(result, changes=result.changes[:-1]),
    ):
        assert fingerprint({"m1": part}) != fingerprint(results)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        *(("0", "0"), ("-0", "0"), ("0.0", "0"), ("1.50", "1.5"), ("100", "100")),
        *(("-0.000000001", "-0.000000001"), ("-12.30", "-12.3")),
        ("9999999999999999999.999999999", "9999999999999999999.999999999"),
    ],
)
def test_a_decimal_is_written_plainly(text: str, normal: str) -> None:
    assert format_amount(parse_amount(text)) == normal


@given(st.integers(-(10**38), 10**38))
def test_a_decimal_of_any_size_is_read_as_it_was_written(billionths: int) -> None:
    assert parse_amount(format_amount(billionths)) == billionths


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [(1, 2, 0), (3, 2, 2), (5, 2, 2), (-1, 2, 0), (-3, 2, -2), (2, 3, 1), (10, 3, 3)],
)
def test_a_mean_is_rounded_half_to_even(total: int, count: int, expected: int) -> None:
    assert mean(total, count) == expected
