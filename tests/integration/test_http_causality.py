"""`/admin/causality`: the history of one run, across streams and tenants, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.http_client import Api, assert_refused, trade, usage
from tests.integration.test_http_access import environment_with_keys, keyed
from tests.services.http_calls import Answer
from tests.services.tidemark_server import TidemarkServer
from tidemark.timestamps import parse_timestamp


def path_of(key: str) -> str:
    # Dots as well: some clients take segments of dots for steps up the path.
    return f"/admin/causality/{quote(key, safe='').replace('.', '%2E')}"


def run_of(api: Api, key: str, **query: str) -> dict[str, Any]:
    answer = api.get(path_of(key), **query)
    assert answer.status == 200, answer
    run: dict[str, Any] = answer.json
    return run


def keys(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [event["idempotencyKey"] for event in answer.json["events"]]


@pytest.fixture
def key(tenant: str) -> str:
    """A run that no other test uses, with a name that needs some care."""
    return f"Bestellung/{tenant} 100% ü?#&.."


@pytest.fixture
def stored(api: Api, key: str) -> list[dict[str, Any]]:
    """Six events of one run, of two tenants in two streams, with others between them."""
    tenant, other = api.tenant, f"{api.tenant}-other"

    def of_run(event: dict[str, Any], name: str) -> dict[str, Any]:
        return {**event, "idempotencyKey": name, "causalityKey": key}

    correction = {"tenantId": tenant, "causalityKey": key}
    first = api.accept(
        of_run(usage(tenant, ts="2025-01-02T00:00:00Z"), "a"),
        usage(tenant, idempotencyKey="between"),
        of_run(trade(tenant, "t-1"), "b"),
    )
    second = api.accept(
        of_run(usage(other, ts="2025-01-01T00:00:00Z"), "a"),
        usage(tenant, idempotencyKey="elsewhere", causalityKey=f"{key}!"),
    )
    third = api.accept(
        {
            **correction,
            "control": "amend",
            "target": "a",
            "event": {"ts": "2025-01-02T00:00:00Z", "quantity": "2"},
        },
        {**correction, "control": "void", "target": "b", "reason": "a test"},
        of_run(usage(tenant, customerRef="last", ts="2025-01-03T00:00:00.0015Z"), "c"),
    )
    return [first[0], first[2], second[0], *third]


def test_a_run_is_its_events_in_order_across_streams_and_tenants(
    api: Api, key: str, stored: list[dict[str, Any]]
) -> None:
    answer = run_of(api, key)
    assert answer["nextCursor"] is None
    assert [it["ingressSequence"] for it in answer["events"]] == [
        it["ingressSequence"] for it in stored
    ]
    listed = api.get("/admin/events", causalityKey=key).json["events"]
    more = {"targetSequence", "voidedBy", "amendedBy"}
    assert [
        {name: value for name, value in event.items() if name not in more}
        for event in answer["events"]
    ] == listed


def test_what_a_run_comes_to_is_on_its_first_page(
    api: Api, key: str, stored: list[dict[str, Any]]
) -> None:
    run = run_of(api, key)["run"]
    first, last = stored[0], stored[-1]
    received_us = parse_timestamp(last["receivedAt"]) - parse_timestamp(first["receivedAt"])
    times = [event["occurredAt"] for event in run_of(api, key)["events"]]
    occurred_us = parse_timestamp(max(times)) - parse_timestamp(min(times))
    assert run == {
        "causalityKey": key,
        "count": 6,
        "complete": True,
        "tenants": [
            {"tenantId": api.tenant, "count": 5},
            {"tenantId": f"{api.tenant}-other", "count": 1},
        ],
        "streams": [{"stream": "trades", "count": 2}, {"stream": "usage", "count": 4}],
        "firstSequence": first["ingressSequence"],
        "lastSequence": last["ingressSequence"],
        "firstReceivedAt": first["receivedAt"],
        "lastReceivedAt": last["receivedAt"],
        "receivedDurationMs": received_us // 1000,
        "firstOccurredAt": min(times),
        "lastOccurredAt": max(times),
        "occurredDurationMs": occurred_us // 1000,
    }


def test_corrections_and_what_they_correct_name_each_other(
    api: Api, key: str, stored: list[dict[str, Any]]
) -> None:
    sequences = [it["ingressSequence"] for it in stored]
    a, b, other, amend, void, c = run_of(api, key)["events"]
    assert (a["amendedBy"], amend["target"], amend["targetSequence"]) == (
        sequences[3],
        "a",
        sequences[0],
    )
    assert (b["voidedBy"], void["target"], void["targetSequence"]) == (
        sequences[4],
        "b",
        sequences[1],
    )
    assert void["data"] == {"reason": "a test"}
    for event in (other, c):
        assert {"amendedBy", "voidedBy", "target", "targetSequence"}.isdisjoint(event)
    # A correction counts whichever run it belongs to, and a void is the last word.
    [later] = api.accept({"control": "void", "tenantId": api.tenant, "target": "a"})
    a = run_of(api, key)["events"][0]
    assert (a["voidedBy"], "amendedBy" in a) == (later["ingressSequence"], False)


def test_an_end_of_a_stream_is_part_of_a_run(api: Api, key: str) -> None:
    end = {"control": "end", "tenantId": api.tenant, "stream": "trades", "causalityKey": key}
    api.accept(end)
    [event] = run_of(api, key)["events"]
    assert (event["control"], event["stream"], "target" in event) == ("end", "trades", False)


def test_a_run_goes_on_from_page_to_page(api: Api, key: str, stored: list[dict[str, Any]]) -> None:
    seen: list[str] = []
    query = {"limit": "2"}
    while True:
        page = run_of(api, key, **query)
        assert ("run" in page) == ("cursor" not in query)
        seen += [event["ingressSequence"] for event in page["events"]]
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    assert seen == [it["ingressSequence"] for it in stored]


def test_a_cursor_is_for_its_run_and_its_tenant(
    api: Api, key: str, stored: list[dict[str, Any]]
) -> None:
    cursor = run_of(api, key, limit="2")["nextCursor"]
    assert len(run_of(api, key, cursor=cursor)["events"]) == 4
    for asked, tenant in ((f"{key}!", {}), (key, {"tenantId": api.tenant})):
        answer = api.get(path_of(asked), cursor=cursor, **tenant)
        assert_refused(answer, 404, "unknown_cursor", "cursor")


def test_one_tenant_of_a_run(api: Api, key: str, stored: list[dict[str, Any]]) -> None:
    other = f"{api.tenant}-other"
    answer = run_of(api, key, tenantId=other)
    assert [event["tenantId"] for event in answer["events"]] == [other]
    assert answer["run"]["tenants"] == [{"tenantId": other, "count": 1}]
    assert answer["run"]["receivedDurationMs"] == 0


def test_a_run_that_is_not_there_is_not_found(api: Api, key: str, stored: list[Any]) -> None:
    for path, query in (
        (path_of("nothing"), {}),
        (path_of(key.upper()), {}),
        (path_of(key), {"tenantId": "nobody"}),
    ):
        assert_refused(api.get(path, **query), 404, "not_found", "key")
    assert_refused(api.get("/admin/causality/"), 404, "not_found")
    assert_refused(api.get("/admin/causality"), 404, "not_found")


@pytest.mark.parametrize(
    "name",
    ["a/b", "/", "//a/", "..", ".", "../events", " ", "%2F", "日本語🙂", "k" * 256, "a;b,c+d"],
)
def test_a_run_may_have_any_name(api: Api, name: str) -> None:
    api.accept(usage(api.tenant, causalityKey=name))
    [event] = run_of(api, name, tenantId=api.tenant)["events"]
    assert event["causalityKey"] == name


def test_slashes_may_stand_in_the_path_as_they_are(api: Api) -> None:
    name = f"job/{api.tenant}//7"
    api.accept(usage(api.tenant, causalityKey=name, idempotencyKey="k"))
    assert keys(api.get(f"/admin/causality/{name}")) == ["k"]


def test_it_is_asked_as_the_rest_of_the_admin_api_is(sqlite_api: Api) -> None:
    api, path = sqlite_api, path_of("run")
    api.accept(usage(api.tenant, causalityKey="run"))
    head = api.call("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert api.call("HEAD", path_of("nothing")).status == 404
    refused = api.call("POST", path)
    assert_refused(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD"
    assert_refused(api.get(path, limit="0"), 400, "invalid_parameter", "limit")
    assert_refused(api.get(path, cursor="a cursor"), 400, "invalid_parameter", "cursor")
    assert_refused(api.get(path, tenantId="a\0b"), 400, "invalid_parameter", "tenantId")
    assert_refused(api.get(path, stream="usage"), 400, "unknown_parameter", "stream")
    assert_refused(api.call("GET", f"{path}?limit=1&limit=2"), 400, "repeated_parameter", "limit")
    for unreadable in ("%FF", "a%00b"):
        assert_refused(api.get(f"/admin/causality/{unreadable}"), 400, "invalid_path")


@pytest.fixture(scope="module")
def guarded() -> Iterator[TidemarkServer]:
    with TidemarkServer(env=environment_with_keys()) as server:
        api = keyed(server, "everything")
        api.accept(
            *(
                usage(tenant, causalityKey="run", idempotencyKey=f"k-{tenant}")
                for tenant in ("acme", "globex")
            ),
            usage("globex", causalityKey="theirs"),
        )
        yield server
        assert "Traceback" not in server.log_text()


def test_a_key_sees_what_a_run_has_of_its_tenants(guarded: TidemarkServer) -> None:
    assert keys(keyed(guarded, "everything").get(path_of("run"))) == ["k-acme", "k-globex"]
    reader = keyed(guarded, "reader")
    answer = reader.get(path_of("run"))
    assert keys(answer) == ["k-acme"]
    assert answer.json["run"]["tenants"] == [{"tenantId": "acme", "count": 1}]
    assert_refused(reader.get(path_of("theirs")), 404, "not_found", "key")
    assert_refused(reader.get(path_of("run"), tenantId="globex"), 403, "forbidden")


def test_a_key_needs_the_scope_to_read(guarded: TidemarkServer) -> None:
    assert_refused(keyed(guarded, "sender").get(path_of("run")), 403, "forbidden")
    assert_refused(keyed(guarded, None).get(path_of("run")), 401, "unauthorized", "Authorization")
