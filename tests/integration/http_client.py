"""The HTTP interface as a test speaks to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from tests.services.http_calls import Answer, call

TS: Final = "2025-01-31T12:00:00Z"
ERROR_FIELDS: Final = {"code", "message", "hint", "field"}


def usage(tenant: str, **changes: Any) -> dict[str, Any]:
    """A usage event; a change to None takes the field away."""
    event = {
        "tenantId": tenant,
        "metric": "api_calls",
        "customerRef": "cus_42",
        "ts": TS,
        "quantity": "1.5",
        **changes,
    }
    return {name: value for name, value in event.items() if value is not None}


def trade(tenant: str, trade_id: str = "t-1", **changes: Any) -> dict[str, Any]:
    """An event of the stream `trades`; changes are to its data."""
    data = {
        "trade_id": trade_id,
        "account": "a1",
        "symbol": "TIDE",
        "side": "buy",
        "quantity": "100",
        "price": 12.5,
        "executed_at": TS,
        **changes,
    }
    data = {name: value for name, value in data.items() if value is not None}
    return {"stream": "trades", "tenantId": tenant, "data": data}


class Api:
    """Calls for one tenant, with one API key if there is one."""

    def __init__(self, base_url: str, tenant: str, key: str | None = None) -> None:
        self.base_url = base_url
        self.tenant = tenant
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, **options: Any) -> Answer:
        headers: Mapping[str, str] = {**self.headers, **options.pop("headers", {})}
        return call(self.base_url, method, path, headers=headers, **options)

    def get(self, path: str, **query: str) -> Answer:
        return self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, *events: Any, **headers: str) -> Answer:
        return self.call("POST", "/v1/events", json={"events": events}, headers=headers)

    def post_raw(self, body: bytes, content_type: str | None = "application/json") -> Answer:
        headers = {} if content_type is None else {"Content-Type": content_type}
        return self.call("POST", "/v1/events", body=body, headers=headers)

    def send(self, *events: Any) -> list[dict[str, Any]]:
        """The results of a request that is not refused."""
        answer = self.post(*events)
        assert answer.status == 200, answer
        results: list[dict[str, Any]] = answer.json["results"]
        assert len(results) == len(events)
        return results

    def accept(self, *events: Any) -> list[dict[str, Any]]:
        """The results of events that are all new."""
        results = self.send(*events)
        assert {result["status"] for result in results} == {"accepted"}, results
        return results

    def event(self, key: str) -> dict[str, Any]:
        answer = self.get(f"/admin/events/{quote(self.tenant, safe='')}/{quote(key, safe='')}")
        assert answer.status == 200, answer
        event: dict[str, Any] = answer.json
        return event

    def events(self, **query: str) -> list[dict[str, Any]]:
        """All events of the tenant that a listing gives, page by page."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = self.get("/admin/events", **{"tenantId": self.tenant, **query, **cursor})
            assert answer.status == 200, answer
            found += answer.json["events"]
            if answer.json["nextCursor"] is None:
                return found
            cursor = {"cursor": answer.json["nextCursor"]}


def assert_error(error: Mapping[str, Any], code: str, field: str | None = None) -> None:
    """The one shape of an error: who, what, and what to do."""
    assert error["code"] == code, error
    assert error.get("field") == field, error
    assert set(error) <= ERROR_FIELDS
    assert error["message"], error
    assert error["hint"], error


def assert_refused(answer: Answer, status: int, code: str, field: str | None = None) -> None:
    """A request that is refused as a whole."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"error", "requestId"}
    assert answer.json["requestId"]
    assert_error(answer.error, code, field)


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()
