from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.canonical import Number, canonical_json, canonical_text, content_hash
from tidemark.errors import EventRejected
from tidemark.ingress.trees import read_tree

Canonical = Callable[[bytes], bytes]
Check = Callable[[], None]

numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
trees = st.recursive(
    st.none() | st.booleans() | texts | numbers.map(Number),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def by_tree(raw: bytes) -> bytes:
    return canonical_json(read_tree(raw, max_depth=100))


def by_text(raw: bytes) -> bytes:
    return canonical_text(raw)[1]


@st.composite
def spellings(draw: st.DrawFn, tree: Any) -> str:
    """One of the many JSON texts of a tree: order, spaces, escapes and numbers vary."""
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    if isinstance(tree, dict):
        names = draw(st.permutations(list(tree)))
        members = [
            f"{draw(spellings(name))}{space}:{space}{draw(spellings(tree[name]))}" for name in names
        ]
        return "{" + space + f",{space}".join(members) + space + "}"
    if isinstance(tree, list):
        return "[" + f"{space},".join(draw(spellings(member)) for member in tree) + space + "]"
    if isinstance(tree, Number):
        return draw(number_spellings(tree.text))
    return json.dumps(tree, ensure_ascii=draw(st.booleans()))


@st.composite
def number_spellings(draw: st.DrawFn, text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or "0")
    zeros = draw(st.integers(min_value=0, max_value=3))
    # The same number with its digits moved into the exponent, and zeros added at the end.
    digits = (whole.lstrip("-") + fraction + "0" * zeros).lstrip("0") or "0"
    sign = "-" if text.startswith("-") else ""
    return f"{sign}{digits}{draw(st.sampled_from('eE'))}{power - len(fraction) - zeros}"


def test_keys_are_sorted_by_code_point_and_nothing_else_is_added() -> None:
    raw = '{"b": 1.50, "a": [true, null, "é\\u00e9\\/"], "\\ud83d\\ude00": {}, "￿": []}'.encode()
    expected = '{"a":[true,null,"éé/"],"b":1.5,"￿":[],"😀":{}}'.encode()
    assert by_tree(raw) == by_text(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"-0", b"0"),
        (b"-0.0", b"0"),
        (b"1.0", b"1"),
        (b"1e2", b"100"),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"0.1", b"0.1"),
        (b"1e-7", b"0.0000001"),
        (b'"\\u0041\\n\\u001f\\""', b'"A\\n\\u001f\\""'),
    ],
)
def test_a_value_has_one_text(raw: bytes, expected: bytes) -> None:
    assert by_tree(raw) == by_text(raw) == expected


def test_a_number_too_long_to_be_written_out_is_refused_by_both_readers() -> None:
    for raw in (b"1e400", b"[" + b"9" * 401 + b"]", b'{"a":-' + b"9" * 400 + b"}"):
        with pytest.raises(EventRejected):
            by_tree(raw)
        with pytest.raises(EventRejected):
            by_text(raw)
    for raw in (b"9" * 400, b"-" + b"9" * 399):
        assert by_tree(raw) == by_text(raw) == raw


def test_only_json_has_a_canonical_text() -> None:
    with pytest.raises(TypeError):
        canonical_json({"when": object()})


def is_the_same_for_every_spelling(canonical: Canonical) -> Check:
    @given(trees, st.data())
    def check(tree: Any, data: st.DataObject) -> None:
        one = data.draw(spellings(tree)).encode()
        other = data.draw(spellings(tree)).encode()
        assert canonical(one) == canonical(other) == canonical_json(tree)

    return check


test_the_tree_reader_gives_one_text_for_every_spelling = is_the_same_for_every_spelling(by_tree)
test_the_quick_reader_gives_one_text_for_every_spelling = is_the_same_for_every_spelling(by_text)


def test_a_form_that_keeps_the_order_of_keys_is_caught() -> None:
    def unsorted(raw: bytes) -> bytes:
        return json.dumps(json.loads(by_text(raw)), separators=(",", ":")).encode()

    assert_catches(is_the_same_for_every_spelling, unsorted)


def test_a_form_that_goes_through_a_float_is_caught() -> None:
    def by_float(raw: bytes) -> bytes:
        return json.dumps(
            json.loads(raw), separators=(",", ":"), sort_keys=True, ensure_ascii=False
        ).encode()

    assert_catches(is_the_same_for_every_spelling, by_float)


def differs_for_different_values(hashed: Callable[[Any], bytes]) -> Check:
    @given(trees, trees)
    def check(one: Any, other: Any) -> None:
        same = _plain(one) == _plain(other)
        assert (hashed(one) == hashed(other)) == same

    return check


def _plain(tree: Any) -> Any:
    """A tree that Python compares as JSON does: 1 is not true, and numbers compare by value."""
    if isinstance(tree, dict):
        return {name: _plain(member) for name, member in tree.items()}
    if isinstance(tree, list):
        return [_plain(member) for member in tree]
    if isinstance(tree, Number):
        return ("number", canonical_json(tree))
    return (type(tree).__name__, tree)


test_different_values_have_different_hashes = differs_for_different_values(content_hash)


def test_a_hash_that_takes_null_for_absent_is_caught() -> None:
    def without_nulls(tree: Any) -> bytes:
        if isinstance(tree, dict):
            tree = {name: member for name, member in tree.items() if member is not None}
        return content_hash(tree or None)

    assert_catches(differs_for_different_values, without_nulls)
