"""LIKE, and the regular expressions that mean the same everywhere."""

from __future__ import annotations

import time

import pytest

from tests.reference.filters import like
from tidemark.live.errors import InvalidFilter
from tidemark.live.filters.patterns import check_like, shared_regex, text_test


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a%", "abc", True),
        ("a%", "ABC", False),
        ("%c", "abc", True),
        ("%b%", "abc", True),
        ("abc", "abc", True),
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("_", "😀", True),
        ("_", "e\u0301", False),
        ("a\\%", "a%", True),
        ("a\\%", "ab", False),
        ("a\\b", "ab", True),
        ("a\\\\b", "a\\b", True),
        ("a_c", "a\nc", True),
        ("a%", "a\n\nb", True),
        ("a.c", "abc", False),
        ("[a]", "[a]", True),
    ],
)
def test_like_is_that_of_sql(pattern: str, text: str, expected: bool) -> None:
    check_like(pattern)
    assert text_test("like", pattern)(text) is expected
    assert like(pattern, text) is expected


def test_ilike_ignores_the_case_of_ascii_letters_only() -> None:
    assert text_test("ilike", "aBc%")("AbCd")
    assert not text_test("ilike", "é")("É")
    assert not text_test("ilike", "k")("\u212a")
    assert text_test("ilike", "\\K\\_%")("k_é")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("c$", "abc", True),
        ("c$", "abc\n", False),
        ("a.c", "a\nc", True),
        ("[^a]", "\n", True),
        ("^[a-c😀-😂]{2,}$", "a😁", True),
        ("^(ab|cd)+$", "abcdab", True),
        ("^(?:ab|cd)?$", "", True),
        (r"\[\]\{\}\-\_\.\/\\", r"[]{}-_./\ ", True),
        (r"^[\]\^\-x]+$", "]^-x", True),
        ("[a-]", "-", True),
        ("[-a]", "-", True),
        ("", "anything", True),
        ("a|", "b", True),
        ("A", "a", False),
    ],
)
def test_a_shared_regex_is_found_anywhere(pattern: str, text: str, expected: bool) -> None:
    assert text_test("regex", shared_regex(pattern))(text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\d", r"\w", r"\b", r"\1", r"\A", r"\x41", "\\", "\\é"),
        *("(?i)a", "(?=a)", "(?P<n>a)", "(?", "***a", "*a", "a**", "a*?", "a+?", "a{2}?", "a|*"),
        *("^*", "$+", "(a", "a)", "[a", "[]", "[^]", "[[:alpha:]]", "[z-a]", "a]", "a}"),
        *("a{", "a{,2}", "a{x}", "a{101}", "a{2,101}", "a{3,2}", "a{1000}", "a{²}"),
        *("((a{20}){20}){20}", "(" * 30 + ")" * 30, "a" * 1_001),
    ],
)  # fmt: skip
def test_what_not_every_store_knows_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidFilter):
        shared_regex(pattern)


def test_a_long_pattern_is_taken_as_long_as_memory_is_bounded() -> None:
    check_like("aé" * 5_000)
    check_like("%" + "x" * 9_999)
    assert text_test("ilike", "a" * 10_000)("A" * 10_000)
    check_like("_" * 10_000)
    shared_regex("[^a]{1,90}x" * 3)
    with pytest.raises(InvalidFilter, match="written out"):
        shared_regex("(?:a?){100}" * 3)


def test_no_pattern_takes_longer_than_its_text_is_long() -> None:
    evil = "^(?:(?:a|a)*|(?:a*)*)*$"
    started = time.perf_counter()
    assert not text_test("regex", shared_regex(evil))("a" * 100_000 + "b")
    assert not text_test("like", "%a" * 50 + "%c")("a" * 100_000)
    assert time.perf_counter() - started < 5
