"""Who may call: API keys with scopes and tenants, and, without any, nobody but this machine."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from typing import Final

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.http_client import Api, assert_error, assert_refused, usage
from tests.services.tidemark_server import TidemarkServer

# Key → scopes and tenants. The file holds only the hashes.
KEYS: Final = {
    "everything": (["ingest", "control", "read", "admin"], ["*"]),
    "sender": (["ingest"], ["acme", "globex"]),
    "corrector": (["control"], ["acme"]),
    "reader": (["read"], ["acme"]),
    "operator": (["admin"], ["*"]),
}
APP: Final = "https://app.example.com"


def environment_with_keys() -> dict[str, str]:
    keys = [
        {
            "name": name,
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "scopes": scopes,
            "tenants": tenants,
        }
        for name, (scopes, tenants) in KEYS.items()
    ]
    return {
        "TIDEMARK_AUTH__KEYS": json.dumps(keys),
        "TIDEMARK_HTTP__ALLOWED_ORIGINS": json.dumps([APP]),
    }


@pytest.fixture(scope="module")
def guarded() -> Iterator[TidemarkServer]:
    with TidemarkServer(env=environment_with_keys()) as server:
        yield server
        assert "Traceback" not in server.log_text()


@pytest.fixture(scope="module")
def welcoming() -> Iterator[TidemarkServer]:
    """Open, with a host name and an origin that are let in."""
    env = {
        "TIDEMARK_HTTP__ALLOWED_HOSTS": json.dumps(["tidemark.internal"]),
        "TIDEMARK_HTTP__ALLOWED_ORIGINS": json.dumps([APP]),
    }
    with TidemarkServer(env=env) as server:
        yield server
        assert "Traceback" not in server.log_text()


def keyed(server: TidemarkServer, key: str | None, tenant: str = "acme") -> Api:
    return Api(server.base_url, tenant, key)


# Keys.


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic ZXZlcnl0aGluZw==", "everything"],
)
def test_without_a_known_key_a_request_is_refused_as_a_whole(
    guarded: TidemarkServer, authorization: str | None
) -> None:
    api = keyed(guarded, None)
    headers = {} if authorization is None else {"Authorization": authorization}
    for method, path in (
        ("POST", "/v1/events"),
        ("GET", "/admin/events"),
        ("GET", "/admin/rejects"),
    ):
        answer = api.call(method, path, headers=headers)
        assert_refused(answer, 401, "unauthorized", "Authorization")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_hash_of_a_key_is_not_the_key(guarded: TidemarkServer) -> None:
    stolen = hashlib.sha256(b"everything").hexdigest()
    answer = keyed(guarded, stolen).get("/admin/events")
    assert_refused(answer, 401, "unauthorized", "Authorization")


@pytest.mark.parametrize(
    ("key", "method", "path"),
    [
        ("reader", "POST", "/v1/events"),
        ("operator", "POST", "/v1/events"),
        ("sender", "GET", "/admin/events"),
        ("sender", "GET", "/admin/events/acme/k"),
        ("corrector", "GET", "/admin/rejects"),
        ("reader", "POST", "/admin/clock/confirm"),
    ],
)
def test_a_key_without_the_scope_is_refused_as_a_whole(
    guarded: TidemarkServer, key: str, method: str, path: str
) -> None:
    answer = keyed(guarded, key).call(method, path)
    assert_refused(answer, 403, "forbidden")
    assert key in answer.error["message"]


def test_an_event_of_a_foreign_tenant_is_forbidden_and_its_neighbours_are_accepted(
    guarded: TidemarkServer,
) -> None:
    mine, foreign, other = keyed(guarded, "sender").send(
        usage("acme", customerRef="a"),
        usage("initech", customerRef="b", idempotencyKey="theirs"),
        usage("globex", customerRef="c"),
    )
    assert mine["status"] == other["status"] == "accepted"
    assert foreign["status"] == "rejected"
    assert_error(foreign["error"], "forbidden", "tenantId")
    assert keyed(guarded, "everything", "initech").events() == []


def test_a_foreign_tenants_event_tells_nothing_about_what_is_stored(
    guarded: TidemarkServer,
) -> None:
    event = usage("initech", idempotencyKey="secret")
    keyed(guarded, "everything").accept(event)
    for attempt in (event, {**event, "quantity": "7"}, {**event, "quantity": "x"}):
        [result] = keyed(guarded, "sender").send(attempt)
        assert_error(result["error"], "forbidden", "tenantId")
        assert "ingressSequence" not in result


def test_control_events_need_their_own_scope(guarded: TidemarkServer) -> None:
    event = usage("acme", idempotencyKey="to-void")
    void = {"control": "void", "tenantId": "acme", "target": "to-void"}
    accepted, refused = keyed(guarded, "sender").send(event, void)
    assert accepted["status"] == "accepted"
    assert_error(refused["error"], "forbidden")
    refused, accepted = keyed(guarded, "corrector").send({**event, "idempotencyKey": "n"}, void)
    assert_error(refused["error"], "forbidden")
    assert accepted["status"] == "accepted"


def test_a_key_for_some_tenants_sees_only_theirs(guarded: TidemarkServer) -> None:
    everything, reader = keyed(guarded, "everything"), keyed(guarded, "reader")
    everything.accept(
        usage("acme", idempotencyKey="seen"), usage("globex", idempotencyKey="unseen")
    )
    everything.send(usage("acme", quantity="?"), usage("globex", quantity="?"))
    assert {it["tenantId"] for it in reader.get("/admin/events").json["events"]} == {"acme"}
    assert {it["tenantId"] for it in reader.get("/admin/rejects").json["rejects"]} == {"acme"}
    assert reader.event("seen")["tenantId"] == "acme"
    assert {it["tenantId"] for it in everything.get("/admin/events").json["events"]} > {"acme"}
    for path in ("/admin/events?tenantId=globex", "/admin/rejects?tenantId=globex"):
        assert_refused(reader.get(path), 403, "forbidden")
    for path in ("/admin/events/globex/unseen", "/admin/events/globex/nothing"):
        assert_refused(reader.get(path), 403, "forbidden")


def test_an_operator_may_confirm_the_clock(guarded: TidemarkServer) -> None:
    answer = keyed(guarded, "operator").call("POST", "/admin/clock/confirm")
    assert (answer.status, answer.json) == (200, {"status": "confirmed"})


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_health_metrics_and_description_need_no_key(guarded: TidemarkServer, path: str) -> None:
    assert keyed(guarded, None).get(path).status == 200


def test_only_a_reader_is_told_why_a_part_is_not_ready(guarded: TidemarkServer) -> None:
    told = {}
    for name, key in (("nobody", None), ("stranger", "no such key"), ("reader", "reader")):
        answer = keyed(guarded, key).get("/readyz")
        assert answer.status == 200
        told[name] = answer.json["parts"]["sequence"]["reason"]
        assert ("lastSequence" in answer.json["parts"]["ledger"]) == (name == "reader")
    assert told["reader"] == "sequence.url is not set"
    assert told["nobody"] == told["stranger"] == "a key with the scope read is told why"


def test_the_description_asks_for_a_key_only_where_there_are_keys(
    guarded: TidemarkServer, welcoming: TidemarkServer
) -> None:
    document = keyed(guarded, None).get("/openapi.json").json
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert document["paths"]["/v1/events"]["post"]["security"] == [{"key": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    document = keyed(welcoming, None).get("/openapi.json").json
    assert "securitySchemes" not in document["components"]
    assert "security" not in document["paths"]["/v1/events"]["post"]


def test_with_keys_any_host_name_may_be_used(guarded: TidemarkServer) -> None:
    answer = keyed(guarded, "reader").call(
        "GET", "/admin/events", headers={"Host": "tidemark.example.com"}
    )
    assert answer.status == 200


# Without keys: DNS rebinding and cross-site requests.


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8787",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1/evil.example",
        "192.168.1.10:8787",
        "[::1",
        "",
        "[]",
        "127.0.0.1:x",
    ],
)
def test_a_foreign_host_is_refused(sqlite_api: Api, host: str) -> None:
    for method, path in (("GET", "/admin/events"), ("POST", "/v1/events"), ("GET", "/docs")):
        answer = sqlite_api.call(method, path, headers={"Host": host})
        assert_refused(answer, 421, "foreign_host", "Host")


def test_a_second_host_header_does_not_hide_the_first(sqlite_server: TidemarkServer) -> None:
    for hosts in (("evil.example", "localhost"), ("localhost", "evil.example")):
        lines = "".join(f"Host: {host}\r\n" for host in hosts)
        request = f"GET /admin/events HTTP/1.1\r\n{lines}\r\n"
        with socket.create_connection(("127.0.0.1", sqlite_server.port), timeout=30) as connection:
            connection.sendall(request.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:99", "[::1]:8787", "localhost."]
)
def test_this_machine_may_be_called_by_any_of_its_names(sqlite_api: Api, host: str) -> None:
    assert sqlite_api.call("GET", "/admin/events", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://[",
        "",
        "file://",
        "http://localhost.evil.example",
    ],
)
def test_a_page_of_another_origin_is_refused(sqlite_api: Api, origin: str) -> None:
    event = {"events": [usage(sqlite_api.tenant)]}
    answer = sqlite_api.call("POST", "/v1/events", json=event, headers={"Origin": origin})
    assert_refused(answer, 403, "foreign_origin", "Origin")
    assert "access-control-allow-origin" not in answer.headers
    answer = sqlite_api.call("GET", "/admin/events", headers={"Origin": origin})
    assert_refused(answer, 403, "foreign_origin", "Origin")
    assert sqlite_api.events() == []


def test_our_own_page_may_call(sqlite_api: Api) -> None:
    answer = sqlite_api.call("GET", "/admin/events", headers={"Origin": sqlite_api.base_url})
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_host_that_is_allowed_is_let_in(welcoming: TidemarkServer) -> None:
    api = keyed(welcoming, None)
    for host in ("tidemark.internal", "Tidemark.Internal:8787"):
        assert api.call("GET", "/admin/events", headers={"Host": host}).status == 200
    answer = api.call("GET", "/admin/events", headers={"Host": "sub.tidemark.internal"})
    assert_refused(answer, 421, "foreign_host", "Host")


@pytest.mark.parametrize("fixture", ["welcoming", "guarded"])
def test_a_page_of_an_allowed_origin_may_call(request: pytest.FixtureRequest, fixture: str) -> None:
    api = keyed(request.getfixturevalue(fixture), "everything")
    answer = api.call(
        "POST", "/v1/events", json={"events": [usage("cors")]}, headers={"Origin": APP}
    )
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == APP
    assert "origin" in answer.headers["vary"].lower()
    answer = api.call("GET", "/nowhere", headers={"Origin": APP})
    assert answer.headers["access-control-allow-origin"] == APP
    answer = api.call("GET", "/admin/events", headers={"Origin": "https://evil.example"})
    assert_refused(answer, 403, "foreign_origin", "Origin")


@pytest.mark.parametrize("fixture", ["welcoming", "guarded"])
def test_a_preflight_is_answered_for_allowed_origins_only(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    api = keyed(request.getfixturevalue(fixture), None)
    asked = {"Access-Control-Request-Method": "POST"}
    answer = api.call("OPTIONS", "/v1/events", headers={"Origin": APP, **asked})
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers
    assert answer.headers["access-control-allow-origin"] == APP
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]
    answer = api.call("OPTIONS", "/v1/events", headers={"Origin": "https://evil.example", **asked})
    assert_refused(answer, 403, "foreign_origin", "Origin")


# The websocket is no way around.


def refusal(server: TidemarkServer, headers: dict[str, str], query: str = "") -> tuple[int, str]:
    """The status and code with which a handshake is refused."""
    url = f"{server.websocket_url}/admin/events/tail{query}"
    with (
        pytest.raises(InvalidStatus) as caught,
        connect(url, additional_headers=headers, proxy=None),
    ):
        pass
    response = caught.value.response
    body = json.loads(response.body or b"{}")
    assert_error(body["error"], body["error"]["code"], body["error"].get("field"))
    return response.status_code, body["error"]["code"]


def test_a_foreign_page_cannot_open_the_tail(sqlite_server: TidemarkServer) -> None:
    assert refusal(sqlite_server, {"Origin": "https://evil.example"}) == (403, "foreign_origin")
    assert refusal(sqlite_server, {"Origin": "null"}) == (403, "foreign_origin")


def test_a_foreign_host_cannot_open_the_tail(sqlite_server: TidemarkServer) -> None:
    # The client library writes its own Host header first, and neither can hide the other.
    assert refusal(sqlite_server, {"Host": "evil.example"}) == (421, "foreign_host")


def test_the_tail_asks_for_a_key_with_the_scope_and_the_tenant(guarded: TidemarkServer) -> None:
    assert refusal(guarded, {}) == (401, "unauthorized")
    assert refusal(guarded, {"Authorization": "Bearer wrong"}) == (401, "unauthorized")
    assert refusal(guarded, {"Authorization": "Bearer sender"}) == (403, "forbidden")
    reader = {"Authorization": "Bearer reader"}
    assert refusal(guarded, reader, "?tenantId=globex") == (403, "forbidden")


def test_a_tail_with_a_key_for_some_tenants_shows_only_theirs(guarded: TidemarkServer) -> None:
    headers = {"Authorization": "Bearer reader"}
    url = f"{guarded.websocket_url}/admin/events/tail?after=0"
    keyed(guarded, "everything").accept(
        usage("globex", customerRef="tail"), usage("acme", customerRef="tail")
    )
    seen = []
    with connect(url, additional_headers=headers, proxy=None) as tail:
        while True:
            message = json.loads(tail.recv(timeout=10))
            if message["type"] == "progress":
                break
            seen.append(message["event"]["tenantId"])
    assert set(seen) == {"acme"}
