from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.events import (
    DECODER,
    NOW_US,
    SALT,
    STREAM_EVENT,
    TRADE,
    a_config,
    accepted,
    decode,
    rejected,
)
from tidemark.canonical import Number, content_hash
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft, Rejection
from tidemark.ingress.identity import Identity
from tidemark.timestamps import parse_timestamp

IDENTITY = Identity(SALT)


def everything(**data: Any) -> dict[str, Any]:
    return {"stream": "everything", "tenantId": "t1", "data": data}


def test_a_stream_event_becomes_a_draft_with_normal_values() -> None:
    draft = accepted({**STREAM_EVENT, "occurredAt": "2026-06-01T11:00:00Z", "source": "desk"})
    data = (
        '{"account":"a1","executed_at":"2026-06-01T09:00:00.000000Z","price":"12.5",'
        '"quantity":"100","side":"buy","trade_id":"x-1"}'
    )
    assert draft == Draft(
        tenant_id="t1",
        stream="trades",
        idempotency_key=IDENTITY.stream_key("t1", "trades", ["x-1"]),
        content_hash=content_hash(
            {
                "data": json.loads(data),
                "occurredAt": "2026-06-01T11:00:00.000000Z",
                "stream": "trades",
                "tenantId": "t1",
            }
        ),
        occurred_at=parse_timestamp("2026-06-01T11:00:00Z"),
        data=data,
        source="desk",
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("a_string", "", '""'),
        ("a_string", "é\n", '"é\\n"'),
        ("a_int", 5, "5"),
        ("a_int", 5.0, "5"),
        ("a_int", -0.0, "0"),
        ("a_int", -(2**31), "-2147483648"),
        ("a_bigint", 2**53 + 1, '"9007199254740993"'),
        ("a_bigint", "9223372036854775807", '"9223372036854775807"'),
        ("a_bigint", "-0", '"0"'),
        ("a_bigint", "1e3", '"1000"'),
        ("a_decimal", 1.50, '"1.5"'),
        ("a_decimal", "-0.0", '"0"'),
        ("a_decimal", "1e-9", '"0.000000001"'),
        ("a_boolean", False, "false"),
        ("a_timestamp", "2025-01-01T01:00:00+01:00", '"2025-01-01T00:00:00.000000Z"'),
        ("a_timestamp", "2025-01-01T00:00:00.1234569Z", '"2025-01-01T00:00:00.123456Z"'),
        ("a_json", {"b": 1.0, "a": [None, 1e2]}, '{"a":[null,100],"b":1}'),
        ("a_json", "text", '"text"'),
        ("a_json", False, "false"),
        ("a_enum", "high", '"high"'),
    ],
)
def test_each_type_has_its_normal_form(name: str, value: Any, expected: str) -> None:
    assert accepted(everything(**{name: value})).data == f'{{"{name}":{expected}}}'


def test_absent_and_null_are_the_same_for_an_optional_field() -> None:
    nothing = accepted(everything())
    assert nothing.data == "{}"
    names = ("string", "int", "bigint", "decimal", "boolean", "timestamp", "json", "enum")
    for name in names:
        assert accepted(everything(**{f"a_{name}": None})) == nothing


def test_the_identity_is_made_of_normal_values() -> None:
    draft = accepted(everything(a_decimal=1.50, a_json={"b": 1, "a": 2.0}))
    key = IDENTITY.stream_key("t1", "everything", [None, "1.5", {"a": 2, "b": 1}])
    assert draft.idempotency_key == key
    assert accepted(everything(a_decimal="1.5", a_json={"a": 2, "b": 1.0})) == draft


