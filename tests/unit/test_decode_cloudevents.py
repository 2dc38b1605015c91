from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.v1.event import CloudEvent

from tests.unit.events import (
    DECODER,
    NOW_US,
    SALT,
    STREAM_EVENT,
    TRADE,
    USAGE,
    accepted,
    decode_cloudevent,
    encode,
    field,
)
from tidemark.config.model import Config, StreamConfig
from tidemark.errors import RequestError
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft, Rejection
from tidemark.ingress.identity import Identity

CONTENT = {name: value for name, value in USAGE.items() if name != "tenantId"}
NOTE = {
    "specversion": "1.0",
    "id": "n-1",
    "source": "/desk",
    "type": "notes",
    "tenantid": "t1",
    "data": {"text": "hello"},
}
USAGE_CE = {**NOTE, "type": "usage", "data": CONTENT}
TRADE_CE = {**NOTE, "type": "trades", "data": TRADE}


def draft_of(event: Any, decoder: Decoder = DECODER) -> Draft:
    entry = decode_cloudevent(event, decoder)
    assert isinstance(entry, Draft), entry
    return entry


def fault_of(event: Any, decoder: Decoder = DECODER) -> tuple[str, str | None]:
    entry = decode_cloudevent(event, decoder)
    assert isinstance(entry, Rejection), entry
    assert entry.hint
    return entry.code, entry.field


def as_plain(draft: Draft) -> Draft:
    """The draft without what tells how it came."""
    draft.source = draft.source_id = None
    return draft


def test_without_a_declared_identity_source_and_id_are_the_identity() -> None:
    draft = draft_of(NOTE)
    assert draft.idempotency_key == Identity(SALT).cloudevent_key("t1", "/desk", "n-1")
    assert (draft.source, draft.source_id) == ("/desk", "n-1")
    assert draft_of({**NOTE, "id": "n-2"}).idempotency_key != draft.idempotency_key
    assert draft_of({**NOTE, "source": "/x"}).idempotency_key != draft.idempotency_key


def test_a_cloudevent_that_carries_a_usage_event_is_that_usage_event() -> None:
    plain = accepted(USAGE)
    assert as_plain(draft_of(USAGE_CE)) == plain
    timed = {**CONTENT}
    del timed["ts"]
    assert as_plain(draft_of({**USAGE_CE, "data": timed, "time": USAGE["ts"]})) == plain
    whole = {**USAGE_CE, "data": USAGE}
    del whole["tenantid"]
    assert as_plain(draft_of(whole)) == plain


def test_the_time_of_the_usage_event_wins_over_that_of_its_envelope() -> None:
    assert as_plain(draft_of({**USAGE_CE, "time": "2020-01-01T00:00:00Z"})) == accepted(USAGE)


def test_keys_in_a_usage_event_and_in_its_envelope_mean_the_same() -> None:
    keys = {"idempotencyKey": "k", "causalityKey": "run"}
    plain = accepted({**USAGE, **keys})
    assert as_plain(draft_of({**USAGE_CE, "data": {**CONTENT, **keys}})) == plain
    outside = {"idempotencykey": "k", "causalitykey": "run"}
    assert as_plain(draft_of({**USAGE_CE, **outside})) == plain
    assert as_plain(draft_of({**USAGE_CE, **outside, "data": {**USAGE, **keys}})) == plain
    both = {**USAGE_CE, "causalitykey": "other", "data": {**CONTENT, **keys}}
    assert fault_of(both) == ("fields_disagree", "data.causalityKey")


def test_a_declared_identity_is_the_identity_by_any_transport() -> None:
    event = {**STREAM_EVENT, "occurredAt": "2026-06-01T11:00:00Z", "causalityKey": "run"}
    cloud = {**TRADE_CE, "time": "2026-06-01T13:00:00+02:00", "causalitykey": "run"}
    assert as_plain(draft_of(cloud)) == accepted(event)
    assert draft_of({**cloud, "idempotencykey": "mine"}).idempotency_key == "mine"


