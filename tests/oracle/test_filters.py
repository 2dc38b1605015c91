"""A filter means the same in Python, on SQLite, on PostgreSQL, and in the words of SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.views_home import ViewsHome
from tests.generated.filters import (
    TEXTS,
    Row,
    Where,
    filters,
    like_patterns,
    regexes,
    rows,
    schemas,
)
from tests.oracle.filter_stores import (
    FilledStores,
    assert_all_agree,
    by_predicate,
    by_reference,
)
from tests.unit.planted import assert_catches
from tidemark.live.errors import InvalidFilter
from tidemark.live.filters import both, normal, parse_filter, parsing, predicate
from tidemark.live.filters.tree import And, Compare, Node, negation
from tidemark.pipeline.output.schema import Column, ViewSchema

pytest_plugins = ("tests.contract.views_fixtures",)

Case = tuple[ViewSchema, list[Row], list[Where]]


@st.composite
def cases(draw: st.DrawFn, filters_each: int = 4) -> Case:
    schema = draw(schemas())
    wheres = draw(st.lists(filters(schema), min_size=1, max_size=2 * filters_each))
    return schema, draw(rows(schema)), wheres


def fewer(share: int) -> settings:
    """Each case makes a table in two stores."""
    assert settings.default is not None
    return settings(max_examples=max(1, settings.default.max_examples // share))


async def test_a_filter_wants_the_same_rows_in_python_and_on_both_stores(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome
) -> None:
    stores = FilledStores(await sqlite_views_home.open(), await postgres_views_home.open())

    @given(cases(filters_each=20))
    def check(case: Case) -> None:
        assert_all_agree(stores, *case)

    await asyncio.to_thread(fewer(2)(check))


async def test_a_pattern_matches_the_same_texts_in_python_and_on_both_stores(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome
) -> None:
    stores = FilledStores(await sqlite_views_home.open(), await postgres_views_home.open())
    columns = (Column("id", "int"), Column("text", "string"))
    texts = [None, *TEXTS, "abab", "a-b", "aAbB", "kK\u212a"]
    some_rows: list[Row] = [{"id": number, "text": text} for number, text in enumerate(texts)]
    plain = ViewSchema("texts", columns, ("id",), "first")
    schema = await asyncio.to_thread(stores.fill, plain, some_rows)

    operators = st.sampled_from(["_like", "_nlike", "_ilike", "_nilike"])
    patterns = st.tuples(st.just("_regex"), regexes()) | st.tuples(operators, like_patterns())

    @given(st.lists(patterns, min_size=1, max_size=10))
    def check(conditions: list[tuple[str, str]]) -> None:
        for operator, pattern in conditions:
            where = {"text": {operator: pattern}}
            filter = parse_filter(schema, where)
            expected = by_reference(schema, where, some_rows)
            assert by_predicate(schema, filter, some_rows) == expected, where
            assert stores.found(schema, filter) == [expected, expected], where

    await asyncio.to_thread(check)


def test_a_predicate_is_true_only_where_sql_would_be() -> None:
    given(cases())(assert_predicate_agrees)()


def assert_predicate_agrees(case: Case) -> None:
    schema, some_rows, wheres = case
    for where in wheres:
        filter = parse_filter(schema, where)
        found = by_predicate(schema, filter, some_rows)
        assert found == by_reference(schema, where, some_rows), where


@given(cases())
def test_both_wants_what_each_of_two_filters_wants(case: Case) -> None:
    schema, some_rows, wheres = case
    one, two = (parse_filter(schema, where) for where in (wheres[0], wheres[-1]))
    together = by_predicate(schema, both(one, two), some_rows)
    apart = [set(by_predicate(schema, filter, some_rows)) for filter in (one, two)]
    assert set(together) == set.intersection(*apart)
    assert both(one, two) == both(two, one)


@given(cases(), st.randoms())
def test_a_filter_that_is_said_in_other_words_is_the_same(case: Case, random: Any) -> None:
    schema, _, wheres = case
    for where in wheres:
        filter = parse_filter(schema, where)
        assert parse_filter(schema, _reworded(where, random)) == filter
        assert hash(filter) == hash(parse_filter(schema, dict(reversed(where.items()))))


def _reworded(where: Where, random: Any) -> Where:
    """The same `where` in another order and with words that say nothing."""
    members = list(where.items())
    random.shuffle(members)
    parts = [{name: value} for name, value in members]
    ways: list[Where] = [
        dict(members),
        {"_and": parts},
        {"_and": [{}, *parts, *parts]},
        {"_or": [{"_and": parts}, {"_or": []}]},
        {"_not": {"_not": dict(members)}},
    ]
    return ways[int(random.randrange(len(ways)))]


def _anything(schema: ViewSchema) -> st.SearchStrategy[Any]:
    names = [column.name for column in schema.columns]
    keys = st.sampled_from([*names, "_and", "_or", "_not", *parsing.PATTERNS, "_eq", "_in", "_gt"])
    texts = st.text(max_size=5) | st.text(st.characters(categories=["Cs"]), max_size=2)
    numbers = st.floats() | st.decimals() | st.integers()
    scalars = st.none() | st.booleans() | numbers | texts | st.just(10**1000)
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(keys | texts | st.integers(), inner, max_size=3)
        ),
        max_leaves=8,
    )


@given(schemas().flatmap(lambda schema: st.tuples(st.just(schema), _anything(schema))))
def test_whatever_is_sent_is_a_filter_or_an_error_that_says_where(
    case: tuple[ViewSchema, Any],
) -> None:
    schema, where = case
    error = refusal(schema, where)
    if error is not None:
        assert error.field is not None
        assert error.field.startswith("where")
        assert error.hint
        assert "memory" not in error.message + error.hint or "memory" in repr(where)
        assert msgspec.json.encode(error.as_dict())


def refusal(schema: ViewSchema, where: Any) -> InvalidFilter | None:
    try:
        parse_filter(schema, where)
    except InvalidFilter as error:
        return error
    return None


def null_matches_neq(monkeypatch: pytest.MonkeyPatch) -> None:
    real = predicate._Writer.expression

    def expression(self: Any, node: Node) -> str:
        if isinstance(node, Compare) and node.comparison == "neq":
            return f"(row[{self._places[node.column]}] != {self._named(node.value)})"
        return real(self, node)

    monkeypatch.setattr(predicate._Writer, "expression", expression)


def a_sibling_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    real = parsing._Parser.conjunction

    def conjunction(self: Any, where: Any, path: str, depth: int) -> Node:
        if isinstance(where, dict) and "_or" in where:
            where = {"_or": where["_or"]}
        return real(self, where, path, depth)

    monkeypatch.setattr(parsing._Parser, "conjunction", conjunction)


def not_of_a_list_is_not_turned_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def half_negation(node: Node) -> Node:
        if isinstance(node, And):
            return And(tuple(map(half_negation, node.parts)))
        return negation(node)

    monkeypatch.setattr(parsing, "negation", half_negation)


def an_enum_is_ordered_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    real = normal._enum_choice

    def enum_choice(node: Any, column: Any) -> Node:
        ordered = msgspec.structs.replace(column, values=tuple(sorted(column.values)))
        return real(node, ordered)

    monkeypatch.setattr(normal, "_enum_choice", enum_choice)


PLANTS: Sequence[Callable[[pytest.MonkeyPatch], None]] = (
    null_matches_neq,
    a_sibling_is_dropped,
    not_of_a_list_is_not_turned_around,
    an_enum_is_ordered_by_its_text,
)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_filter_with_a_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    assert_catches(given(cases()), assert_predicate_agrees)