@pytest.mark.parametrize(
    ("data", "code", "path"),
    [
        ({"a_string": 1}, "wrong_type", "data.a_string"),
        ({"a_string": "x" * 1025}, "string_too_long", "data.a_string"),
        ({"a_string": "\0"}, "nul_character", "data.a_string"),
        ({"a_int": "5"}, "wrong_type", "data.a_int"),
        ({"a_int": 1.5}, "not_an_integer", "data.a_int"),
        ({"a_int": 2**31}, "int_out_of_range", "data.a_int"),
        ({"a_int": True}, "wrong_type", "data.a_int"),
        ({"a_bigint": 2**63}, "int_out_of_range", "data.a_bigint"),
        ({"a_bigint": "five"}, "invalid_decimal", "data.a_bigint"),
        ({"a_bigint": []}, "wrong_type", "data.a_bigint"),
        ({"a_decimal": "1.0000000001"}, "decimal_too_precise", "data.a_decimal"),
        ({"a_decimal": {}}, "wrong_type", "data.a_decimal"),
        ({"a_boolean": 1}, "wrong_type", "data.a_boolean"),
        ({"a_boolean": "true"}, "wrong_type", "data.a_boolean"),
        ({"a_timestamp": 1}, "wrong_type", "data.a_timestamp"),
        ({"a_timestamp": "2025-01-01"}, "invalid_timestamp", "data.a_timestamp"),
        ({"a_enum": "middle"}, "not_in_enum", "data.a_enum"),
        ({"a_enum": 1}, "wrong_type", "data.a_enum"),
        ({"a_json": {"x": ["\ud800"]}}, "invalid_unicode", "data.a_json.x[0]"),
        ({"a_json": [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]}, "too_deep", "data.a_json" + "[0]" * 14),
        ({"a_strin": "x"}, "unknown_field", "data.a_strin"),
    ],
)
def test_a_fault_in_the_data_is_named_with_its_path(
    data: dict[str, Any], code: str, path: str
) -> None:
    assert rejected(everything(**data)) == (code, path)


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"tenantId": None}, "missing_field", "tenantId"),
        ({"data": None}, "missing_field", "data"),
        ({"data": []}, "wrong_type", "data"),
        ({"stream": 5}, "wrong_type", "stream"),
        ({"stream": ""}, "string_empty", "stream"),
        ({"stream": "trade"}, "unknown_stream", "stream"),
        ({"metric": "m"}, "unknown_field", "metric"),
        ({"ts": "2025-01-01T00:00:00Z"}, "unknown_field", "ts"),
        ({"ocurredAt": "2025-01-01T00:00:00Z"}, "unknown_field", "ocurredAt"),
        ({"occurredAt": 5}, "wrong_type", "occurredAt"),
        ({"occurredAt": "2026-06-01T13:00:00.000001Z"}, "future_timestamp", "occurredAt"),
        ({"occurredAt": "2025-01-01T00:00:00.1234567Z"}, "timestamp_too_precise", "occurredAt"),
        ({"idempotencyKey": ""}, "string_empty", "idempotencyKey"),
        ({"data": {**TRADE, "trade_id": "x" * 41}}, "string_too_long", "data.trade_id"),
        ({"data": {**TRADE, "side": None}}, "missing_field", "data.side"),
        ({"data": {**TRADE, "side": "BUY"}}, "not_in_enum", "data.side"),
        ({"data": {**TRADE, "executed_at": "2025-01-01T00:00:00.1234567Z"}},
         "timestamp_too_precise", "data.executed_at"),
    ],
)  # fmt: skip
def test_a_fault_in_the_envelope_is_named_with_its_field(
    change: dict[str, Any], code: str, path: str
) -> None:
    assert rejected({**STREAM_EVENT, **change}) == (code, path)


def test_an_undeclared_stream_is_rejected_with_the_nearest_declared_names() -> None:
    entry = decode({**STREAM_EVENT, "stream": "trade"})
    assert isinstance(entry, Rejection)
    assert "`trades`" in entry.hint
    assert entry.stream == "trade"


def test_a_time_of_the_data_may_lie_in_the_future() -> None:
    data = {**TRADE, "executed_at": "2199-01-01T00:00:00Z"}
    assert accepted({**STREAM_EVENT, "data": data}).occurred_at is None


def test_a_stream_without_identity_needs_a_key() -> None:
    event = {"stream": "notes", "tenantId": "t1", "data": {"text": "hello"}}
    entry = decode(event)
    assert isinstance(entry, Rejection)
    assert (entry.code, entry.field) == ("idempotency_key_required", "idempotencyKey")
    assert "`idempotencyKey`" in entry.hint
    assert "`identity`" in entry.hint
    assert accepted({**event, "idempotencyKey": "n-1"}).idempotency_key == "n-1"


def test_a_time_that_the_server_fills_in_is_not_content() -> None:
    one = DECODER.decode_event(json.dumps(STREAM_EVENT).encode(), now_us=NOW_US)
    later = DECODER.decode_event(json.dumps(STREAM_EVENT).encode(), now_us=NOW_US + 10**9)
    assert one == later
    timed = accepted({**STREAM_EVENT, "occurredAt": "2026-06-01T11:00:00Z"})
    assert isinstance(one, Draft)
    assert timed.content_hash != one.content_hash
    assert timed.idempotency_key == one.idempotency_key


def test_a_number_in_free_json_is_content_exactly() -> None:
    one = accepted(everything(a_json=0.1))
    assert one.content_hash == content_hash(
        {
            "data": {"a_json": Number("0.1")},
            "stream": "everything",
            "tenantId": "t1",
        }
    )
    raw = json.dumps(everything(a_json=0)).encode().replace(b"0}", b"0.1000000000000000055511151}")
    assert accepted(raw).content_hash != one.content_hash


@pytest.mark.parametrize("max_json_depth", [1, 2])
def test_the_data_itself_counts_as_a_level(max_json_depth: int) -> None:
    decoder = Decoder(a_config(max_json_depth=max_json_depth), SALT)
    entry = decode(STREAM_EVENT, decoder)
    assert isinstance(entry, Draft if max_json_depth == 2 else Rejection)