def test_the_tenant_is_in_the_extension_or_in_the_data() -> None:
    inside = {**TRADE_CE, "data": {**TRADE, "tenantId": "t1"}}
    assert draft_of(inside) == draft_of(TRADE_CE)
    del inside["tenantid"]
    assert draft_of(inside) == draft_of(TRADE_CE)
    differing = {**TRADE_CE, "data": {**TRADE, "tenantId": "t2"}}
    assert fault_of(differing) == ("fields_disagree", "data.tenantId")
    nowhere = {name: value for name, value in NOTE.items() if name != "tenantid"}
    assert fault_of(nowhere) == ("missing_field", "tenantid")


def test_a_stream_may_have_a_field_that_is_called_tenant_id() -> None:
    stream = StreamConfig(fields={"tenantId": field("int")})
    decoder = Decoder(Config(streams={"moves": stream}), SALT)
    draft = draft_of({**NOTE, "type": "moves", "data": {"tenantId": 7}}, decoder)
    assert (draft.tenant_id, draft.data) == ("t1", '{"tenantId":7}')


def test_other_extensions_are_ignored() -> None:
    extended = {
        **TRADE_CE,
        "traceparent": "00-4bf9-00f0-01",
        "subject": "x",
        "dataschema": "https://example.com/schema",
        "partitionkey": 5,
        "sampled": True,
    }
    assert draft_of(extended) == draft_of(TRADE_CE)


def test_null_attributes_are_absent() -> None:
    nulls = dict.fromkeys(["time", "subject", "datacontenttype", "causalitykey", "data_base64"])
    assert draft_of({**TRADE_CE, **nulls}) == draft_of(TRADE_CE)


@pytest.mark.parametrize(
    "media_type",
    ["application/json", "application/json; charset=utf-8", "text/JSON", "application/vnd.x+json"],
)
def test_data_of_any_json_type_is_read(media_type: str) -> None:
    assert draft_of({**TRADE_CE, "datacontenttype": media_type}) == draft_of(TRADE_CE)


def test_data_in_base64_is_read_if_it_is_json() -> None:
    event: dict[str, Any] = {**TRADE_CE, "data_base64": base64.b64encode(encode(TRADE)).decode()}
    del event["data"]
    assert draft_of(event) == draft_of(TRADE_CE)
    assert fault_of({**event, "data": TRADE}) == ("unsupported_data", "data_base64")
    assert fault_of({**event, "data_base64": "%%"}) == ("unsupported_data", "data_base64")
    for raw, code, path in (
        (b"\xff\xfe", "malformed_event", None),
        (b"[1]", "wrong_type", "data"),
        (b'{"trade_id":"\\u0000"}', "nul_character", "data.trade_id"),
        (b"[" * 20 + b"]" * 20, "too_deep", "data" + "[0]" * 15),
    ):
        encoded = base64.b64encode(raw).decode()
        assert fault_of({**event, "data_base64": encoded}) == (code, path)


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"specversion": None}, "missing_field", "specversion"),
        ({"specversion": "0.3"}, "unsupported_specversion", "specversion"),
        ({"id": ""}, "string_empty", "id"),
        ({"id": 5}, "wrong_type", "id"),
        ({"id": "x" * 1025}, "string_too_long", "id"),
        ({"source": None}, "missing_field", "source"),
        ({"source": ""}, "string_empty", "source"),
        ({"type": ""}, "string_empty", "type"),
        ({"type": "trade"}, "unknown_stream", "type"),
        ({"tenantid": 5}, "wrong_type", "tenantid"),
        ({"tenantid": ""}, "string_empty", "tenantid"),
        ({"time": "yesterday"}, "invalid_timestamp", "time"),
        ({"time": "2027-01-01T00:00:00Z"}, "future_timestamp", "time"),
        ({"datacontenttype": "text/xml"}, "unsupported_data", "datacontenttype"),
        ({"data": None}, "missing_field", "data"),
        ({"data": "x"}, "wrong_type", "data"),
        ({"data": {**TRADE, "side": 5}}, "wrong_type", "data.side"),
        ({"idempotencykey": ""}, "string_empty", "idempotencykey"),
        ({"causalitykey": "k" * 257}, "string_too_long", "causalitykey"),
        ({"traceparent": "\0"}, "nul_character", "traceparent"),
    ],
)
def test_a_fault_is_named_with_its_attribute(change: dict[str, Any], code: str, path: str) -> None:
    assert fault_of({**TRADE_CE, **change}) == (code, path)


