"""A server goes on while the views it shows are removed and built anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.services.graphql_socket import connected
from tests.services.http_calls import call
from tests.services.live_server import LiveServer, position

QUERY: Final = "{ positions { account } positions_aggregate { aggregate { count } } }"


@pytest.fixture
def live() -> Iterator[LiveServer]:
    with LiveServer() as live:
        live.commit([position("old"), position("older")])
        live.commit([position("oldest")])
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


def asked(live: LiveServer) -> Any:
    answer = call(live.server.base_url, "POST", "/graphql", json={"query": QUERY})
    return answer.json["data"]


@pytest.mark.parametrize("removed", ["views.db*", "views.db"])
async def test_queries_and_subscriptions_show_the_views_that_were_built_anew(
    live: LiveServer, removed: str
) -> None:
    assert len(asked(live)["positions"]) == 3
    async with connected(live.url) as client:
        await client.subscribe()
        assert len(await client.updates_until(live.received_at)) == 3
        await asyncio.to_thread(live.build_anew, removed)
        live.commit([position("new")])
        while (message := await client.receive())["type"] == "next":
            assert message["payload"]["data"]["positions"]["operation"] == "PROGRESS"
        assert message["payload"][0]["extensions"]["code"] == "cannot_resume"
        await client.subscribe("2")
        [update] = await client.updates_until(live.received_at, "2")
        assert update["data"]["account"] == "new"
        live.commit([position("newer")])
        [update] = await client.updates_until(live.received_at, "2")
        assert update["data"]["account"] == "newer"
    assert asked(live) == {
        "positions": [{"account": "new"}, {"account": "newer"}],
        "positions_aggregate": {"aggregate": {"count": 2}},
    }
