from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.events import DECODER, NOW_US, SALT, USAGE, a_config, accepted, field, rejected
from tidemark.canonical import Number, content_hash
from tidemark.config.model import Config, StreamConfig
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft, Rejection
from tidemark.timestamps import format_timestamp, parse_timestamp


def without(name: str, event: dict[str, Any] | None = None) -> dict[str, Any]:
    return {key: value for key, value in (event or USAGE).items() if key != name}


def test_a_usage_event_becomes_a_draft_with_normal_values() -> None:
    draft = accepted(
        {
            **USAGE,
            "ts": "2026-06-01T13:00:00.5+02:00",
            "quantity": "01.50".lstrip("0"),
            "resourceId": "r1",
            "meta": {"b": 1.0, "a": "x"},
            "causalityKey": "run-7",
            "source": "gateway",
        }
    )
    assert draft == Draft(
        tenant_id="t1",
        stream="usage",
        idempotency_key=draft.idempotency_key,
        content_hash=draft.content_hash,
        occurred_at=parse_timestamp("2026-06-01T11:00:00.5Z"),
        metric="api_calls",
        customer_ref="c1",
        resource_id="r1",
        quantity="1.5",
        data='{"a":"x","b":1}',
        causality_key="run-7",
        source="gateway",
    )


def test_the_content_hash_is_that_of_the_documented_form() -> None:
    draft = accepted({**USAGE, "resourceId": "", "meta": {"k": [1.50]}, "causalityKey": "run-7"})
    assert draft.content_hash == content_hash(
        {
            "causalityKey": "run-7",
            "data": {
                "customerRef": "c1",
                "meta": {"k": [Number("1.5")]},
                "metric": "api_calls",
                "quantity": "1.5",
                "resourceId": "",
            },
            "occurredAt": "2026-06-01T11:00:00.000000Z",
            "stream": "usage",
            "tenantId": "t1",
        }
    )


@pytest.mark.parametrize("quantity", [0, -3, "0", "-3.5", 1e3, "1e3", 12.000000001, 1.0])
def test_zero_negative_and_exponents_are_quantities(quantity: Any) -> None:
    assert accepted({**USAGE, "quantity": quantity}).quantity is not None


def test_spelling_is_not_content() -> None:
    one = accepted({**USAGE, "quantity": 1, "meta": {"x": 1, "y": {"b": 2, "a": "2026"}}})
    for other in (
        {**USAGE, "quantity": "1.00", "meta": {"y": {"a": "2026", "b": 2.0}, "x": 1}},
        {**USAGE, "quantity": 1.0, "meta": {"x": 1.0, "y": {"b": 2, "a": "2026"}}},
        {
            **USAGE,
            "quantity": "1e0",
            "ts": "2026-06-01T13:00:00.000+02:00",
            "meta": {"x": 1, "y": {"b": 2, "a": "2026"}},
            "resourceId": None,
            "causalityKey": None,
        },
        {"stream": "usage", "tenantId": "t1", "data": {**without("tenantId"), "quantity": 1,
         "meta": {"x": 1, "y": {"b": 2, "a": "2026"}}}},
    ):  # fmt: skip
        draft = accepted(other)
        assert draft.content_hash == one.content_hash
        assert draft.idempotency_key == one.idempotency_key


def test_a_key_and_a_source_are_not_content() -> None:
    plain = accepted(USAGE)
    assert accepted({**USAGE, "source": "elsewhere"}).content_hash == plain.content_hash
    assert accepted({**USAGE, "idempotencyKey": "k"}).content_hash == plain.content_hash


@pytest.mark.parametrize(
    "change",
    [
        {"tenantId": "t2"},
        {"metric": "bytes"},
        {"customerRef": "c2"},
        {"resourceId": ""},
        {"ts": "2026-06-01T11:00:00.000001Z"},
        {"quantity": "1.500000001"},
        {"meta": {"a": None}},
        {"meta": {"a": "1"}},
        {"causalityKey": "run-7"},
    ],
)
def test_any_change_of_a_value_changes_the_content(change: dict[str, Any]) -> None:
    assert accepted({**USAGE, **change}).content_hash != accepted(USAGE).content_hash


