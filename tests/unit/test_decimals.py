from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.decimals import normalise_decimal, normalise_integer, normalise_number
from tidemark.errors import EventRejected

Normalise = Callable[[str], str]
Check = Callable[[], None]

# Wide enough that nothing in these tests is rounded.
EXACT = Context(prec=2000, Emax=999_999, Emin=-999_999)


def code_of(normalise: Callable[[str], object], text: str) -> str:
    with pytest.raises(EventRejected) as caught:
        normalise(text)
    assert caught.value.hint
    assert len(caught.value.message) < 200
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-0.000", "0"),
        ("0e999999999", "0"),
        ("1", "1"),
        ("1.0", "1"),
        ("1.00", "1"),
        ("10", "10"),
        ("100.500", "100.5"),
        ("-12.340", "-12.34"),
        ("1e3", "1000"),
        ("1.5E+2", "150"),
        ("15e-1", "1.5"),
        ("1e-9", "0.000000001"),
        ("0.0000000010000", "0.000000001"),
        ("9999999999999999999.999999999", "9999999999999999999.999999999"),
        ("-9999999999999999999.999999999", "-9999999999999999999.999999999"),
        ("0.1e19", "1000000000000000000"),
        ("1." + "0" * 300, "1"),
    ],
)
def test_a_quantity_has_one_text(text: str, canonical: str) -> None:
    assert normalise_decimal(text) == canonical


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid_decimal"),
        ("abc", "invalid_decimal"),
        ("NaN", "invalid_decimal"),
        ("Infinity", "invalid_decimal"),
        ("+1", "invalid_decimal"),
        ("01", "invalid_decimal"),
        (".5", "invalid_decimal"),
        ("5.", "invalid_decimal"),
        (" 1", "invalid_decimal"),
        ("1\n", "invalid_decimal"),
        ("1_000", "invalid_decimal"),
        ("1,5", "invalid_decimal"),
        ("0x10", "invalid_decimal"),
        ("١", "invalid_decimal"),
        ("1e", "invalid_decimal"),
        ("--1", "invalid_decimal"),
        ("10000000000000000000", "decimal_out_of_range"),
        ("1e19", "decimal_out_of_range"),
        ("-1e19", "decimal_out_of_range"),
        ("1e999999999", "decimal_out_of_range"),
        ("0.0000000001", "decimal_too_precise"),
        ("1e-10", "decimal_too_precise"),
        ("1e-999999999", "decimal_too_precise"),
        ("1" * 401, "decimal_too_long"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str, code: str) -> None:
    assert code_of(normalise_decimal, text) == code


@pytest.mark.parametrize("bomb", ["1e999999999", "1e" + "9" * 390, "1" * 1_000_000, "1e-999999999"])
@pytest.mark.parametrize("normalise", [normalise_decimal, normalise_number])
def test_a_bomb_is_refused_at_once(bomb: str, normalise: Normalise) -> None:
    start = time.perf_counter()
    code_of(normalise, bomb)
    assert time.perf_counter() - start < 0.1


def test_a_number_in_free_json_may_be_any_double() -> None:
    assert normalise_number("1.7976931348623157e308").startswith("17976931348623157000")
    assert normalise_number("4.9406564584124654e-324").endswith("49406564584124654")
    assert normalise_number("1" * 400) == "1" * 400
    assert code_of(normalise_number, "1e400") == "decimal_out_of_range"
    assert code_of(normalise_number, "1e-401") == "decimal_out_of_range"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("7.0", 7),
        ("1e3", 1000),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_an_integer_may_be_spelled_in_any_way(text: str, value: int) -> None:
    assert normalise_integer(text, 32) == value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2147483648", "int_out_of_range"),
        ("-2147483649", "int_out_of_range"),
        ("1e999999999", "int_out_of_range"),
        ("1.5", "not_an_integer"),
        ("1e-1", "not_an_integer"),
        ("one", "invalid_decimal"),
    ],
)
def test_what_is_no_integer_of_its_size_is_refused(text: str, code: str) -> None:
    assert code_of(lambda number: normalise_integer(number, 32), text) == code


def test_a_bigint_reaches_the_ends_of_64_bits() -> None:
    assert normalise_integer("9223372036854775807", 64) == 2**63 - 1
    assert normalise_integer("-9223372036854775808", 64) == -(2**63)
    assert code_of(lambda number: normalise_integer(number, 64), "9223372036854775808") == (
        "int_out_of_range"
    )


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """JSON numbers of all spellings, many of them near the bounds."""
    digits = st.text("0123456789", min_size=1, max_size=24)
    whole = draw(digits).lstrip("0") or "0"
    fraction = draw(st.none() | st.text("0123456789", min_size=1, max_size=14))
    exponent = draw(st.none() | st.integers(min_value=-30, max_value=30))
    text = draw(st.sampled_from(["", "-"])) + whole
    if fraction is not None:
        text += "." + fraction
    if exponent is not None:
        text += draw(st.sampled_from(["e", "E", "e+", "e0"] if exponent >= 0 else ["e", "E"]))
        text += str(exponent)
    return text


def agrees_with_the_decimal_module(normalise: Normalise) -> Check:
    @given(numbers())
    def check(text: str) -> None:
        exact = EXACT.create_decimal(text)
        plain = format(exact.normalize(EXACT), "f")
        if exact == 0:
            plain = "0"
        decimals = len(plain.partition(".")[2])
        if abs(exact) >= Decimal(10) ** 19:
            assert code_of(normalise, text) == "decimal_out_of_range"
        elif decimals > 9:
            assert code_of(normalise, text) == "decimal_too_precise"
        else:
            assert normalise(text) == plain

    return check


test_every_number_is_what_the_decimal_module_makes_of_it = agrees_with_the_decimal_module(
    normalise_decimal
)


def test_an_implementation_that_rounds_is_caught() -> None:
    def rounding(text: str) -> str:
        exact = EXACT.create_decimal(text)
        if abs(exact) >= Decimal(10) ** 19 or -int(exact.normalize(EXACT).as_tuple().exponent) > 9:
            return normalise_decimal(text)
        rounded = Context(prec=18).create_decimal(text).normalize(EXACT)
        return "0" if rounded == 0 else format(rounded, "f")

    assert_catches(agrees_with_the_decimal_module, rounding)


def test_an_implementation_that_keeps_trailing_zeros_is_caught() -> None:
    def untrimmed(text: str) -> str:
        return text if normalise_decimal(text) == text.rstrip("0") else normalise_decimal(text)

    assert_catches(agrees_with_the_decimal_module, untrimmed)


@given(st.text(max_size=30) | st.from_regex(r"[-+0-9.eE]{1,30}", fullmatch=True))
def test_any_text_is_a_canonical_number_or_refused(text: str) -> None:
    try:
        canonical = normalise_decimal(text)
    except EventRejected:
        return
    assert normalise_decimal(canonical) == canonical
    assert Decimal(canonical) == Decimal(text)
