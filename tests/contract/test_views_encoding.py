"""Rows, keys and numbers as text: one text for one value, and an order that is the numbers' own."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.views_home import POSITIONS, VISIBLE, key_of, position, text_of
from tests.unit.planted import assert_catches
from tidemark.decimals import plain_decimal
from tidemark.ledger import sortable as narrow
from tidemark.pipeline.output.encoding import MAX_ROW_KEY_BYTES, decode_row, encode_rows, row_keys
from tidemark.pipeline.output.errors import BatchRefused
from tidemark.views.sortable import checked_decimal, from_sortable, to_sortable

Check = Callable[[], None]

LARGEST = 10**38 - 1
NUMBERS = st.integers(-LARGEST, LARGEST).map(lambda n: exact(str(n))) | st.sampled_from(
    [Decimal("0"), Decimal("-0"), Decimal("0E-9"), Decimal("1e28"), Decimal("-0.000000001")]
)


def exact(digits: str) -> Decimal:
    """The number with its last nine digits behind the point."""
    sign, rest = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    rest = rest.zfill(10)
    return Decimal(f"{sign}{rest[:-9]}.{rest[-9:]}")


def sorts_as_numbers(sortable: Callable[[Decimal], str]) -> Check:
    @given(NUMBERS, NUMBERS)
    def check(one: Decimal, two: Decimal) -> None:
        a, b = sortable(one), sortable(two)
        assert (a < b, a == b) == (one < two, one == two)

    return check


def comes_back(read: Callable[[str], Decimal]) -> Check:
    @given(NUMBERS)
    def check(number: Decimal) -> None:
        again = read(to_sortable(number))
        assert again == number
        assert plain_decimal(again) == plain_decimal(number)

    return check


test_sortable_text_sorts_as_the_numbers_do = sorts_as_numbers(to_sortable)
test_sortable_text_comes_back_as_the_same_number = comes_back(from_sortable)


def test_the_ledgers_narrower_text_would_not_do() -> None:
    assert_catches(sorts_as_numbers, lambda number: narrow.to_sortable(plain_decimal(number)))


def test_a_number_that_passes_a_context_is_caught() -> None:
    assert_catches(comes_back, lambda text: from_sortable(text) + 0)


@pytest.mark.parametrize("number", ["1e29", "-1e29", "1e-10", "0.0000000001", "NaN", "-Infinity"])
def test_a_number_with_more_digits_is_refused_and_never_rounded(number: str) -> None:
    for keep in (checked_decimal, to_sortable):
        with pytest.raises(BatchRefused):
            keep(Decimal(number))


@pytest.mark.parametrize(
    ("number", "plain"),
    [("0E-9", "0"), ("-0", "0"), ("1.500", "1.5"), ("1E+3", "1000"), ("-0.10", "-0.1"), ("7", "7")],
)
def test_numbers_are_shown_plain_and_without_trailing_zeros(number: str, plain: str) -> None:
    assert plain_decimal(Decimal(number)) == plain
    assert checked_decimal(Decimal("1.0000000000")) == 1


def test_a_row_is_canonical_json_of_its_visible_columns() -> None:
    row = position(
        'a"ü\n',
        None,
        since=-1,
        quantity=Decimal("1.500000000"),
        trades=5,
        rank=5,
        open=False,
        side="buy",
        note='{"b":[1,null]}',
        memory="hidden",
    )
    assert text_of(row) == (
        '{"note":{"b":[1,null]},"open":false,"quantity":"1.5","rank":5,"region":null,'
        '"side":"buy","since":"1969-12-31T23:59:59.999999Z","tenant_id":"a\\"ü\\n","trades":"5"}'
    )
    assert decode_row(POSITIONS, text_of(row)) == tuple(row.values())[:9]
    assert key_of(row) == '["a\\"ü\\n",null]'


ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "tenant_id": st.none() | st.text(st.characters(codec="utf-8")),
        "region": st.none() | st.text(st.characters(codec="utf-8")),
        "since": st.none() | st.integers(-(10**15), 10**16),
        "quantity": st.none() | NUMBERS,
        "trades": st.none() | st.integers(-(2**63), 2**63 - 1),
        "rank": st.none() | st.integers(-(2**31), 2**31 - 1),
        "open": st.none() | st.booleans(),
        "side": st.none() | st.sampled_from(["sell", "it's both"]),
        "note": st.none() | st.sampled_from(["[]", '{"a":1.5}', '"x"', "0"]),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_rows_come_back_from_their_text(rows: list[dict[str, Any]]) -> None:
    texts = encode_rows(POSITIONS, {name: [row[name] for row in rows] for name in VISIBLE})
    for row, text in zip(rows, texts, strict=True):
        assert decode_row(POSITIONS, text) == tuple(row[name] for name in VISIBLE)
        assert list(json.loads(text)) == sorted(VISIBLE)


LONG = st.text(st.sampled_from('a"\U0001f600'), min_size=500, max_size=600)


@given(st.lists(st.tuples(st.none() | st.text() | LONG, st.none() | LONG), max_size=4))
def test_keys_are_equal_if_and_only_if_their_values_are_and_never_too_long(
    pairs: list[tuple[str | None, str | None]],
) -> None:
    columns = {"tenant_id": [a for a, _ in pairs], "region": [b for _, b in pairs]}
    keys = row_keys(POSITIONS, columns)
    assert len(set(keys)) == len(set(pairs))
    assert all(len(key.encode()) <= MAX_ROW_KEY_BYTES for key in keys)