@pytest.mark.parametrize("meta", [None, {}])
def test_no_meta_and_an_empty_one_are_the_same(meta: Any) -> None:
    draft = accepted({**USAGE, "meta": meta})
    assert draft.data is None
    assert draft == accepted(USAGE)


def test_the_time_may_be_left_out_when_the_client_gives_the_key() -> None:
    draft = accepted({**without("ts"), "idempotencyKey": "k-1"})
    assert draft.occurred_at is None
    assert draft.idempotency_key == "k-1"
    assert rejected(without("ts")) == ("missing_field", "ts")


def test_an_event_that_names_the_usage_stream_has_its_content_in_data() -> None:
    plain = accepted({**USAGE, "meta": {"a": 1}})
    data = {**without("tenantId"), "meta": {"a": 1}}
    named = {"stream": "usage", "tenantId": "t1", "data": data}
    assert accepted(named) == plain
    moved = {**named, "occurredAt": USAGE["ts"], "data": without("ts", data)}
    assert accepted(moved) == plain
    assert rejected({**USAGE, "stream": "usage"}) == ("unknown_field", "metric")
    wrong = {**named, "data": {**data, "quantity": "x"}}
    assert rejected(wrong) == ("invalid_decimal", "data.quantity")


@pytest.mark.parametrize(
    ("change", "code", "path"),
    [
        ({"tenantID": "t1"}, "unknown_field", "tenantID"),
        ({"tenantId": None}, "missing_field", "tenantId"),
        ({"tenantId": ""}, "string_empty", "tenantId"),
        ({"tenantId": 5}, "wrong_type", "tenantId"),
        ({"tenantId": "t" * 1025}, "string_too_long", "tenantId"),
        ({"metric": None}, "missing_field", "metric"),
        ({"metric": ""}, "string_empty", "metric"),
        ({"metric": ["m"]}, "wrong_type", "metric"),
        ({"customerRef": ""}, "string_empty", "customerRef"),
        ({"customerRef": True}, "wrong_type", "customerRef"),
        ({"customerRef": "c\0"}, "nul_character", "customerRef"),
        ({"customerRef": "\ud800"}, "invalid_unicode", "customerRef"),
        ({"resourceId": 1}, "wrong_type", "resourceId"),
        ({"resourceId": "r" * 1025}, "string_too_long", "resourceId"),
        ({"ts": 1735689600}, "wrong_type", "ts"),
        ({"ts": "2025-02-30T00:00:00Z"}, "invalid_timestamp", "ts"),
        ({"ts": "2025-01-01T00:00:00"}, "timestamp_without_offset", "ts"),
        ({"ts": "2025-01-01T00:00:00.1234567Z"}, "timestamp_too_precise", "ts"),
        ({"ts": "1969-01-01T00:00:00Z"}, "timestamp_out_of_range", "ts"),
        ({"quantity": None}, "missing_field", "quantity"),
        ({"quantity": True}, "wrong_type", "quantity"),
        ({"quantity": []}, "wrong_type", "quantity"),
        ({"quantity": "many"}, "invalid_decimal", "quantity"),
        ({"quantity": "1e19"}, "decimal_out_of_range", "quantity"),
        ({"quantity": 1e19}, "decimal_out_of_range", "quantity"),
        ({"quantity": "0.0000000001"}, "decimal_too_precise", "quantity"),
        ({"quantity": "9" * 500}, "decimal_too_long", "quantity"),
        ({"quantity": float("nan")}, "not_a_number", "quantity"),
        ({"quantity": float("-inf")}, "not_a_number", "quantity"),
        ({"meta": []}, "wrong_type", "meta"),
        ({"meta": "x"}, "wrong_type", "meta"),
        ({"meta": {"a": {"b": "\0"}}}, "nul_character", "meta.a.b"),
        ({"meta": {"a": ["x", "\udfff"]}}, "invalid_unicode", "meta.a[1]"),
        ({"meta": {"a\0": 1}}, "nul_character", "meta.a\ufffd"),
        ({"meta": {"\ud800": 1}}, "invalid_unicode", "meta.?"),
        ({"meta": {"a": float("nan")}}, "not_a_number", "meta.a"),
        ({"meta": {"a": 10**400}}, "decimal_too_long", "meta.a"),
        ({"causalityKey": ""}, "string_empty", "causalityKey"),
        ({"causalityKey": "k" * 257}, "string_too_long", "causalityKey"),
        ({"idempotencyKey": ""}, "string_empty", "idempotencyKey"),
        ({"idempotencyKey": "k" * 257}, "string_too_long", "idempotencyKey"),
        ({"idempotencyKey": 7}, "wrong_type", "idempotencyKey"),
        ({"source": ""}, "string_empty", "source"),
        ({"source": "s" * 1025}, "string_too_long", "source"),
        ({"data": {}}, "missing_field", "stream"),
        ({"specversion": "1.0"}, "unknown_field", "specversion"),
        ({"occurredAt": "2025-01-01T00:00:00Z"}, "unknown_field", "occurredAt"),
    ],
)
def test_a_fault_is_named_with_its_field(change: dict[str, Any], code: str, path: str) -> None:
    assert rejected({**USAGE, **change}) == (code, path)


