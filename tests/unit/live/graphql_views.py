"""A view with a column of every type, and somebody who asks about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.live.access.sessions import Session
from tidemark.live.filters import Filter, parse_filter
from tidemark.live.graphql.described import DescribedView
from tidemark.live.graphql.problems import DocumentRefused
from tidemark.live.graphql.service import GraphqlService, read_payload
from tidemark.pipeline.output.schema import Column, ViewSchema

ORDERS: Final = ViewSchema(
    name="orders",
    columns=(
        Column("tenant_id", "string"),
        Column("number", "bigint"),
        Column("price", "decimal"),
        Column("amount", "int"),
        Column("urgent", "boolean"),
        Column("placed_at", "timestamp"),
        Column("level", "enum", values=("low", "medium", "high")),
        Column("state", "enum", values=("not yet", "what?", "it's done")),
        Column("extra", "json"),
        Column("secret", "string", hidden=True),
    ),
    key=("tenant_id", "number"),
    definition_hash="orders-1",
)
COUNTERS: Final = ViewSchema(
    name="counters",
    columns=(Column("name", "string"), Column("value", "int")),
    key=("name",),
    definition_hash="counters-1",
    logged=False,
)
DESCRIBED: Final = (
    DescribedView(ORDERS, "What was ordered.", {"price": "What it costs."}),
    DescribedView(COUNTERS),
)
SCHEMAS: Final = {schema.name: schema for schema in (ORDERS, COUNTERS)}


def session(name: str = "ada", tenant: str | None = None, **fields: Any) -> Session:
    """Who may do everything, for one tenant or for all."""
    values: dict[str, Any] = {
        "claims": {},
        "scopes": frozenset(("read", "triggers", "introspect")),
        "tenants": None if tenant is None else frozenset((tenant,)),
        "expires_at": None,
    }
    return Session(name, **(values | fields))


def tenant_rule(view: str, caller: Session) -> Filter:
    """The rows of the caller's tenants."""
    where: dict[str, Any] = {}
    if caller.tenants is not None and view == ORDERS.name:
        where = {"tenant_id": {"_in": sorted(caller.tenants)}}
    return parse_filter(SCHEMAS[view], where)


async def executed(
    service: GraphqlService, caller: Session, body: bytes | Mapping[str, Any]
) -> dict[str, Any]:
    """The response to a query or a mutation, got as the endpoint gets it."""
    try:
        payload = read_payload(body)
        operation = service.operation(caller, payload)
        return await service.run(caller, operation, payload.variables)
    except DocumentRefused as refused:
        return {"errors": refused.errors}


class StillClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_us = 0

    def wall_us(self) -> int:
        return self.now_us

    def elapsed_us(self) -> int:
        return self.now_us
