"""Whatever fits the schema is answered, and never with a row that the caller may not see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_graphql import nodes, queries

from tests.contract.views_home import ViewsHome
from tests.integration.graphql_rows import TENANTS, ask, fill, orders, service
from tests.unit.live.graphql_views import COUNTERS, DESCRIBED, ORDERS, session
from tidemark.live.graphql.schema import build_schema
from tidemark.live.graphql.service import GraphqlService

# What a document of the right form may still be refused for.
REFUSALS = {
    "graphql_invalid",
    "invalid_filter",
    "invalid_argument",
    "document_too_large",
    "document_too_complex",
    "too_many_fields",
    "too_many_aliases",
    "too_many_root_fields",
}
SCALARS: dict[str, Any] = {
    "Decimal": st.sampled_from(["0", "1.5", "-0.000000001", "1e3"]).map(nodes.String),
    "BigInt": st.integers(9_007_199_254_740_990, 9_007_199_254_741_000).map(nodes.Int),
    "Timestamp": st.sampled_from(["2023-11-14T22:13:20Z", "2100-01-01T01:00:00+01:00"]).map(
        nodes.String
    ),
    "JSON": st.just(nodes.String("x")),
}
SCHEMA = build_schema(DESCRIBED, triggers=False)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as opened:
        yield opened


@pytest.fixture(scope="module")
def asked(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GraphqlService]:
    home = ViewsHome(f"sqlite:///{tmp_path_factory.mktemp('fuzz') / Path('views.db')}")

    async def filled() -> GraphqlService:
        opened = await home.open()
        await opened.declare([ORDERS, COUNTERS])
        await fill(opened, orders(20))
        return service(opened)

    yield runner.run(filled())
    runner.run(home.close())


@given(
    text=queries(SCHEMA, custom_scalars=SCALARS, allow_null=False), tenant=st.sampled_from(TENANTS)
)
@settings(suppress_health_check=list(HealthCheck), max_examples=settings().max_examples // 4)
def test_every_query_of_the_schema_is_answered_within_the_callers_rows(
    runner: asyncio.Runner, asked: GraphqlService, text: str, tenant: str
) -> None:
    answer = runner.run(ask(asked, text, None, session(name=text, tenant=tenant)))
    codes = {error["extensions"]["code"] for error in answer.get("errors", ())}
    assert codes <= REFUSALS, answer
    shown = str(answer.get("data"))
    assert not any(f"'{other}'" in shown for other in TENANTS if other != tenant)