def test_a_fault_in_a_usage_event_has_its_path_in_the_data() -> None:
    assert fault_of({**USAGE_CE, "data": {**CONTENT, "quantity": "x"}}) == (
        "invalid_decimal",
        "data.quantity",
    )
    untimed = {name: value for name, value in CONTENT.items() if name != "ts"}
    assert fault_of({**USAGE_CE, "data": untimed}) == ("missing_field", "data.ts")
    assert fault_of({**USAGE_CE, "data": {**CONTENT, "color": 1}}) == (
        "unknown_field",
        "data.color",
    )


def test_a_rejected_cloudevent_keeps_its_stream_and_tenant() -> None:
    entry = decode_cloudevent({**TRADE_CE, "data": {}, "idempotencykey": "k"})
    assert isinstance(entry, Rejection)
    assert (entry.tenant_id, entry.stream, entry.idempotency_key) == ("t1", "trades", "k")
    unversioned = decode_cloudevent({**TRADE_CE, "specversion": None})
    assert isinstance(unversioned, Rejection)
    assert unversioned.stream == "trades"
    versionless = decode_cloudevent({"type": "trades"})
    assert isinstance(versionless, Rejection)
    assert versionless.stream is None


def test_a_batch_is_a_list_of_cloudevents() -> None:
    body = encode([USAGE_CE, {**TRADE_CE, "specversion": "2"}, TRADE_CE, 5])
    entries = DECODER.decode_body("application/cloudevents-batch+json", body, now_us=NOW_US)
    assert [type(entry).__name__ for entry in entries] == [
        "Draft",
        "Rejection",
        "Draft",
        "Rejection",
    ]


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        ("application/cloudevents-batch+json", encode(USAGE_CE), "invalid_body"),
        ("application/cloudevents-batch+json", b"[]", "no_events"),
        ("application/cloudevents-batch+json", b"[{},]", "malformed_json"),
        ("application/cloudevents-batch+json", b"[1] 2", "malformed_json"),
        ("application/cloudevents-batch+json", encode([1] * 51), "too_many_events"),
        ("application/cloudevents+json", b"{", "malformed_json"),
        ("application/cloudevents+json", b"", "malformed_json"),
    ],
)
def test_a_body_that_is_no_cloudevents_is_refused_as_a_whole(
    content_type: str, body: bytes, code: str
) -> None:
    with pytest.raises(RequestError) as caught:
        DECODER.decode_body(content_type, body, now_us=NOW_US)
    assert caught.value.code == code


@pytest.mark.parametrize("data", [CONTENT, encode(CONTENT)], ids=["object", "bytes"])
def test_what_the_python_sdk_writes_is_read(data: Any) -> None:
    attributes = {
        "id": "e-1",
        "source": "/desk",
        "type": "usage",
        "tenantid": "t1",
        "time": datetime(2026, 6, 1, 11, 0, 0, 123456, tzinfo=UTC),
    }
    message = to_structured_event(CloudEvent(attributes, data))
    (entry,) = DECODER.decode_body(
        message.headers["content-type"], bytes(message.body), now_us=NOW_US
    )
    assert isinstance(entry, Draft)
    assert as_plain(entry) == accepted(USAGE)
