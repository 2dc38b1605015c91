"""What a compiled selection writes is what graphql-core would answer for the same selection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from graphql import (
    GraphQLField,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    execute_sync,
    get_variable_values,
    parse,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.live.graphql_views import DESCRIBED, ORDERS
from tidemark.live.graphql.documents import Documents
from tidemark.live.graphql.schema import build_schema
from tidemark.live.graphql.selection import Selected, UpdateSelection
from tidemark.pipeline.output.encoding import encode_row

SCHEMA = build_schema(DESCRIBED)
DOCUMENTS = Documents(SCHEMA)
# The same types under a query, which graphql-core can execute: that is the oracle.
UPDATE: Any = SCHEMA.type_map["ordersUpdate"]
ASKED = GraphQLSchema(GraphQLObjectType("Query", {"orders": GraphQLField(GraphQLNonNull(UPDATE))}))
COLUMNS = [column.name for column in ORDERS.visible]
ROW: dict[str, Any] = {
    "tenant_id": 'acme "%s" \\ %b é',
    "number": 9_007_199_254_740_993,
    "price": Decimal("12345678901234567890.5"),
    "amount": -3,
    "urgent": True,
    "placed_at": 1_700_000_000_123_456,
    "level": "medium",
    "state": "it's done",
    "extra": '{"a":[1,{"b":null}]}',
}
MEMBERS = {
    name: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    for name, value in json.loads(encode_row(ORDERS, ROW)).items()
}
VARIABLES = "$yes: Boolean = true, $no: Boolean!"
VALUES = {"no": False}

directives = st.sampled_from(
    [
        "",
        "",
        "",
        "@skip(if: true)",
        "@skip(if: false)",
        "@include(if: false)",
        "@include(if: $yes)",
        "@skip(if: $yes)",
        "@include(if: $no)",
        "@skip(if: $no) @include(if: $yes)",
    ]
)


def compiled(text: str, variables: Mapping[str, Any] | None = None) -> UpdateSelection:
    operation = DOCUMENTS.operation(text)
    values = get_variable_values(
        SCHEMA, operation.node.variable_definitions or (), dict(variables or {})
    )
    assert not isinstance(values, list)
    selected = Selected(operation.fragments, values)
    [(key, nodes)] = selected.root(operation.node.selection_set).items()
    return UpdateSelection(ORDERS, key, nodes, selected)


def rendered(
    text: str, operation: str = "UPDATE", members: Mapping[str, bytes] | None = MEMBERS
) -> Any:
    return json.loads(compiled(text).render(operation, members, ["price"], 17))


@st.composite
def selections(draw: st.DrawFn, kind: str, fragments: list[str], depth: int = 2) -> str:
    """Fields of a type under names that never clash, in and out of fragments."""
    leaves = {
        "orders": [*COLUMNS, "__typename"],
        "ordersUpdate": ["operation", "fields", "ts_timestamp", "__typename", "data", "data"],
    }[kind]
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        directive = draw(directives)
        nested = ["inline", "typed", "spread"] if depth else []
        form = draw(st.sampled_from(["field", "field", "field", *nested]))
        if form == "field":
            field = draw(st.sampled_from(leaves))
            alias = draw(st.sampled_from(["", f"a_{field}: ", f"b_{field}: "]))
            below = (
                "{ %s }" % draw(selections("orders", fragments, min(depth, 2)))
                if field == "data"
                else ""
            )
            parts.append(f"{alias}{field} {directive} {below}")
        elif form == "spread":
            inner = draw(selections(kind, fragments, depth - 1))
            name = f"F{len(fragments)}"
            fragments.append(f"fragment {name} on {kind} {{ {inner} }}")
            parts += [f"...{name} {directive}"] * draw(st.integers(1, 2))
        else:
            on = f"on {kind}" if form == "typed" else ""
            parts.append(
                "... %s %s { %s }" % (on, directive, draw(selections(kind, fragments, depth - 1)))
            )
    return " ".join(parts)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """The selection of one subscription, with the fragments that it uses."""
    fragments: list[str] = []
    inner = draw(selections("ordersUpdate", fragments))
    alias = draw(st.sampled_from(["", "mine: "]))
    # Fields of one name are one field, whose selections are merged.
    for _ in range(draw(st.integers(0, 2))):
        inner += " data { %s }" % draw(selections("orders", fragments, 1))
    # Both variables must be used by somebody.
    inner += " a_fields: fields @include(if: $yes) a_fields: fields @skip(if: $no)"
    return " ".join([f"O({VARIABLES}) {{ {alias}orders {{ {inner} }} }}", *fragments])


@given(
    document=documents(),
    operation=st.sampled_from(["INSERT", "UPDATE", "DELETE", "PROGRESS"]),
    present=st.sets(st.sampled_from(COLUMNS)),
)
def test_a_compiled_selection_writes_what_graphql_core_answers(
    document: str, operation: str, present: set[str]
) -> None:
    members = {name: MEMBERS[name] for name in COLUMNS if name in present}
    row = {name: json.loads(members[name]) if name in members else None for name in COLUMNS}
    update = {
        "operation": operation,
        "data": None if operation == "PROGRESS" else row,
        "fields": sorted(present),
        "ts_timestamp": "1700000000123456",
    }
    asked = parse(f"query {document}")
    wanted = execute_sync(ASKED, asked, root_value={"orders": update}, variable_values=VALUES)
    assert wanted.errors is None
    projection = compiled(f"subscription {document}", VALUES)
    text = projection.render(
        operation,
        None if operation == "PROGRESS" else members,
        sorted(present),
        1_700_000_000_123_456,
    )
    # As text, so that the order of the members is compared as well.
    assert json.dumps(json.loads(text)) == json.dumps({"data": wanted.data})
    again = compiled(f"subscription {document}", VALUES)
    assert (again.key, again.columns) == (projection.key, projection.columns)


def test_a_change_is_written_exactly() -> None:
    text = compiled(
        "subscription { orders { operation data { price extra } fields ts_timestamp } }"
    )
    assert text.render("UPDATE", MEMBERS, ["price", "number"], 17) == (
        b'{"data":{"orders":{"operation":"UPDATE",'
        b'"data":{"price":"12345678901234567890.5","extra":{"a":[1,{"b":null}]}},'
        b'"fields":["price","number"],"ts_timestamp":"17"}}}'
    )


def test_progress_has_no_row_and_a_deleted_one_only_its_key() -> None:
    text = "subscription { orders { data { number price } } }"
    assert rendered(text, "PROGRESS", None) == {"data": {"orders": {"data": None}}}
    key = {name: MEMBERS[name] for name in ORDERS.key}
    assert rendered(text, "DELETE", key) == {
        "data": {"orders": {"data": {"number": "9007199254740993", "price": None}}}
    }


def test_the_columns_are_those_of_the_row_or_all_if_it_is_not_shown() -> None:
    assert compiled("subscription { orders { data { price a: amount } } }").columns == {
        "price",
        "amount",
    }
    assert compiled("subscription { orders { operation } }").columns == set(COLUMNS)
    text = "subscription { orders { data { price } b: data { level } } }"
    assert compiled(text).columns == {"price", "level"}
    assert compiled("subscription { orders { data { __typename } } }").columns == set()


def test_equal_selections_have_equal_keys_however_they_are_written() -> None:
    first = compiled("subscription { orders { data { price level } operation } }")
    same = """
        subscription ($yes: Boolean = true) {
          orders { ... on ordersUpdate { data { ...F } } operation @include(if: $yes) }
        }
        fragment F on orders { price level amount @skip(if: $yes) }
    """
    assert compiled(same).key == first.key
    for other in (
        "subscription { orders { data { level price } operation } }",
        "subscription { a: orders { data { price level } operation } }",
        "subscription { orders { data { price level: state } operation } }",
        "subscription { orders { data { price level } fields operation } }",
    ):
        assert compiled(other).key != first.key


def test_selections_of_one_name_are_merged() -> None:
    text = "subscription { orders { data { price } } ...F } fragment F on Subscription "
    text += "{ orders { data { amount price } operation } }"
    assert rendered(text) == {
        "data": {
            "orders": {
                "data": {"price": "12345678901234567890.5", "amount": -3},
                "operation": "UPDATE",
            }
        }
    }


def test_a_selection_may_be_empty_after_all() -> None:
    text = "subscription { orders { operation @skip(if: true) data { price @skip(if: true) } } }"
    assert rendered(text) == {"data": {"orders": {"data": {}}}}
