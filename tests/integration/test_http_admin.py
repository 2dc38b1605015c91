"""`/admin`: look at events and rejects, page by page, with every filter."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.http_client import Api, assert_refused, trade, usage
from tests.services.http_calls import Answer

EVENTS, REJECTS = "/admin/events", "/admin/rejects"


def keys(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [event["idempotencyKey"] for event in answer.json["events"]]


@pytest.fixture
def stored(api: Api) -> dict[str, dict[str, Any]]:
    """Six events of one tenant, in two commits, by their keys."""
    tenant = api.tenant

    def event(key: str, **fields: Any) -> dict[str, Any]:
        return usage(tenant, idempotencyKey=key, **fields)

    first = api.accept(
        event("a", metric="bytes", customerRef="x", ts="2025-01-01T00:00:00Z"),
        event("b", metric="bytes", customerRef="y", ts="2025-01-02T00:00:00Z"),
        event("c", metric="seats", customerRef="x", ts="2025-01-03T00:00:00Z"),
    )
    second = api.accept(
        event("d", metric="seats", customerRef="y", ts="2025-01-04T00:00:00Z", causalityKey="run"),
        {**trade(tenant, "t-1"), "idempotencyKey": "e", "causalityKey": "run"},
        {**trade(tenant, "t-2"), "idempotencyKey": "f", "occurredAt": "2025-01-02T00:00:00Z"},
    )
    return {result["idempotencyKey"]: result for result in first + second}


# Each filter from what was stored to the keys that it finds.
FILTERS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, str]], str]] = {
    "none": (lambda stored: {}, "abcdef"),
    "stream": (lambda stored: {"stream": "trades"}, "ef"),
    "unknown stream": (lambda stored: {"stream": "nothing"}, ""),
    "metric": (lambda stored: {"metric": "bytes"}, "ab"),
    "customer": (lambda stored: {"customerRef": "x"}, "ac"),
    "metric and customer": (lambda stored: {"metric": "seats", "customerRef": "x"}, "c"),
    "causality, across streams": (lambda stored: {"causalityKey": "run"}, "de"),
    "sequences": (
        lambda stored: {
            "sequenceFrom": stored["b"]["ingressSequence"],
            "sequenceTo": stored["e"]["ingressSequence"],
        },
        "bcd",
    ),
    "all sequences": (
        lambda stored: {"sequenceFrom": "0", "sequenceTo": "9999999999999999999"},
        "abcdef",
    ),
    "received from": (lambda stored: {"receivedFrom": stored["d"]["receivedAt"]}, "def"),
    "received to": (lambda stored: {"receivedTo": stored["d"]["receivedAt"]}, "abc"),
    "received before all time": (lambda stored: {"receivedFrom": "1969-01-01T00:00:00Z"}, "abcdef"),
    "received after all time": (lambda stored: {"receivedFrom": "2300-01-01T00:00:00Z"}, ""),
    "received never": (lambda stored: {"receivedFrom": "2261-01-01T00:00:00Z"}, ""),
    "occurred": (
        lambda stored: {
            "occurredFrom": "2025-01-02T01:00:00+01:00",
            "occurredTo": "2025-01-04T00:00:00Z",
        },
        "bcf",
    ),
    "several": (lambda stored: {"stream": "usage", "occurredTo": "2025-01-02T00:00:00Z"}, "a"),
    "an empty range": (lambda stored: {"sequenceFrom": "5", "sequenceTo": "5"}, ""),
}


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_finds_exactly_its_events_in_order(
    api: Api, stored: dict[str, dict[str, Any]], name: str
) -> None:
    asked, expected = FILTERS[name]
    assert [event["idempotencyKey"] for event in api.events(**asked(stored))] == list(expected)


def test_a_listing_goes_on_from_page_to_page(api: Api, stored: dict[str, Any]) -> None:
    pages = []
    query = {"tenantId": api.tenant, "limit": "2"}
    while True:
        answer = api.get(EVENTS, **query)
        pages.append("".join(keys(answer)))
        cursor = answer.json["nextCursor"]
        if cursor is None:
            break
        query["cursor"] = cursor
    assert [page for page in pages if page] == ["ab", "cd", "ef"]


def test_the_page_size_may_change_on_the_way_but_not_the_filters(
    api: Api, stored: dict[str, Any]
) -> None:
    cursor = api.get(EVENTS, tenantId=api.tenant, limit="2").json["nextCursor"]
    answer = api.get(EVENTS, tenantId=api.tenant, limit="3", cursor=cursor)
    assert keys(answer) == ["c", "d", "e"]
    for other in ({"stream": "usage"}, {"metric": "bytes"}):
        answer = api.get(EVENTS, tenantId=api.tenant, limit="2", cursor=cursor, **other)
        assert_refused(answer, 404, "unknown_cursor", "cursor")
    assert_refused(api.get(EVENTS, cursor=cursor), 404, "unknown_cursor", "cursor")


def test_events_that_come_later_are_on_later_pages(api: Api, stored: dict[str, Any]) -> None:
    cursor = api.get(EVENTS, tenantId=api.tenant, limit="5").json["nextCursor"]
    api.accept(usage(api.tenant, idempotencyKey="g", customerRef="late"))
    assert keys(api.get(EVENTS, tenantId=api.tenant, cursor=cursor)) == ["f", "g"]


def test_a_cursor_of_another_version_is_refused(api: Api, stored: dict[str, Any]) -> None:
    cursor = api.get(EVENTS, tenantId=api.tenant, limit="2").json["nextCursor"]
    inside = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    inside["v"] += 1
    newer = base64.urlsafe_b64encode(json.dumps(inside).encode()).rstrip(b"=").decode()
    answer = api.get(EVENTS, tenantId=api.tenant, limit="2", cursor=newer)
    assert_refused(answer, 404, "unknown_cursor", "cursor")
    assert "version" in answer.error["message"]


@pytest.mark.parametrize("path", [EVENTS, REJECTS])
@pytest.mark.parametrize(
    ("cursor", "status", "code"),
    [
        ("", 400, "invalid_parameter"),
        ("a cursor", 400, "invalid_parameter"),
        ("%00", 400, "invalid_parameter"),
        ("x" * 513, 400, "invalid_parameter"),
        ("abc", 404, "unknown_cursor"),
        ("12", 404, "unknown_cursor"),
        ("e30", 404, "unknown_cursor"),
        ("eyJ2IjoxLCJwIjotMSwicSI6IiJ9", 404, "unknown_cursor"),
        ("eyJ2IjoxLCJwIjoxZTk5LCJxIjoiIn0", 404, "unknown_cursor"),
    ],
)
def test_a_cursor_that_was_never_given_out_is_refused(
    sqlite_api: Api, path: str, cursor: str, status: int, code: str
) -> None:
    answer = sqlite_api.call("GET", f"{path}?cursor={cursor.replace(' ', '%20')}")
    assert_refused(answer, status, code, "cursor")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("limit", ["0", "1001", "-1", "1.0", "ten", "", "٣", "1e2", "9" * 30]),
        ("sequenceFrom", ["-1", "x", "", "1.5", "٣", "1" * 20, "0x10", " 1"]),
        ("sequenceTo", ["-1"]),
        ("receivedFrom", ["yesterday", "2025-02-30T00:00:00Z", "2025-01-01T00:00:00", "", "1969"]),
        ("receivedTo", ["1735689600"]),
        ("occurredFrom", ["2025-01-01"]),
        ("occurredTo", ["2025-02-30T00:00:00Z"]),
        ("tenantId", ["a\0b"]),
        ("stream", ["\0"]),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(
    sqlite_api: Api, name: str, values: list[str]
) -> None:
    for value in values:
        assert_refused(sqlite_api.get(EVENTS, **{name: value}), 400, "invalid_parameter", name)


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("colour=red", "unknown_parameter", "colour"),
        ("limit=1&limit=2", "repeated_parameter", "limit"),
        ("tenantId=%FF", "invalid_query", None),
        ("&".join(["stream"] * 65), "invalid_query", None),
    ],
)
@pytest.mark.parametrize("path", [EVENTS, REJECTS])
def test_a_query_that_makes_no_sense_is_refused(
    sqlite_api: Api, path: str, query: str, code: str, field: str | None
) -> None:
    assert_refused(sqlite_api.call("GET", f"{path}?{query}"), 400, code, field)


def test_an_event_is_found_by_its_derived_key(api: Api) -> None:
    [result] = api.accept(usage(api.tenant))
    assert api.event(result["idempotencyKey"])["ingressSequence"] == result["ingressSequence"]


@pytest.mark.parametrize("key", ["a/b", "100%", "ü?#&=", "..", ".", " ", "k" * 256, "a;b,c"])
def test_a_key_may_hold_any_character(api: Api, key: str) -> None:
    odd = Api(api.base_url, f"{api.tenant}/{key}"[:200])
    odd.accept(usage(odd.tenant, idempotencyKey=key))
    assert odd.event(key)["tenantId"] == odd.tenant
    assert [event["idempotencyKey"] for event in odd.events()] == [key]


def test_another_tenants_key_finds_nothing(api: Api) -> None:
    api.accept(usage(api.tenant, idempotencyKey="k"))
    assert_refused(api.get("/admin/events/somebody/k"), 404, "not_found")


def test_rejects_are_listed_newest_first_and_filtered(api: Api) -> None:
    tenant = api.tenant
    api.accept(usage(tenant, idempotencyKey="known"))
    api.send(usage(tenant, idempotencyKey="late", ts="2261-01-01T00:00:00Z"))
    api.send(
        usage(tenant, idempotencyKey="known", quantity="9"),
        usage(tenant, idempotencyKey="odd", quantity="?"),
    )

    def found(**query: str) -> list[str]:
        answer = api.get(REJECTS, tenantId=tenant, **query)
        return [line["idempotencyKey"] for line in answer.json["rejects"]]

    assert found() == ["odd", "known", "late"]
    assert found(code="future_timestamp") == ["late"]
    assert found(idempotencyKey="known") == ["known"]
    assert found(code="nothing") == []
    conflict = api.get(REJECTS, tenantId=tenant, code="content_conflict").json["rejects"][0]
    assert conflict["status"] == "conflict"
    assert conflict["originalSequence"] == api.event("known")["ingressSequence"]
    first = api.get(REJECTS, tenantId=tenant, limit="2").json
    assert [line["idempotencyKey"] for line in first["rejects"]] == ["odd", "known"]
    rest = api.get(REJECTS, tenantId=tenant, limit="2", cursor=first["nextCursor"]).json
    assert [line["idempotencyKey"] for line in rest["rejects"]] == ["late"]
    assert rest["nextCursor"] is None
    answer = api.get(REJECTS, tenantId=tenant, code="x", cursor=first["nextCursor"])
    assert_refused(answer, 404, "unknown_cursor", "cursor")


def test_confirming_a_clock_that_is_right_changes_nothing(api: Api) -> None:
    assert api.call("POST", "/admin/clock/confirm").json == {"status": "confirmed"}
    api.accept(usage(api.tenant))
