"""The schema says everything about the views, exactly, and refuses what it cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLObjectType,
    GraphQLSchema,
    print_type,
    validate_schema,
)
from graphql import (
    build_schema as schema_of_text,
)

import tidemark
from tests.unit.live.graphql_views import COUNTERS, DESCRIBED, ORDERS
from tidemark.config.load import load_config
from tidemark.errors import ConfigError
from tidemark.live.filters import operators_of
from tidemark.live.graphql.described import DescribedView, described_views
from tidemark.live.graphql.schema import build_schema
from tidemark.live.graphql.sdl import print_sdl
from tidemark.pipeline.definitions import Definitions, meter_schema
from tidemark.pipeline.output.schema import Column, ViewSchema


@pytest.fixture(scope="module")
def schema() -> GraphQLSchema:
    return build_schema(DESCRIBED)


def fields(schema: GraphQLSchema, name: str) -> dict[str, str]:
    """The types of a type's fields, as text."""
    found: Any = schema.type_map[name]
    return {field: str(of_field.type) for field, of_field in found.fields.items()}


def view(name: str, *columns: str, **options: Any) -> DescribedView:
    declared = tuple(Column(column, "string") for column in ("id", *columns))
    return DescribedView(ViewSchema(name, declared, ("id",), "1", **options))


def test_the_schema_is_valid_and_its_text_is_the_same_schema(schema: GraphQLSchema) -> None:
    assert validate_schema(schema) == []
    text = print_sdl(DESCRIBED)
    again = schema_of_text(text)
    for name, of_type in schema.type_map.items():
        if not name.startswith("__"):
            assert print_type(again.type_map[name]) == print_type(of_type)


def test_every_column_has_its_exact_type_and_a_hidden_one_is_not_there(
    schema: GraphQLSchema,
) -> None:
    assert fields(schema, "orders") == {
        "tenant_id": "String",
        "number": "BigInt",
        "price": "Decimal",
        "amount": "Int",
        "urgent": "Boolean",
        "placed_at": "Timestamp",
        "level": "orders_level",
        "state": "String",
        "extra": "JSON",
    }
    assert "secret" not in print_sdl(DESCRIBED)


def test_a_view_has_a_list_one_row_and_aggregates(schema: GraphQLSchema) -> None:
    query = schema.query_type
    assert query is not None
    orders = query.fields["orders"]
    assert str(orders.type) == "[orders!]!"
    assert {name: str(argument.type) for name, argument in orders.args.items()} == {
        "where": "ordersExpression",
        "order_by": "[ordersOrderBy!]",
        "limit": "Int",
        "offset": "Int",
    }
    by_key = query.fields["orders_by_pk"]
    assert str(by_key.type) == "orders"
    assert {name: str(argument.type) for name, argument in by_key.args.items()} == {
        "tenant_id": "String!",
        "number": "BigInt!",
    }
    assert fields(schema, "ordersAggregateFields") == {
        "count": "Int!",
        "sum": "ordersSumFields",
        "avg": "ordersAvgFields",
        "min": "ordersMinFields",
        "max": "ordersMaxFields",
    }
    # A sum of 64 bits may need more of them, and a mean is not whole.
    assert fields(schema, "ordersSumFields") == {
        "number": "Decimal",
        "price": "Decimal",
        "amount": "BigInt",
    }
    assert set(fields(schema, "ordersAvgFields").values()) == {"Decimal"}
    assert "extra" not in fields(schema, "ordersMinFields")


def test_a_subscription_gives_updates_and_only_where_there_is_a_log(schema: GraphQLSchema) -> None:
    subscription = schema.subscription_type
    assert subscription is not None
    assert set(subscription.fields) == {"orders"}
    field = subscription.fields["orders"]
    assert str(field.type) == "ordersUpdate!"
    assert {name: str(argument.type) for name, argument in field.args.items()} == {
        "where": "ordersExpression",
        "after": "String",
        "progress": "Boolean",
    }
    assert fields(schema, "ordersUpdate") == {
        "operation": "RowOperation!",
        "data": "orders",
        "fields": "[String!]!",
        "ts_timestamp": "String!",
    }
    assert schema.mutation_type is not None
    assert not any("counters" in name for name in schema.mutation_type.fields)


def test_a_deployment_without_logs_has_queries_and_can_end_triggers_that_it_had() -> None:
    schema = build_schema([DescribedView(COUNTERS)])
    assert schema.subscription_type is None
    assert schema.mutation_type is not None
    assert set(schema.mutation_type.fields) == {"delete_trigger"}
    assert build_schema([DescribedView(COUNTERS)], triggers=False).mutation_type is None