@pytest.mark.parametrize(
    ("literal", "code", "path"),
    [
        (b"1e999999999", "decimal_out_of_range", "meta.a"),
        (b"1e-500", "decimal_out_of_range", "meta.a"),
        (b"[0,{" + b'"b":1e401}]', "decimal_out_of_range", "meta.a[1].b"),
        (b"1" * 5000, "decimal_too_long", "meta.a"),
        (b"[" * 15 + b"]" * 15, "too_deep", "meta.a" + "[0]" * 14),
        (b'"\xff"', "invalid_unicode", "meta.a"),
        (b'"\xed\xa0\x80"', "invalid_unicode", "meta.a"),
    ],
)
def test_a_fault_in_free_json_has_its_path(literal: bytes, code: str, path: str) -> None:
    start = json.dumps(USAGE).encode()[:-1]
    assert rejected(start + b', "meta": {"a": ' + literal + b"}}") == (code, path)


def test_nesting_beyond_what_a_parser_can_follow_is_too_deep() -> None:
    bomb = b"[" * 30_000 + b"]" * 30_000
    event = json.dumps(USAGE).encode()[:-1] + b', "meta": {"a": ' + bomb + b"}}"
    assert rejected(event)[0] == "too_deep"


def test_nesting_is_allowed_up_to_the_limit() -> None:
    deep: Any = "x"
    for _ in range(14):
        deep = [deep]
    assert accepted({**USAGE, "meta": {"a": deep}}).data == '{"a":' + json.dumps(deep) + "}"
    assert rejected({**USAGE, "meta": {"a": [deep]}})[0] == "too_deep"


def test_an_exponent_cannot_blow_up_what_is_stored() -> None:
    small = b",".join([b"1e308"] * 8000)
    event = json.dumps(USAGE).encode()[:-1] + b', "meta": {"a": [' + small + b"]}}"
    assert len(event) < 65_536
    assert rejected(event) == ("event_too_large", "meta")


def test_an_event_beyond_the_size_limit_is_rejected_before_it_is_read() -> None:
    assert rejected({**USAGE, "meta": {"a": "x" * 65_536}}) == ("event_too_large", None)


def test_other_control_characters_are_fine() -> None:
    assert accepted({**USAGE, "customerRef": "a\tb\u0001\u007f"}).customer_ref == "a\tb\x01\x7f"


def test_the_future_begins_after_the_limit() -> None:
    limit = NOW_US + 3_600_000_000
    assert accepted({**USAGE, "ts": format_timestamp(limit)}).occurred_at == limit
    late = {**USAGE, "ts": format_timestamp(limit + 1)}
    assert rejected(late) == ("future_timestamp", "ts")
    patient = Decoder(a_config(future_limit_us=2 * 3_600_000_000), SALT)
    assert accepted(late, patient).occurred_at == limit + 1


def test_a_misspelled_field_is_rejected_with_the_right_name() -> None:
    entry = DECODER.decode_event(
        json.dumps({**without("customerRef"), "customer_ref": "c"}).encode(), now_us=NOW_US
    )
    assert isinstance(entry, Rejection)
    assert "customerRef" in entry.hint


