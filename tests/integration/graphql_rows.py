"""Rows of every type for GraphQL to show, and what plain Python makes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from tests.contract.views_home import Values, Views, batch, changes, writes
from tests.unit.live.graphql_views import (
    DESCRIBED,
    ORDERS,
    StillClock,
    executed,
    session,
    tenant_rule,
)
from tidemark.live.access.sessions import Session
from tidemark.live.graphql.service import GraphqlService
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.schema import Column, Value

TENANTS: Final = ("acme", "Beta", "γάμμα")
PRICES: Final = ("0", "-0.000000001", "1.5", "12345678901234567890.123456789", "9.99", "10")
TIMES: Final = (0, 1_700_000_000_000_000, 1_700_000_000_000_001, 4_102_444_800_000_000)
TEXTS: Final = ('{"a":1}', "[1,2]", '"text"', "3")
COLUMNS: Final = {column.name: column for column in ORDERS.visible}
EVERYTHING: Final = " ".join(COLUMNS)


def order(tenant: str, number: int, **values: Value) -> Values:
    """A row; what is not given is null."""
    row: Values = dict.fromkeys(column.name for column in ORDERS.columns)
    return row | {"tenant_id": tenant, "number": number, "secret": "hush"} | values


def orders(count: int, seed: int = 1) -> list[Values]:
    """Rows of which about a fifth of the values are null."""
    chance = random.Random(seed)

    def some(values: Sequence[Any]) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    return [
        order(
            TENANTS[place % len(TENANTS)],
            9_007_199_254_740_992 + place,
            price=None if (price := some(PRICES)) is None else Decimal(price),
            amount=some([-3, 0, 7, 2**31 - 1]),
            urgent=some([True, False]),
            placed_at=some(TIMES),
            level=some(COLUMNS["level"].values),
            state=some(COLUMNS["state"].values),
            extra=some(TEXTS),
        )
        for place in range(count)
    ]


async def fill(views: Views, rows: Sequence[Values], commit: int = 1) -> None:
    """Commits rows that are new."""
    await views.commit(
        batch(
            None if commit == 1 else commit - 1,
            commit,
            rows=[writes(*rows, commit=commit, schema=ORDERS)],
            changes=[changes(*((commit, None, row) for row in rows), schema=ORDERS)],
        )
    )


def service(views: Any, **options: Any) -> GraphqlService:
    options = {"rule": tenant_rule, "clock": StillClock()} | options
    return GraphqlService(DESCRIBED, views, **options)


async def ask(
    asked: GraphqlService,
    query: str,
    variables: dict[str, Any] | None = None,
    caller: Session | None = None,
) -> Any:
    """The whole response, as a client would see it."""
    body = {"query": query, "variables": variables}
    answer = await executed(asked, caller or session(), msgspec.json.encode(body))
    return msgspec.json.decode(msgspec.json.encode(answer))


async def data(asked: GraphqlService, query: str, variables: dict[str, Any] | None = None) -> Any:
    """The answer to a document that nothing is wrong with."""
    answer = await ask(asked, query, variables)
    assert "errors" not in answer, answer
    return answer["data"]


def shown(row: Values) -> dict[str, Any]:
    """A row as GraphQL shows it, all of it."""
    found = msgspec.json.decode(encode_row(ORDERS, row))
    return {name: found[name] for name in COLUMNS}


def rank(column: Column, value: Value) -> Any:
    """What a value is ordered by."""
    if column.type == "enum":
        assert isinstance(value, str)
        return column.values.index(value)
    return value


def key(row: Values) -> Any:
    """What rows that are otherwise alike are ordered by: the text of their keys."""
    return msgspec.json.encode([row["tenant_id"], str(row["number"])]).decode()
