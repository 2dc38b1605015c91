"""Who may subscribe, and to what: tokens and row rules over websockets of a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import jwt
import pytest

from tests.services.graphql_socket import connected, opened
from tests.services.live_server import LiveServer, position
from tidemark.config.sample import sample_text

SECRET = "a secret of tests, long enough for the digest that it is used with"
CONFIG = f"""
auth:
  keys:
    - {{name: service, sha256: {"0" * 64}, scopes: [read], tenants: ["*"]}}
  jwt:
    - {{name: app, algorithm: HS256, secret: "{SECRET}", scopes: [read], leeway: 0s}}
  rules:
    positions: {{account: {{_eq: $jwt.account}}}}
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveServer]:
    with LiveServer(sample_text() + CONFIG) as live:
        live.commit([position("ada"), position("bob")])
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


def token(**claims: object) -> str:
    return jwt.encode({"exp": int(time.time()) + 60, "sub": "a", **claims}, SECRET, "HS256")


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {"authToken": "no token"},
        {"authToken": token(exp=1)},
        {"authToken": jwt.encode({"exp": 2_000_000_000}, "some other secret" * 3, "HS256")},
    ],
    ids=["none", "garbage", "expired", "forged"],
)
async def test_one_who_is_not_known_is_closed_with_4403(
    live: LiveServer, payload: dict[str, str] | None
) -> None:
    async with opened(live.url) as client:
        await client.send({"type": "connection_init", "payload": payload})
        code, reason = await client.closed()
    assert code == 4403
    assert reason.startswith("Forbidden: ")


async def test_the_connection_ends_when_the_token_does(live: LiveServer) -> None:
    expires = int(time.time()) + 2
    async with connected(live.url, {"authToken": token(exp=expires, account="ada")}) as client:
        await client.subscribe()
        assert (await client.update())["data"]["account"] == "ada"
        assert await client.closed() == (4403, "Forbidden: the token has expired")
    # Timers go by another clock than tokens.
    assert expires - 0.1 < time.time() < expires + 2


async def test_a_row_rule_bounds_snapshot_changes_and_resumption(live: LiveServer) -> None:
    async with connected(live.url, {"authToken": token(account="ada")}) as client:
        widest = {"_or": [{}, {"account": {"_eq": "bob"}}]}
        await client.subscribe(where=widest)
        [row] = await client.updates_until(live.received_at)
        assert row["data"]["account"] == "ada"
        before = live.received_at
        at = live.commit([position("ada", quantity="2"), position("bob", quantity="2")])
        assert [u["data"]["account"] for u in await client.updates_until(at)] == ["ada"]
        await client.subscribe("again", where=widest, after=str(before))
        assert [u["data"]["account"] for u in await client.updates_until(at, "again")] == ["ada"]


async def test_a_token_without_the_claim_of_a_rule_sees_nothing(live: LiveServer) -> None:
    async with connected(live.url, {"authToken": token()}) as client:
        await client.subscribe()
        error = await client.error()
    assert "bob" not in str(error)
    assert error["extensions"]["code"] in {"forbidden", "access_denied"}, error


async def test_the_header_introduces_as_well_as_the_payload(live: LiveServer) -> None:
    headers = {"Authorization": f"Bearer {token(account='bob')}"}
    async with connected(live.url, additional_headers=headers) as client:
        await client.subscribe()
        assert (await client.update())["data"]["account"] == "bob"