def test_a_rejection_keeps_what_is_needed_to_explain_it() -> None:
    event = {**USAGE, "quantity": "x", "idempotencyKey": "k1"}
    raw = json.dumps(event).encode()
    entry = DECODER.decode_event(raw, now_us=NOW_US)
    assert isinstance(entry, Rejection)
    assert (entry.tenant_id, entry.stream, entry.idempotency_key) == ("t1", "usage", "k1")
    assert entry.body == raw.decode()


def test_a_rejection_can_always_be_stored_and_sent() -> None:
    name = "\ud800\0" + "x" * 5000
    entry = DECODER.decode_event(
        json.dumps({**USAGE, "tenantId": "\ud800", name: 1}).encode() + b"\xff\0" * 3000,
        now_us=NOW_US,
    )
    assert isinstance(entry, Rejection)
    assert entry.tenant_id is None
    assert len(entry.body) == 4096
    for text in (entry.message, entry.hint, entry.field or "", entry.body):
        assert "\0" not in text
        text.encode()


def test_a_closed_list_of_metrics_is_closed() -> None:
    config = Config(streams={"usage": StreamConfig(kind="usage", metrics=["api_calls", "bytes"])})
    decoder = Decoder(config, SALT)
    assert accepted(USAGE, decoder).metric == "api_calls"
    entry = decoder.decode_event(json.dumps({**USAGE, "metric": "byte"}).encode(), now_us=NOW_US)
    assert isinstance(entry, Rejection)
    assert (entry.code, entry.field) == ("unknown_metric", "metric")
    assert "`bytes`" in entry.hint


def test_meta_with_declared_fields_is_checked_like_data() -> None:
    fields = {"region": field("string"), "cost": field("decimal", required=False)}
    config = Config(streams={"usage": StreamConfig(kind="usage", fields=fields)})
    decoder = Decoder(config, SALT)
    draft = accepted({**USAGE, "meta": {"region": "eu", "cost": 1.50}}, decoder)
    assert draft.data == '{"cost":"1.5","region":"eu"}'
    assert rejected(USAGE, decoder) == ("missing_field", "meta.region")
    assert rejected({**USAGE, "meta": {"region": 1}}, decoder) == ("wrong_type", "meta.region")
    wrong = {**USAGE, "meta": {"region": "eu", "regoin": "eu"}}
    assert rejected(wrong, decoder) == ("unknown_field", "meta.regoin")


def test_meta_with_optional_fields_may_be_absent() -> None:
    fields = {"region": field("string", required=False)}
    config = Config(streams={"usage": StreamConfig(kind="usage", fields=fields)})
    decoder = Decoder(config, SALT)
    assert accepted(USAGE, decoder).data is None
    assert accepted({**USAGE, "meta": {"region": None}}, decoder).data is None


def test_without_a_usage_stream_a_usage_event_is_of_an_unknown_stream() -> None:
    decoder = Decoder(Config(streams={"notes": StreamConfig(fields={"a": field("string")})}), SALT)
    assert rejected(USAGE, decoder) == ("unknown_stream", "stream")


def test_a_stream_that_truncates_cuts_finer_times() -> None:
    decoder = Decoder(Config(streams={"usage": StreamConfig(kind="usage", truncate=True)}), SALT)
    fine = accepted({**USAGE, "ts": "2026-06-01T11:00:00.1234569Z"}, decoder)
    cut = accepted({**USAGE, "ts": "2026-06-01T11:00:00.123456Z"}, decoder)
    assert fine == cut


@pytest.mark.parametrize("raw", [b"", b"{", b"5", b"[]", b"null", b'"x"', b"{} {}", b"{'a':1}"])
def test_what_is_no_json_object_is_a_malformed_event(raw: bytes) -> None:
    assert rejected(raw)[0] == "malformed_event"


@pytest.mark.parametrize("name", ["tenantId", "metric", "customerRef"])
def test_a_name_that_no_index_could_hold_is_too_long(name: str) -> None:
    # Four bytes a character: the three together must fit an index entry of 2,704 bytes.
    names = dict.fromkeys(("tenantId", "metric", "customerRef"), "\N{GRINNING FACE}" * 200)
    assert accepted({**USAGE, **names})
    too_long = {**USAGE, **names, name: names[name] + "x"}
    assert rejected(too_long) == ("string_too_long", name)
