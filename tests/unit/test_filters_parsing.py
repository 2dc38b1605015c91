"""A `where` is read exactly, and one that is wrong is told where and why."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from tidemark.live.errors import InvalidFilter
from tidemark.live.filters import Filter, FilterLimits, both, operators_of, parse_filter
from tidemark.live.filters.tree import Compare, IsNull, OneOf
from tidemark.pipeline.output.schema import Column, ViewSchema

VIEW = ViewSchema(
    "orders",
    (
        Column("id", "bigint"),
        Column("sym", "string"),
        Column("qty", "int"),
        Column("px", "decimal"),
        Column("ok", "boolean"),
        Column("at", "timestamp"),
        Column("lvl", "enum", ("low", "medium", "high")),
        Column("doc", "json"),
        Column("secret_state", "string", hidden=True),
    ),
    ("id",),
    "first",
)


def parsed(where: Any) -> Filter:
    return parse_filter(VIEW, where)


def error_of(where: Any, limits: FilterLimits | None = None) -> InvalidFilter:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(VIEW, where, limits or FilterLimits())
    error = caught.value
    assert error.field is not None
    assert pickle.loads(pickle.dumps(error)).as_dict() == error.as_dict()
    return error


@pytest.mark.parametrize(
    ("where", "field"),
    [
        (5, "where"),
        ([], "where"),
        ({"qty": 5}, "where.qty"),
        ({"qty": None}, "where.qty"),
        ({"quantity": {"_eq": 1}}, "where.quantity"),
        ({"qty": {"_eq": "5"}}, "where.qty._eq"),
        ({"qty": {"_eq": True}}, "where.qty._eq"),
        ({"qty": {"_eq": 1.5}}, "where.qty._eq"),
        ({"qty": {"_eq": 2**31}}, "where.qty._eq"),
        ({"id": {"_eq": 2**63}}, "where.id._eq"),
        ({"id": {"_eq": "1.5"}}, "where.id._eq"),
        ({"id": {"_eq": 1.0}}, "where.id._eq"),
        ({"px": {"_eq": float("nan")}}, "where.px._eq"),
        ({"px": {"_eq": Decimal("Infinity")}}, "where.px._eq"),
        ({"px": {"_eq": "1,5"}}, "where.px._eq"),
        ({"px": {"_eq": "1e999999999"}}, "where.px._eq"),
        ({"px": {"_eq": 10**5000}}, "where.px._eq"),
        ({"ok": {"_eq": 1}}, "where.ok._eq"),
        ({"at": {"_eq": "2024-01-01T00:00:00"}}, "where.at._eq"),
        ({"at": {"_eq": "2024-01-01T00:00:00.0000001Z"}}, "where.at._eq"),
        ({"at": {"_eq": "0000-01-01T00:00:00Z"}}, "where.at._eq"),
        ({"at": {"_eq": 1704067200}}, "where.at._eq"),
        ({"lvl": {"_eq": "highest"}}, "where.lvl._eq"),
        ({"doc": {"_eq": {}}}, "where.doc._eq"),
        ({"sym": {"_eq": "a\0"}}, "where.sym._eq"),
        ({"sym": {"_eq": "\ud800"}}, "where.sym._eq"),
        ({"sym": {"_like": "a\\"}}, "where.sym._like"),
        ({"sym": {"_regex": "("}}, "where.sym._regex"),
        ({"sym": {"_regex": None}}, "where.sym._regex"),
        ({"qty": {"_like": "5"}}, "where.qty._like"),
        ({"sym": {"_in": ["a", 5]}}, "where.sym._in[1]"),
        ({"sym": {"_in": None}}, "where.sym._in"),
        ({"qty": {"_is_null": None}}, "where.qty._is_null"),
        ({"_or": [{}, {"_not": {"qty": {"_gt": None}}}]}, "where._or[1]._not.qty._gt"),
        ({"_and": None}, "where._and"),
        ({"_not": [{}]}, "where._not"),
        ({5: {}}, "where.int"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(where: Any, field: str) -> None:
    assert error_of(where).field == field


def test_a_comparison_with_null_points_to_is_null() -> None:
    for operator in ("_eq", "_neq", "_gt", "_in"):
        assert "_is_null" in error_of({"qty": {operator: None}}).hint
    assert "_is_null" in error_of({"sym": {"_like": None}}).hint


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    assert "`qty`" in error_of({"qyt": {}}).hint
    assert "`_gte`" in error_of({"qty": {"gte": 5}}).hint
    assert "`_nin`" in error_of({"qty": {"not_in": [5]}}).hint
    assert "`medium`" in error_of({"lvl": {"_eq": "Medium"}}).hint
    assert "`_and`" in error_of({"and": []}).hint


def test_a_hidden_column_is_unknown_and_never_named() -> None:
    error = error_of({"secret_state": {"_eq": "x"}})
    assert "secret_state" not in error.hint
    assert "secret_state" not in error_of({"secret_stat": {"_eq": "x"}}).hint


def test_limits_are_kept() -> None:
    limits = FilterLimits(max_depth=3, max_conditions=4, max_list=5, max_text=6)
    deep: Any = {"_not": {"_not": {}}}
    parse_filter(VIEW, deep, limits)
    assert error_of({"_not": deep}, limits).field == "where._not._not._not"
    wide = [{"qty": {"_eq": number}} for number in range(5)]
    parse_filter(VIEW, {"_or": wide[:4]}, limits)
    assert error_of({"_or": wide}, limits).field == "where._or[4].qty._eq"
    assert error_of({"_or": [{}] * 5}, limits).field == "where._or[4]"
    assert error_of({"_or": [{}] * 6}, limits).field == "where._or"
    assert error_of({"qty": {"_in": [1] * 6}}, limits).field == "where.qty._in"
    assert error_of({"sym": {"_eq": "x" * 7}}, limits).field == "where.sym._eq"
    parse_filter(VIEW, {"sym": {"_eq": "x" * 6}, "qty": {"_in": [1] * 5}}, limits)


def test_a_thousand_objects_deep_is_an_error_and_no_crash() -> None:
    where: Any = {}
    for _ in range(100_000):
        where = {"_not": where}
    assert error_of(where).field is not None


def test_values_are_taken_exactly() -> None:
    assert parsed({"px": {"_eq": 0.1}}).node == Compare("px", "eq", Decimal("0.1"))
    assert parsed({"px": {"_eq": "1.50"}}) == parsed({"px": {"_eq": Decimal("15e-1")}})
    assert parsed({"px": {"_eq": "1.0000000001"}}) != parsed({"px": {"_eq": 1}})
    assert parsed({"id": {"_eq": "9007199254740993"}}).node == Compare("id", "eq", 2**53 + 1)
    assert parsed({"at": {"_eq": "2024-01-01T01:00:00+01:00"}}) == parsed(
        {"at": {"_eq": "2024-01-01t00:00:00.000000z"}}
    )
    assert parsed({"at": {"_lt": "0001-01-01T00:00:00Z"}}).node == Compare(
        "at", "lt", -62135596800_000000
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, {}),
        ({}, {"_and": [{}, {"qty": {}}]}),
        ({"_not": {}}, {"_or": []}),
        ({"qty": {"_in": []}}, {"_or": []}),
        ({"qty": {"_nin": []}}, {}),
        ({"qty": {"_in": [5]}}, {"qty": {"_eq": 5}}),
        ({"qty": {"_in": 5}}, {"qty": {"_eq": 5}}),
        ({"qty": {"_nin": [5, 5]}}, {"qty": {"_neq": 5}}),
        ({"qty": {"_in": [2, 1, 2]}}, {"qty": {"_in": [1, 2]}}),
        ({"_not": {"qty": {"_gt": 5}}}, {"qty": {"_lte": 5}}),
        ({"_or": [{"qty": {"_gt": 5}}, {}]}, {}),
        ({"qty": {"_gt": 1, "_lt": 5}}, {"_and": [{"qty": {"_lt": 5}}, {"qty": {"_gt": 1}}]}),
        ({"_or": {"qty": {"_gt": 5}}}, {"qty": {"_gt": 5}}),
        ({"lvl": {"_gt": "low"}}, {"lvl": {"_in": ["high", "medium"]}}),
        ({"lvl": {"_gt": "high"}}, {"_or": []}),
        ({"lvl": {"_like": "%i%"}}, {"lvl": {"_in": ["medium", "high"]}}),
        ({"lvl": {"_lte": "high"}}, {"lvl": {"_is_null": False}}),
        ({"sym": {"_regex": "a(b)"}}, {"sym": {"_regex": "a(?:b)"}}),
    ],
)
def test_the_same_in_other_words_is_the_same_filter(one: Any, other: Any) -> None:
    assert parsed(one) == parsed(other)
    assert parsed(one).key == parsed(other).key
    assert hash(parsed(one)) == hash(parsed(other))


def test_what_is_never_null_and_not_equal_is_not_the_same_filter() -> None:
    assert parsed({"qty": {"_neq": 5}}) != parsed({"_or": [{"qty": {"_neq": 5}}, {"ok": {}}]})
    assert parsed({"qty": {"_eq": 5}}) != parsed({"id": {"_eq": 5}})
    assert parsed({"qty": {"_eq": 1}}).key != parsed({"ok": {"_eq": True}}).key


def test_a_filter_knows_the_columns_that_decide() -> None:
    where = {"sym": {"_eq": "a"}, "_or": [{"qty": {"_gt": 1}}, {"px": {"_is_null": True}}]}
    assert parsed(where).columns == {"sym", "qty", "px"}
    assert parsed({"_or": [where, {}]}).columns == frozenset()


def test_both_is_what_one_where_with_both_would_be() -> None:
    one, two = {"qty": {"_gt": 1}}, {"_and": [{"sym": {"_eq": "a"}}, {"ok": {"_eq": True}}]}
    assert both(parsed(one), parsed(two)) == parsed({**one, **two})
    assert both(parsed(one), parsed({})) == parsed(one)
    assert both(parsed(one), parsed({"_or": []})) == parsed({"_or": []})
    with pytest.raises(ValueError, match="two views"):
        both(parsed(one), Filter("others", parsed(one).node))


def test_every_type_has_its_operators() -> None:
    by_type = {column.type: operators_of(column) for column in VIEW.columns}
    assert by_type["json"] == ("_is_null",)
    assert "_regex" in by_type["enum"]
    assert "_like" not in by_type["decimal"]
    assert "_gt" in by_type["boolean"]


def test_the_tree_is_made_of_conditions_without_not() -> None:
    where = {"_not": {"qty": {"_in": [1, 2]}, "doc": {"_is_null": True}}}
    node: Any = parsed(where).node
    assert set(node.parts) == {OneOf("qty", (1, 2), negated=True), IsNull("doc", negated=True)}
