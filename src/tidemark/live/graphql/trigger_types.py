"""Triggers in the schema: the types that all views share, and the fields that each view adds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from graphql import (
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLEnumValue,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLString,
)

from tidemark.live.graphql.context import Info, QueryContext
from tidemark.live.graphql.names import TakenNames
from tidemark.live.graphql.scalars import JSON, TIMESTAMP
from tidemark.live.graphql.selection import Selected
from tidemark.live.graphql.triggers_port import NewTrigger
from tidemark.live.graphql.types import ViewTypes
from tidemark.timestamps import format_timestamp

DEFAULT_DELIVERIES: Final = 100
_TEXT: Final = GraphQLNonNull(GraphQLString)
_LAST_ATTEMPTS: Final = "last_attempts"


def _digits(field: str, description: str, *, required: bool) -> GraphQLField:
    """A source timestamp, which is shown as in subscriptions."""

    def resolve(source: Any, info: Info) -> str | None:
        value = getattr(source, field)
        return None if value is None else str(value)

    return GraphQLField(
        _TEXT if required else GraphQLString, resolve=resolve, description=description
    )


def _instant(field: str, description: str, *, required: bool = False) -> GraphQLField:
    def resolve(source: Any, info: Info) -> str | None:
        value = getattr(source, field)
        return None if value is None else format_timestamp(value)

    kind = GraphQLNonNull(TIMESTAMP) if required else TIMESTAMP
    return GraphQLField(kind, resolve=resolve, description=description)


TRIGGER: Final = GraphQLObjectType(
    "Trigger",
    {
        "name": GraphQLField(_TEXT, description="Its name, unique in the deployment."),
        "view": GraphQLField(_TEXT, description="The view whose rows it watches."),
        "webhook": GraphQLField(_TEXT, description="The URL that is called."),
        "match": GraphQLField(GraphQLNonNull(JSON), description="When a row enters."),
        "unmatch": GraphQLField(
            JSON, description="When a row that does not match leaves; null: at once."
        ),
        "since": _digits(
            "since", "Rows that enter after this source timestamp fire.", required=True
        ),
        "until": _digits("until", "The source timestamp of its end, if any.", required=False),
        "enabled": GraphQLField(
            GraphQLNonNull(GraphQLBoolean), description="Whether deliveries are made."
        ),
        "disabled_reason": GraphQLField(
            GraphQLString, description="Why it was disabled, if not by a person."
        ),
    },
    description="Calls a webhook when a row enters a condition, and again when it leaves.",
)
DELIVERY_STATUS: Final = GraphQLEnumType(
    "DeliveryStatus",
    {
        "waiting": GraphQLEnumValue(
            "waiting", description="Waits behind an earlier event of its row."
        ),
        "pending": GraphQLEnumValue("pending", description="Waits for its next attempt."),
        "delivering": GraphQLEnumValue("delivering", description="Is being attempted."),
        "delivered": GraphQLEnumValue("delivered", description="Was accepted."),
        "dead": GraphQLEnumValue("dead", description="Was given up; it can be redelivered."),
    },
    description="What has become of a delivery.",
)
_ATTEMPT: Final = GraphQLObjectType(
    "DeliveryAttempt",
    {
        "attempted_at": _instant("attempted_at", "When it was made.", required=True),
        "status": GraphQLField(
            GraphQLNonNull(DELIVERY_STATUS), description="What the delivery was after it."
        ),
        "response_status": GraphQLField(
            GraphQLInt, description="The HTTP status of the answer, if there was one."
        ),
        "error": GraphQLField(GraphQLString, description="Why it failed, if it did."),
    },
    description="One attempt to deliver an event.",
)
_DELIVERY: Final = GraphQLObjectType(
    "TriggerDelivery",
    {
        "event_id": GraphQLField(_TEXT, description="The event's one id, by which to deduplicate."),
        "trigger_name": GraphQLField(_TEXT, description="The trigger."),
        "event_type": GraphQLField(_TEXT, description="`MATCH` or `UNMATCH`."),
        "row_key": GraphQLField(_TEXT, description="The key of the row, as a JSON array."),
        "source_timestamp": _digits(
            "source_timestamp", "The source timestamp of the change.", required=True
        ),
        "status": GraphQLField(
            GraphQLNonNull(DELIVERY_STATUS), description="What has become of it."
        ),
        "attempts": GraphQLField(
            GraphQLNonNull(GraphQLInt), description="How many attempts were made."
        ),
        "created_at": _instant("created_at", "When it was enqueued.", required=True),
        "next_attempt_at": _instant("next_attempt_at", "When it is tried next."),
        "delivered_at": _instant("delivered_at", "When it was accepted."),
        "response_status": GraphQLField(
            GraphQLInt, description="The HTTP status of the last answer, if there was one."
        ),
        "last_error": GraphQLField(GraphQLString, description="Why the last attempt failed."),
        "payload": GraphQLField(JSON, description="What is sent."),
        _LAST_ATTEMPTS: GraphQLField(
            GraphQLNonNull(GraphQLList(GraphQLNonNull(_ATTEMPT))),
            description="The last 20 attempts, the first of them first.",
        ),
    },
    description="One event on its way to a webhook, or there, or given up.",
)
_DELIVERY_PAGE: Final = GraphQLObjectType(
    "TriggerDeliveryPage",
    {
        "deliveries": GraphQLField(
            GraphQLNonNull(GraphQLList(GraphQLNonNull(_DELIVERY))),
            description="The latest first.",
        ),
        "next_cursor": GraphQLField(
            GraphQLString, description="Pass it as `after` for older ones; null at the end."
        ),
    },
    description="Some deliveries of a trigger.",
)
_NAME_ARGUMENT: Final = {"name": GraphQLArgument(_TEXT, description="The name of the trigger.")}


def all_trigger_queries() -> dict[str, GraphQLField]:
    """What can be asked about triggers whatever their view, and if it is gone."""
    return {
        "triggers": _list(None, "All triggers, by name."),
        "trigger": _one(None, "One trigger, whatever its view."),
    }


def all_trigger_mutations() -> dict[str, GraphQLField]:
    """What can be done to triggers whatever their view, and if it is gone."""
    return {"delete_trigger": _change(None, "delete", "Ends a trigger, whatever its view.")}


def trigger_mutations(types: ViewTypes, names: TakenNames) -> dict[str, GraphQLField]:
    """What can be done to triggers of a view."""
    view = types.name
    new_trigger = GraphQLInputObjectType(
        names.take(f"{view}TriggerInput", view),
        {
            "name": GraphQLInputField(
                _TEXT, description="Letters, digits, `_` and `-`, at most 64; not in use yet."
            ),
            "webhook": GraphQLInputField(_TEXT, description="The URL to call."),
            "match": GraphQLInputField(
                GraphQLNonNull(types.expression), description="When a row enters."
            ),
            "unmatch": GraphQLInputField(
                types.expression,
                description="When a row that does not match leaves; by default at once.",
            ),
        },
        description=f"A new trigger on `{view}`.",
    )

    async def create(root: object, info: Info, input: dict[str, Any]) -> object:
        context: QueryContext = info.context
        trigger = NewTrigger(input["name"], input["webhook"], input["match"], input.get("unmatch"))
        return await context.triggers().create(context.session, view, trigger)

    async def redeliver(root: object, info: Info, name: str, event_id: str | None = None) -> int:
        context: QueryContext = info.context
        return await context.triggers().redeliver(context.session, view, name, event_id)

    return {
        f"create_{view}_trigger": GraphQLField(
            GraphQLNonNull(TRIGGER),
            {
                "input": GraphQLArgument(
                    GraphQLNonNull(new_trigger), description="The trigger to make."
                )
            },
            resolve=create,
            description="Makes a trigger. Rows that match already do not fire.",
        ),
        f"delete_{view}_trigger": _change(view, "delete", "Ends a trigger."),
        f"enable_{view}_trigger": _change(view, "enable", "Makes its deliveries again."),
        f"disable_{view}_trigger": _change(
            view, "disable", "Holds its deliveries back; they wait, in order."
        ),
        f"restart_{view}_trigger": _change(
            view,
            "restart",
            "Begins it anew with what changes from now on; what a disabled one missed is left out.",
        ),
        f"redeliver_{view}_trigger": GraphQLField(
            GraphQLNonNull(GraphQLInt),
            {
                **_NAME_ARGUMENT,
                "event_id": GraphQLArgument(
                    GraphQLString, description="Only this one; by default every dead letter."
                ),
            },
            resolve=redeliver,
            description="Sends dead letters again under their old ids; says how many.",
        ),
    }


def trigger_queries(types: ViewTypes) -> dict[str, GraphQLField]:
    """What can be asked about triggers of a view."""
    view = types.name

    async def deliveries(root: object, info: Info, name: str, **page: Any) -> object:
        context: QueryContext = info.context
        return await context.triggers().deliveries(
            context.session,
            view,
            name,
            status=page.get("status"),
            limit=context.page_limit(page.get("limit"), DEFAULT_DELIVERIES),
            after=page.get("after"),
            with_attempts=_selects_attempts(info),
        )

    return {
        f"{view}_triggers": _list(view, f"The triggers on `{view}`, by name."),
        f"{view}_trigger": _one(view, f"One trigger on `{view}`."),
        f"{view}_trigger_deliveries": GraphQLField(
            GraphQLNonNull(_DELIVERY_PAGE),
            {
                **_NAME_ARGUMENT,
                "status": GraphQLArgument(DELIVERY_STATUS, description="Only those; or all."),
                "limit": GraphQLArgument(
                    GraphQLInt, description=f"At most so many; {DEFAULT_DELIVERIES} by default."
                ),
                "after": GraphQLArgument(GraphQLString, description="The cursor to go on from."),
            },
            resolve=deliveries,
            description="What a trigger has sent or is about to.",
        ),
    }


def _selects_attempts(info: Info) -> bool:
    """Whether the attempts of deliveries are asked for; they are many."""
    selected = Selected(info.fragments, info.variable_values)
    return any(
        field[0].name.value == _LAST_ATTEMPTS
        for nodes in selected.fields(info.field_nodes).values()
        for field in selected.fields(nodes).values()
    )


def _list(view: str | None, description: str) -> GraphQLField:
    async def resolve(root: object, info: Info) -> object:
        context: QueryContext = info.context
        return await context.triggers().listed(context.session, view)

    return GraphQLField(
        GraphQLNonNull(GraphQLList(GraphQLNonNull(TRIGGER))),
        resolve=resolve,
        description=description,
    )


def _one(view: str | None, description: str) -> GraphQLField:
    async def resolve(root: object, info: Info, name: str) -> object:
        context: QueryContext = info.context
        return await context.triggers().find(context.session, view, name)

    return GraphQLField(TRIGGER, _NAME_ARGUMENT, resolve=resolve, description=description)


def _change(view: str | None, verb: str, description: str) -> GraphQLField:
    async def resolve(root: object, info: Info, name: str) -> object:
        context: QueryContext = info.context
        method: Callable[..., Awaitable[object]] = getattr(context.triggers(), verb)
        return await method(context.session, view, name)

    return GraphQLField(
        GraphQLNonNull(TRIGGER), _NAME_ARGUMENT, resolve=resolve, description=description
    )
