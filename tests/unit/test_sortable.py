"""Text that sorts as the numbers do: the quantities of a store without a decimal type."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.decimals import normalise_decimal
from tidemark.ledger.sortable import from_sortable, to_sortable

Check = Callable[[], None]


class Spelling(msgspec.Struct, frozen=True):
    """A way to write a quantity and to read it back."""

    write: Callable[[str], str]
    read: Callable[[str], str]


OURS = Spelling(to_sortable, from_sortable)

# In units of the last decimal. Around zero and the powers of ten lie all near misses.
LARGEST = 10**28 - 1
POWERS = st.integers(0, 28).map(lambda exponent: 10**exponent)
UNITS = st.one_of(
    st.integers(-20, 20),
    st.integers(-LARGEST, LARGEST),
    st.builds(
        lambda power, sign, step: max(-LARGEST, min(LARGEST, sign * power + step)),
        POWERS,
        st.sampled_from([-1, 1]),
        st.integers(-2, 2),
    ),
)


def plain(units: int) -> str:
    """The one spelling of a quantity, as ingress hands it on."""
    digits = f"{abs(units):010d}"
    return normalise_decimal(f"{'-' * (units < 0)}{digits[:-9]}.{digits[-9:]}")


def order_is_kept(spelling: Spelling) -> Check:
    @given(st.lists(UNITS.map(plain), min_size=2, max_size=6))
    def check(numbers: list[str]) -> None:
        by_text = sorted(numbers, key=spelling.write)
        assert list(map(Decimal, by_text)) == sorted(map(Decimal, numbers))
        for one in numbers:
            for other in numbers:
                same = Decimal(one) == Decimal(other)
                assert (spelling.write(one) == spelling.write(other)) == same

    return check


def nothing_is_lost(spelling: Spelling) -> Check:
    @given(UNITS.map(plain))
    def check(number: str) -> None:
        assert spelling.read(spelling.write(number)) == number

    return check


def test_order_is_kept() -> None:
    order_is_kept(OURS)()


def test_nothing_is_lost() -> None:
    nothing_is_lost(OURS)()


@pytest.mark.parametrize(
    ("text", "sortable"),
    [
        ("0", "p0000000000000000000.000000000"),
        ("12.5", "p0000000000000000012.500000000"),
        ("-12.5", "n9999999999999999987.499999999"),
        ("-0.000000001", "n9999999999999999999.999999998"),
        ("9999999999999999999.999999999", "p9999999999999999999.999999999"),
        ("-9999999999999999999.999999999", "n0000000000000000000.000000000"),
    ],
)
def test_the_text_of_a_quantity_is_for_ever(text: str, sortable: str) -> None:
    """It stands in files that people keep, so a change would need a migration."""
    assert to_sortable(text) == sortable
    assert from_sortable(sortable) == text


def without_complement(plain: str) -> str:
    text = to_sortable(plain.removeprefix("-"))
    return "n" + text[1:] if plain.startswith("-") else text


def without_leading_zeros(plain: str) -> str:
    text = to_sortable(plain)
    return text[0] + text[1:].lstrip("0")


def through_a_float(plain: str) -> str:
    return to_sortable(f"{float(plain):.9f}")


def one_digit_short(plain: str) -> str:
    text = to_sortable(plain)
    return text[0] + text[2:]


def one_decimal_short(plain: str) -> str:
    return to_sortable(plain)[:-1]


@pytest.mark.parametrize(
    "write",
    [
        without_complement,
        without_leading_zeros,
        through_a_float,
        one_digit_short,
        one_decimal_short,
    ],
)
def test_a_spelling_that_sorts_wrongly_is_caught(write: Callable[[str], str]) -> None:
    assert_catches(order_is_kept, Spelling(write, from_sortable))


@pytest.mark.parametrize("read", [lambda text: from_sortable(text).rstrip("0"), lambda text: text])
def test_a_spelling_that_cannot_be_read_back_is_caught(read: Callable[[str], str]) -> None:
    assert_catches(nothing_is_lost, Spelling(to_sortable, read))
