"""The GraphQL schema of a deployment, made from its views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from graphql import (
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLField,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLString,
    introspection_types,
    specified_scalar_types,
)

from tidemark.errors import ConfigError
from tidemark.live.graphql.comparing import COMPARISONS
from tidemark.live.graphql.context import Info, QueryContext
from tidemark.live.graphql.described import DescribedView
from tidemark.live.graphql.names import TakenNames
from tidemark.live.graphql.scalars import SCALARS
from tidemark.live.graphql.trigger_types import (
    all_trigger_mutations,
    all_trigger_queries,
    trigger_mutations,
    trigger_queries,
)
from tidemark.live.graphql.types import ViewTypes

_OURS: Final = (
    "Query",
    "Mutation",
    "Subscription",
    "RowOperation",
    "OrderDirection",
    "Trigger",
    "DeliveryStatus",
    "DeliveryAttempt",
    "TriggerDelivery",
    "TriggerDeliveryPage",
    *(scalar.name for scalar in SCALARS.values()),
    *(comparison.name for comparison in COMPARISONS.values()),
)


def build_schema(views: Sequence[DescribedView], *, triggers: bool = True) -> GraphQLSchema:
    """The schema of these views; raises `ConfigError` if their names leave no room for it.

    Without `triggers` there is no field about them. Views without a log have no subscription and
    no triggers: there is nothing to follow.
    """
    if not views:
        raise ConfigError(
            "there is nothing to ask for: no meter and no view is configured",
            hint="Add an entry to `meters` or `views`.",
            field="views",
        )
    types = TakenNames(
        dict.fromkeys((*specified_scalar_types, *introspection_types, *_OURS), "GraphQL itself")
    )
    queries = all_trigger_queries() if triggers else {}
    mutations = all_trigger_mutations() if triggers else {}
    roots = [
        TakenNames(dict.fromkeys(fields, "GraphQL itself")) for fields in (queries, mutations, ())
    ]
    subscriptions: dict[str, GraphQLField] = {}
    for view in views:
        of_view = ViewTypes(view, types)
        added = [_queries(of_view), {}, {}]
        if of_view.update is not None:
            added[2] = {of_view.name: _subscription(of_view, of_view.update)}
            if triggers:
                added[0] |= trigger_queries(of_view)
                added[1] = trigger_mutations(of_view, types)
        fields = (queries, mutations, subscriptions)
        for taken, all_fields, new in zip(roots, fields, added, strict=True):
            for name, field in new.items():
                all_fields[taken.take(name, view.schema.name)] = field
    return GraphQLSchema(
        query=GraphQLObjectType(
            "Query",
            queries,
            description="Rows as they are. All fields of one document are as of one moment, "
            "which `extensions` names.",
        ),
        mutation=GraphQLObjectType("Mutation", mutations, description="What can be changed.")
        if mutations
        else None,
        subscription=GraphQLObjectType(
            "Subscription",
            subscriptions,
            description="Rows as they are, and then every change of them.",
        )
        if subscriptions
        else None,
        description="The views of this deployment.",
    )


def _queries(types: ViewTypes) -> dict[str, GraphQLField]:
    view = types.name
    found = {
        view: GraphQLField(
            GraphQLNonNull(GraphQLList(GraphQLNonNull(types.row))),
            {
                "where": types.where(),
                "order_by": GraphQLArgument(
                    GraphQLList(GraphQLNonNull(types.order_by)),
                    description="In which order; ties, and everything else, by the key.",
                ),
                "limit": GraphQLArgument(GraphQLInt, description="At most so many rows."),
                "offset": GraphQLArgument(GraphQLInt, description="So many are left out first."),
            },
            resolve=_from_context(QueryContext.rows, view),
            description=types.row.description,
        ),
        f"{view}_aggregate": GraphQLField(
            GraphQLNonNull(types.aggregate),
            {"where": types.where()},
            resolve=_from_context(QueryContext.aggregates, view),
            description=f"What the rows of `{view}` come to.",
        ),
    }
    if all(column.type != "json" for column in types.view.schema.key_columns):
        found[f"{view}_by_pk"] = GraphQLField(
            types.row,
            types.key_arguments(),
            resolve=_from_context(QueryContext.row_by_key, view),
            description=f"The row of `{view}` with this key, if there is one.",
        )
    return found


def _subscription(types: ViewTypes, update: GraphQLObjectType) -> GraphQLField:
    return GraphQLField(
        GraphQLNonNull(update),
        {
            "where": types.where(),
            "after": GraphQLArgument(
                GraphQLString,
                description="A `ts_timestamp`: only what has changed after it, and no snapshot.",
            ),
            "progress": GraphQLArgument(
                GraphQLBoolean,
                default_value=False,
                description="Whether to say up to when everything was sent (PROGRESS).",
            ),
        },
        description=f"The rows of `{types.name}`, and then every change of them.",
    )


def _from_context(
    method: Callable[..., Awaitable[object]], view: str
) -> Callable[..., Awaitable[object]]:
    name = method.__name__

    async def resolve(root: object, info: Info, **arguments: Any) -> object:
        answer: Callable[..., Awaitable[object]] = getattr(info.context, name)
        return await answer(view, info, arguments)

    return resolve