def test_every_operator_of_a_column_is_in_its_comparison(schema: GraphQLSchema) -> None:
    expression: Any = schema.type_map["ordersExpression"]
    for column in ORDERS.visible:
        assert set(expression.fields[column.name].type.fields) == set(operators_of(column))
    assert fields(schema, "orders_levelComparison")["_in"] == "[orders_level!]"
    assert fields(schema, "orders_levelComparison")["_like"] == "String"
    assert fields(schema, "DecimalComparison")["_gt"] == "Decimal"


def test_an_enum_keeps_its_order_and_one_without_names_is_a_string(schema: GraphQLSchema) -> None:
    level = schema.type_map["orders_level"]
    assert isinstance(level, GraphQLEnumType)
    assert list(level.values) == ["low", "medium", "high"]
    assert fields(schema, "orders_stateComparison")["_eq"] == "String"
    described: Any = schema.type_map["orders"]
    assert described.fields["state"].description == (
        "The column `state`. One of 'not yet', 'what?', \"it's done\", in this order."
    )


def test_rows_are_ordered_by_every_column_but_json(schema: GraphQLSchema) -> None:
    ordered = fields(schema, "ordersOrderBy")
    assert set(ordered) == {column.name for column in ORDERS.visible} - {"extra"}
    assert set(ordered.values()) == {"OrderDirection"}


def test_triggers_are_managed_by_view(schema: GraphQLSchema) -> None:
    assert schema.mutation_type is not None
    assert set(schema.mutation_type.fields) == {
        "create_orders_trigger",
        "delete_orders_trigger",
        "enable_orders_trigger",
        "disable_orders_trigger",
        "restart_orders_trigger",
        "redeliver_orders_trigger",
        "delete_trigger",
    }
    assert fields(schema, "ordersTriggerInput") == {
        "name": "String!",
        "webhook": "String!",
        "match": "ordersExpression!",
        "unmatch": "ordersExpression",
    }
    without = build_schema(DESCRIBED, triggers=False)
    assert without.mutation_type is None
    assert without.query_type is not None
    assert not any("trigger" in name for name in without.query_type.fields)


def test_everything_is_described(schema: GraphQLSchema) -> None:
    silent = []
    for name, of_type in schema.type_map.items():
        if name.startswith("__"):
            continue
        if not of_type.description:
            silent.append(name)
        if isinstance(of_type, GraphQLEnumType):
            silent += [
                f"{name}.{value}" for value, v in of_type.values.items() if not v.description
            ]
        if isinstance(of_type, GraphQLObjectType | GraphQLInputObjectType):
            for field, of_field in of_type.fields.items():
                if not of_field.description:
                    silent.append(f"{name}.{field}")
                for argument, of_argument in getattr(of_field, "args", {}).items():
                    if not of_argument.description:
                        silent.append(f"{name}.{field}({argument})")
    assert silent == []


@pytest.mark.parametrize(
    ("views", "named"),
    [
        ([view("a"), view("aUpdate")], "aUpdate"),
        ([view("a"), view("a_by_pk")], "a_by_pk"),
        ([view("a"), view("a_triggers")], "a_triggers"),
        ([view("String")], "String"),
        ([view("Query")], "Query"),
        ([view("Trigger")], "Trigger"),
        ([view("trigger")], "trigger"),
        ([view("triggers")], "triggers"),
        ([view("StringComparison")], "StringComparison"),
        ([view("__a", logged=False)], "__a"),
    ],
)
def test_a_view_that_needs_a_taken_name_is_refused_by_name(
    views: list[DescribedView], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as refused:
        build_schema(views)
    assert "ename the view" in refused.value.hint


@pytest.mark.parametrize("column", ["__typename", "_and", "_or", "_not"])
def test_a_column_that_graphql_keeps_for_itself_is_refused_by_name(column: str) -> None:
    with pytest.raises(ConfigError, match=column) as refused:
        build_schema([view("a", column)])
    assert "Rename" in refused.value.hint


def test_without_views_there_is_no_schema() -> None:
    with pytest.raises(ConfigError, match="nothing to ask for"):
        build_schema([])


def test_the_sample_configuration_describes_its_views_and_hides_the_pipelines_own() -> None:
    config = load_config(Path(tidemark.__file__).parent / "config" / "sample.yaml", {})
    schemas = [meter_schema(meter) for meter in Definitions.of(config).meters]
    internal = ViewSchema("a__members", (Column("id", "string"),), ("id",), "1")
    described = described_views(config, [*schemas, internal])
    assert {view.schema.name for view in described} == set(config.meters)
    for view in described:
        assert view.description
        assert {column.name for column in view.schema.visible} <= set(view.columns)
    build_schema(described)
