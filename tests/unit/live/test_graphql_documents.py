"""Documents are read once, bounded in every direction, and refused with reasons."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from graphql import get_introspection_query

from tests.unit.live.graphql_views import DESCRIBED
from tidemark.live.graphql.documents import Documents
from tidemark.live.graphql.limits import DocumentLimits
from tidemark.live.graphql.problems import DocumentRefused
from tidemark.live.graphql.schema import build_schema

SCHEMA = build_schema(DESCRIBED)


def documents(**limits: Any) -> Documents:
    return Documents(SCHEMA, DocumentLimits(**limits))


def refused(text: str, name: str | None = None, **limits: Any) -> DocumentRefused:
    with pytest.raises(DocumentRefused) as caught:
        documents(**limits).operation(text, name)
    for error in caught.value.errors:
        assert {"code", "hint"} <= set(error["extensions"])
        assert "Traceback" not in str(error)
    return caught.value


def code(text: str, name: str | None = None, **limits: Any) -> str:
    return refused(text, name, **limits).code


def test_an_operation_is_known_by_its_kind() -> None:
    read = documents()
    assert read.operation("{ orders { number } }").kind == "query"
    assert read.operation("subscription { orders { operation } }").kind == "subscription"
    text = 'mutation { delete_orders_trigger(name: "a") { name } }'
    assert read.operation(text).kind == "mutation"


def test_the_same_text_is_read_once() -> None:
    read = documents()
    text = "query A { orders { number } } query B { counters { name } }"
    assert read.operation(text, "A") is read.operation(text, "A")
    assert read.operation(text, "B").name == "B"


def test_no_more_is_remembered_than_the_limits_allow() -> None:
    texts = ["{ orders { number } }", "{ orders { price } }", "{ orders { amount } }"]
    by_number = documents(cached_documents=2)
    by_bytes = documents(cached_bytes=2 * len(texts[0]))
    for read in (by_number, by_bytes):
        first = read.operation(texts[0])
        second = read.operation(texts[1])
        assert read.operation(texts[0]) is first
        read.operation(texts[2])
        assert read.operation(texts[0]) is first
        assert read.operation(texts[1]) is not second


def test_a_syntax_error_says_where() -> None:
    error = refused("{ orders { number }")
    assert error.code == "graphql_syntax"
    assert error.errors[0]["locations"] == [{"line": 1, "column": 20}]


def test_every_mistake_of_a_document_is_reported_at_once() -> None:
    error = refused("{ orders { numbr prize } }")
    assert error.code == "graphql_invalid"
    assert [one["message"].split(".")[0] for one in error.errors] == [
        "Cannot query field 'numbr' on type 'orders'",
        "Cannot query field 'prize' on type 'orders'",
    ]
    assert "Did you mean 'number'?" in error.errors[0]["message"]


def test_the_operation_to_run_must_be_clear() -> None:
    two = "query A { orders { number } } query B { orders { number } }"
    assert code(two) == "operation_unknown"
    assert code(two, "C") == "operation_unknown"
    assert refused(two).hint == "Set `operationName` to one of: A, B."
    assert code("fragment F on orders { number }") == "graphql_invalid"


def test_a_document_may_be_so_large_and_no_larger() -> None:
    text = "{ orders { number } }"
    assert documents(max_bytes=len(text)).operation(text).kind == "query"
    assert code(text, max_bytes=len(text) - 1) == "document_too_large"
    # Bytes, not characters.
    assert code('{ orders(where: {state: {_eq: "ééé"}}) { number } }', max_bytes=52) == (
        "document_too_large"
    )


def test_a_document_may_have_so_many_tokens_and_comments() -> None:
    text = "{ orders { number } }"
    assert documents(max_tokens=8).operation(text).kind == "query"
    assert code(text, max_tokens=5) == "document_too_complex"
    assert code("# a\n# b\n" + text, max_comments=1) == "document_too_complex"


def test_nesting_without_end_is_refused_without_a_crash() -> None:
    deep = "{a" * 5_000 + "}" * 5_000
    assert code(deep, max_tokens=20_000) == "document_too_complex"
    where = "{_not: " * 2_000 + "{}" + "}" * 2_000
    text = "{ orders(where: %s) { number } }" % where
    assert code(text, max_tokens=20_000, max_bytes=100_000) in (
        "document_too_complex",
        "graphql_invalid",
    )


def test_a_document_may_be_so_deep() -> None:
    text = "{ orders_aggregate { aggregate { sum { price } } } }"
    assert documents(max_depth=4).operation(text).kind == "query"
    assert code(text, max_depth=3) == "document_too_deep"
    hidden = """
        { ...A } fragment A on Query { orders_aggregate { ...B } }
        fragment B on ordersAggregate { aggregate { ... { sum { price } } } }
    """
    assert documents(max_depth=4).operation(hidden).kind == "query"
    assert code(hidden, max_depth=3) == "document_too_deep"


def test_a_document_may_have_so_many_fields_aliases_and_roots() -> None:
    text = "{ a: orders { number } b: orders { number } }"
    assert documents(max_fields=4, max_aliases=2, max_root_fields=2).operation(text)
    assert code(text, max_fields=3) == "too_many_fields"
    assert code(text, max_aliases=1) == "too_many_aliases"
    assert code(text, max_root_fields=1) == "too_many_root_fields"
    hidden = "{ ...A } fragment A on Query { a: orders { number } ...B } "
    hidden += "fragment B on Query { b: orders { number } }"
    assert code(hidden, max_root_fields=1) == "too_many_root_fields"


def test_fragments_in_a_circle_are_refused() -> None:
    text = "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }"
    assert code(text) == "graphql_invalid"


def test_a_document_may_have_and_use_so_many_fragments() -> None:
    text = "{ orders { ...F ... { price } } } fragment F on orders { number }"
    assert documents(max_fragments=3).operation(text)
    assert code(text, max_fragments=2) == "too_many_fragments"


def test_a_document_that_takes_too_long_to_validate_is_refused() -> None:
    text = "{ orders { %s } }" % ("price " * 998)
    assert code(text, max_fields=1_000) == "document_too_complex"


def test_fragments_that_double_do_not_double_the_work() -> None:
    text = "{ orders { ...F0 } } "
    for place in range(60):
        text += f"fragment F{place} on orders {{ ...F{place + 1} ...F{place + 1} }} "
    text += "fragment F60 on orders { number }"
    assert documents().operation(text).kind == "query"


def test_what_clients_ask_about_the_schema_is_within_the_limits() -> None:
    text = get_introspection_query(
        descriptions=True,
        specified_by_url=True,
        directive_is_repeatable=True,
        schema_description=True,
        input_value_deprecation=True,
        one_of=True,
    )
    assert documents().operation(text).introspects
    assert (
        documents()
        .operation('{ ...A } fragment A on Query { __type(name: "a") { name } }')
        .introspects
    )
    assert not documents().operation("{ __typename orders { __typename } }").introspects


def test_introspection_cannot_ask_for_everything_of_everything() -> None:
    inner = "name"
    for _ in range(6):
        inner = "fields { type { %s } }" % inner
    assert code("{ __schema { types { %s } } }" % inner) == "graphql_invalid"


def test_a_subscription_has_one_field() -> None:
    assert code("subscription { a: orders { operation } b: orders { operation } }") == (
        "graphql_invalid"
    )


def test_a_refusal_survives_pickling() -> None:
    error = refused("{ orders { numbr } }")
    again = pickle.loads(pickle.dumps(error))
    assert (again.errors, again.code, again.status) == (error.errors, error.code, error.status)
