"""Whatever is sent: a 4xx, or a rejected event among neighbours that are accepted. Never a 500."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import time
from typing import Any, Final

import pytest

from tests.integration.http_client import (
    Api,
    assert_error,
    assert_refused,
    encode,
    trade,
    usage,
)
from tests.services.processes import resident_bytes
from tests.services.tidemark_server import TidemarkServer
from tidemark.errors import RequestError
from tidemark.web import messages

MAX_BODY: Final = 5 * 1024 * 1024
MAX_REFUSED_S: Final = 5.0

# What stands for the tenant in the texts below.
T: Final = "TENANT"


def text(event: dict[str, Any]) -> str:
    return json.dumps(event)


def with_data(name: str, raw: str) -> str:
    """A trade with one field replaced by raw JSON text."""
    return text(trade(T, **{name: "@"})).replace('"@"', raw)


def with_field(name: str, raw: str) -> str:
    return text(usage(T, **{name: "@"})).replace('"@"', raw)


BAD_EVENTS: Final[dict[str, tuple[str, str, str | None]]] = {
    "not an object": ("[1, 2]", "malformed_event", None),
    "null": ("null", "malformed_event", None),
    "empty object": ("{}", "missing_field", "tenantId"),
    "no tenant": (text(usage(T, tenantId=None)), "missing_field", "tenantId"),
    "unknown stream": (text({**trade(T), "stream": "traids"}), "unknown_stream", "stream"),
    "unknown field": (text(usage(T, colour="red")), "unknown_field", "colour"),
    "unknown field of data": (text(trade(T, colour="red")), "unknown_field", "data.colour"),
    "wrong type": (with_data("account", "12"), "wrong_type", "data.account"),
    "not in the enum": (text(trade(T, side="hold")), "not_in_enum", "data.side"),
    "NUL": (with_field("customerRef", r'"a\u0000b"'), "nul_character", "customerRef"),
    "NUL in a name": (with_field("meta", r'{"a\u0000": 1}'), "nul_character", "meta.a\ufffd"),
    "over-long field": (text(usage(T, metric="m" * 1025)), "string_too_long", "metric"),
    "over-long data": (text(trade(T, symbol="S" * 33)), "string_too_long", "data.symbol"),
    "empty string": (text(usage(T, customerRef="")), "string_empty", "customerRef"),
    "over-long key": (
        text(usage(T, idempotencyKey="k" * 257)),
        "string_too_long",
        "idempotencyKey",
    ),
    "NaN": (with_field("quantity", "NaN"), "not_a_number", "quantity"),
    "Infinity": (with_field("quantity", "-Infinity"), "not_a_number", "quantity"),
    "30 February": (text(usage(T, ts="2025-02-30T00:00:00Z")), "invalid_timestamp", "ts"),
    "no offset": (text(usage(T, ts="2025-02-01T00:00:00")), "timestamp_without_offset", "ts"),
    "nanoseconds": (
        text(usage(T, ts="2025-02-01T00:00:00.123456789Z")),
        "timestamp_too_precise",
        "ts",
    ),
    "the future": (text(usage(T, ts="2261-01-01T00:00:00Z")), "future_timestamp", "ts"),
    "before 1970": (text(usage(T, ts="1969-12-31T23:59:59Z")), "timestamp_out_of_range", "ts"),
    "unix time": (with_field("ts", "1735689600"), "wrong_type", "ts"),
    "lone surrogate": (with_field("customerRef", r'"\ud800"'), "invalid_unicode", "customerRef"),
    "huge number": (with_field("quantity", "9" * 30), "decimal_out_of_range", "quantity"),
    "number of 60,000 digits": (
        with_field("quantity", "9" * 60_000),
        "decimal_too_long",
        "quantity",
    ),
    "exponent bomb": (with_field("quantity", "1e999999999"), "decimal_out_of_range", "quantity"),
    "ten decimals": (with_field("quantity", "0.1234567891"), "decimal_too_precise", "quantity"),
    "deep nesting": (
        with_field("meta", '{"a":' * 17 + "1" + "}" * 17),
        "too_deep",
        None,
    ),
    "a nesting bomb": (
        with_field("meta", '{"a":' + "[" * 20_000 + "]" * 20_000 + "}"),
        "too_deep",
        None,
    ),
    "too large": (with_field("meta", '{"a": "%s"}' % ("x" * 70_000)), "event_too_large", None),
    "a CloudEvent among plain events": (
        '{"specversion": "1.0", "id": "1"}',
        "unknown_field",
        "specversion",
    ),
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_a_bad_event_is_explained_and_its_neighbours_are_accepted(api: Api, name: str) -> None:
    bad, code, field = BAD_EVENTS[name]
    bad = bad.replace(T, api.tenant)
    before, after = (encode(usage(api.tenant, customerRef=ref)) for ref in ("before", "after"))
    answer = api.post_raw(b'{"events":[%s,%s,%s]}' % (before, bad.encode(), after))
    assert answer.status == 200, answer
    first, refused, last = answer.json["results"]
    assert (first["status"], refused["status"], last["status"]) == (
        "accepted",
        "rejected",
        "accepted",
    )
    if field is None:
        field = refused["error"].get("field")
    assert_error(refused["error"], code, field)


def test_bytes_that_are_not_utf8_stay_with_their_event(api: Api) -> None:
    good = encode(usage(api.tenant))
    bad = encode(usage(api.tenant, customerRef="@")).replace(b"@", b"\xff\xfe")
    answer = api.post_raw(b'{"events":[%s,%s]}' % (bad, good))
    refused, accepted = answer.json["results"]
    assert_error(refused["error"], "invalid_unicode", "customerRef")
    assert accepted["status"] == "accepted"


def test_an_undeclared_stream_is_answered_with_the_nearest_names(api: Api) -> None:
    [refused] = api.send({**trade(api.tenant), "stream": "trade"})
    assert "trades" in refused["error"]["hint"]
    assert '"trade"' in refused["error"]["message"]


def test_what_was_rejected_can_be_looked_up(api: Api) -> None:
    [refused] = api.send(usage(api.tenant, ts="yesterday", idempotencyKey="lost"))
    answer = api.get("/admin/rejects", tenantId=api.tenant)
    [line] = answer.json["rejects"]
    assert line["error"] == refused["error"]
    assert (line["status"], line["idempotencyKey"], line["position"]) == ("rejected", "lost", 0)
    assert json.loads(line["body"])["ts"] == "yesterday"


BAD_BODIES: Final[dict[str, tuple[bytes, str]]] = {
    "nothing": (b"", "malformed_json"),
    "white space": (b"  \n", "malformed_json"),
    "cut off": (b'{"events": [{"tenantId": "a"', "malformed_json"),
    "trailing comma": (b'{"events": [],}', "malformed_json"),
    "two documents": (b'{"events": [1]}{"events": [2]}', "malformed_json"),
    "XML": (b"<events/>", "malformed_json"),
    "an array": (b"[]", "invalid_body"),
    "a string": (b'"events"', "invalid_body"),
    "null": (b"null", "invalid_body"),
    "no events field": (b"{}", "invalid_body"),
    "events is an object": (b'{"events": {}}', "invalid_body"),
    "another field": (b'{"events": [1], "more": 1}', "invalid_body"),
    "events twice": (b'{"events": [1], "events": [2]}', "invalid_body"),
    "no events": (b'{"events": []}', "no_events"),
    "UTF-16": ('{"events": [1]}'.encode("utf-16"), "not_utf8"),
    "Latin-1 outside of events": (b'{"\xe4": [1]}', "invalid_body"),
    "compressed without saying so": (gzip.compress(b'{"events": [1]}'), "not_utf8"),
    "opening brackets": (b"[" * 1_000_000, "malformed_json"),
    "opening braces": (b'{"a":' * 200_000, "too_deep"),
    "a nested body": (b"[" * 100_000 + b"]" * 100_000, "invalid_body"),
    "an alternating bomb": (b'{"events":[' + b"[{}," * 150_000 + b"1]", "too_deep"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_refused_as_a_whole(sqlite_api: Api, name: str) -> None:
    body, code = BAD_BODIES[name]
    started = time.monotonic()
    answer = sqlite_api.post_raw(body)
    assert answer.status == 400, answer
    assert answer.error["code"] == code, answer
    assert answer.error["message"]
    assert answer.error["hint"]
    assert time.monotonic() - started < MAX_REFUSED_S


@pytest.mark.parametrize(
    ("headers", "code", "field"),
    [
        ({"Content-Type": "text/plain"}, "unsupported_media_type", "content-type"),
        ({"Content-Type": "application/xml"}, "unsupported_media_type", "content-type"),
        ({"Content-Type": "application/json; charset=utf-16"}, "unsupported_media_type",
         "content-type"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "unsupported_media_type",
         "content-type"),
        ({"Content-Encoding": "gzip"}, "unsupported_content_encoding", "content-encoding"),
        ({"Content-Encoding": "br"}, "unsupported_content_encoding", "content-encoding"),
        ({"Ce-Specversion": "1.0"}, "cloudevents_binary_mode", "content-type"),
    ],
)  # fmt: skip
def test_a_form_that_is_not_read_is_refused(
    sqlite_api: Api, headers: dict[str, str], code: str, field: str
) -> None:
    body = encode({"events": [usage(sqlite_api.tenant)]})
    if headers.get("Content-Encoding") == "gzip":
        body = gzip.compress(body)
    answer = sqlite_api.call("POST", "/v1/events", body=body, headers=headers)
    assert_refused(answer, 415, code, field)


def test_a_thousand_and_one_events_are_too_many(sqlite_api: Api) -> None:
    events = [usage(sqlite_api.tenant, resourceId=str(n)) for n in range(1001)]
    assert_refused(sqlite_api.post(*events), 413, "too_many_events")
    assert sqlite_api.events() == []
    answer = sqlite_api.post_raw(encode([1] * 1001), "application/cloudevents-batch+json")
    assert_refused(answer, 413, "too_many_events")


def padded(api: Api, size: int) -> bytes:
    """A good request of exactly so many bytes."""
    body = encode({"events": [usage(api.tenant)]})
    return body + b" " * (size - len(body))


def test_five_mebibytes_are_accepted_and_one_more_byte_is_not(sqlite_api: Api) -> None:
    assert sqlite_api.post_raw(padded(sqlite_api, MAX_BODY)).json["accepted"] == 1
    answer = sqlite_api.post_raw(padded(sqlite_api, MAX_BODY + 1))
    assert_refused(answer, 413, "body_too_large")
    assert str(MAX_BODY) in answer.error["hint"]


def test_a_body_in_chunks_is_bounded_all_the_same(sqlite_api: Api) -> None:
    body = padded(sqlite_api, MAX_BODY + 1)
    chunks = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    answer = sqlite_api.call("POST", "/v1/events", body=chunks)
    assert_refused(answer, 413, "body_too_large")


def test_a_body_of_100_megabytes_is_refused_before_it_is_sent(
    sqlite_server: TidemarkServer,
) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sqlite_server.port), timeout=30) as connection:
        connection.sendall(head)
        answer = b""
        # The head and the body of an answer may come apart.
        while not answer.endswith(b"}") and (part := connection.recv(4096)):
            answer += part
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"body_too_large" in answer
        assert b"connection: close" in answer


@pytest.mark.parametrize("chunked", [False, True])
def test_who_goes_on_sending_after_the_refusal_is_cut_off(
    sqlite_server: TidemarkServer, chunked: bool
) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100000000"
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % framing
    piece = b"x" * 1_000_000
    if chunked:
        piece = b"%x\r\n%s\r\n" % (len(piece), piece)
    before = resident_bytes(sqlite_server.pid)
    sent = 0
    with socket.create_connection(("127.0.0.1", sqlite_server.port), timeout=30) as connection:
        connection.sendall(head)
        try:
            while sent < 100_000_000:
                connection.sendall(piece)
                sent += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert sent < 50_000_000
    assert resident_bytes(sqlite_server.pid) - before < 40_000_000


async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def receive() -> Any:
        await asyncio.sleep(30)

    monkeypatch.setattr(messages, "BODY_TIMEOUT_S", 0.05)
    request = messages.Request({"headers": [(b"content-length", b"10")]}, receive)
    with pytest.raises(RequestError) as caught:
        await request.body(100)
    assert (caught.value.status, caught.value.code) == (408, "body_timeout")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/events", "POST"),
        ("PUT", "/v1/events", "POST"),
        ("HEAD", "/v1/events", "POST"),
        ("OPTIONS", "/v1/events", "POST"),
        ("DELETE", "/admin/events", "GET, HEAD"),
        ("PATCH", "/admin/events/a/b", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("TRACE", "/metrics", "GET, HEAD"),
    ],
)
def test_another_method_is_answered_with_those_there_are(
    sqlite_api: Api, method: str, path: str, allow: str
) -> None:
    answer = sqlite_api.call(method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    if method != "HEAD":
        assert_refused(answer, 405, "method_not_allowed")


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/admin/events"]
)
def test_head_is_get_without_the_body(sqlite_api: Api, path: str) -> None:
    answer = sqlite_api.call("HEAD", path)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"] == sqlite_api.get(path).headers["content-type"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v2/events", 404, "not_found"),
        ("/admin/events/", 404, "not_found"),
        ("/admin/events/a/b/c", 404, "not_found"),
        ("/admin/events/nobody/nothing", 404, "not_found"),
        ("/admin/events/a%00/b", 400, "invalid_path"),
        ("/admin/events/a/%FF", 400, "invalid_path"),
        ("/admin/events/%ED%A0%80/b", 400, "invalid_path"),
        ("/admin/events/tail", 426, "websocket_only"),
        ("//evil.example/docs", 404, "not_found"),
        ("/../etc/passwd", 404, "not_found"),
    ],
)
def test_a_path_that_leads_nowhere_is_said_so(
    sqlite_api: Api, path: str, status: int, code: str
) -> None:
    assert_refused(sqlite_api.get(path), status, code)


def test_a_parameter_of_the_query_that_is_not_known_is_refused(sqlite_api: Api) -> None:
    answer = sqlite_api.call("POST", "/v1/events?dry=1", json={"events": [1]})
    assert_refused(answer, 400, "unknown_parameter", "dry")


def test_what_is_no_http_at_all_does_no_harm(sqlite_server: TidemarkServer) -> None:
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 100, b"{}\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", sqlite_server.port), timeout=30) as connection:
            connection.sendall(noise)
            assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_leaves_in_the_middle_does_no_harm(
    sqlite_server: TidemarkServer, sqlite_api: Api
) -> None:
    body = encode({"events": [usage(sqlite_api.tenant)]})
    head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    for cut in (len(head) // 2, len(head), len(head) + len(body) // 2):
        with socket.create_connection(("127.0.0.1", sqlite_server.port), timeout=30) as connection:
            connection.sendall((head + body)[:cut])
    assert sqlite_api.events() == []
    sqlite_api.accept(usage(sqlite_api.tenant))
