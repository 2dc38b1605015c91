from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.events import (
    DECODER,
    SALT,
    STREAM_EVENT,
    TRADE,
    USAGE,
    accepted,
    decode,
    original_of,
    rejected,
)
from tidemark.canonical import content_hash
from tidemark.ingress.drafts import Correction, Draft, Original, Rejection
from tidemark.ingress.identity import Identity
from tidemark.timestamps import parse_timestamp

IDENTITY = Identity(SALT)
USAGE_ORIGINAL = original_of(accepted(USAGE))
TRADE_ORIGINAL = original_of(accepted(STREAM_EVENT))

VOID = {"control": "void", "tenantId": "t1", "target": "key-1"}
AMEND = {**VOID, "control": "amend", "event": {"ts": "2026-06-01T10:00:00Z", "quantity": "4.0"}}
AMEND_TRADE = {**AMEND, "event": {"data": TRADE}}
ADJUST = {
    "control": "adjust",
    "tenantId": "t1",
    "metric": "api_calls",
    "customerRef": "c1",
    "periodStart": "2026-05-01T00:00:00Z",
    "quantity": -5,
    "reason": "goodwill",
}
END = {"control": "end", "tenantId": "t1", "stream": "trades"}


def correction(event: dict[str, Any]) -> Correction:
    entry = decode(event)
    assert isinstance(entry, Correction), entry
    return entry


def resolved(event: dict[str, Any], original: Original | None = USAGE_ORIGINAL) -> Draft:
    draft = DECODER.resolve(correction(event), original)
    assert isinstance(draft, Draft), draft
    return draft


def refused(
    event: dict[str, Any], original: Original | None = USAGE_ORIGINAL
) -> tuple[str, str | None]:
    rejection = DECODER.resolve(correction(event), original)
    assert isinstance(rejection, Rejection), rejection
    assert rejection.hint
    assert rejection.tenant_id == "t1"
    assert json.loads(rejection.body)["target"] == "key-1"
    return rejection.code, rejection.field


def test_a_void_names_its_original_and_takes_its_stream() -> None:
    draft = resolved({**VOID, "reason": "sent twice", "causalityKey": "run-7", "source": "ops"})
    hashed = content_hash(
        {
            "causalityKey": "run-7",
            "control": "void",
            "reason": "sent twice",
            "target": "key-1",
            "tenantId": "t1",
        }
    )
    assert draft == Draft(
        tenant_id="t1",
        stream="usage",
        idempotency_key=IDENTITY.control_key("t1", "void", ["key-1"], hashed),
        content_hash=hashed,
        occurred_at=None,
        metric="api_calls",
        customer_ref="c1",
        data='{"reason":"sent twice"}',
        causality_key="run-7",
        source="ops",
        control="void",
        target_key="key-1",
    )
    assert resolved(VOID).data == "{}"
    assert resolved(VOID, TRADE_ORIGINAL).stream == "trades"


def test_an_amend_carries_the_new_content_in_normal_form() -> None:
    event = {**AMEND["event"], "resourceId": "r1", "meta": {"b": 1.0, "a": 2}}  # type: ignore[dict-item]
    draft = resolved({**AMEND, "event": event, "reason": "recounted"})
    assert draft.data == (
        '{"event":{"meta":{"a":2,"b":1},"quantity":"4","resourceId":"r1",'
        '"ts":"2026-06-01T10:00:00.000000Z"},"reason":"recounted"}'
    )
    assert draft.quantity == "4"
    assert draft.resource_id == "r1"
    assert draft.metric == "api_calls"
    assert draft.customer_ref == "c1"
    assert draft.occurred_at == parse_timestamp("2026-06-01T10:00:00Z")
    assert draft.target_key == "key-1"
    assert draft.control == "amend"
    assert draft.content_hash == content_hash(
        {
            "control": "amend",
            "event": json.loads(draft.data)["event"],
            "reason": "recounted",
            "target": "key-1",
            "tenantId": "t1",
        }
    )


def test_an_amend_of_a_stream_event_carries_its_data() -> None:
    event = {"data": {**TRADE, "price": "13.00"}, "occurredAt": "2026-06-01T09:00:00Z"}
    draft = resolved({**AMEND, "event": event}, TRADE_ORIGINAL)
    amended = json.loads(draft.data or "")["event"]
    assert amended["data"]["price"] == "13"
    assert amended["occurredAt"] == "2026-06-01T09:00:00.000000Z"
    assert draft.occurred_at == parse_timestamp("2026-06-01T09:00:00Z")
    untimed = resolved(AMEND_TRADE, TRADE_ORIGINAL)
    assert untimed.occurred_at is None
    assert "occurredAt" not in json.loads(untimed.data or "")["event"]


def test_the_spelling_of_an_amend_is_not_its_content() -> None:
    other = {"quantity": 4, "ts": "2026-06-01T12:00:00+02:00", "meta": {}, "metric": "api_calls"}
    assert resolved({**AMEND, "event": other}) == resolved(AMEND)
    assert resolved({**AMEND, "event": {**AMEND["event"], "quantity": 5}}) != resolved(AMEND)  # type: ignore[dict-item]


def test_a_correction_may_bring_its_own_key() -> None:
    assert resolved({**VOID, "idempotencyKey": "mine"}).idempotency_key == "mine"
    assert resolved(VOID).idempotency_key == resolved(VOID).idempotency_key
    assert resolved({**VOID, "reason": "x"}).idempotency_key != resolved(VOID).idempotency_key


def test_a_correction_needs_an_original() -> None:
    assert refused(VOID, None) == ("unknown_target", "target")
    assert refused(AMEND, None) == ("unknown_target", "target")


@pytest.mark.parametrize("control", ["void", "amend"])
@pytest.mark.parametrize("event", [VOID, AMEND])
def test_a_correction_of_a_correction_is_refused(event: dict[str, Any], control: Any) -> None:
    original = Original("usage", "api_calls", "c1", control)
    assert refused(event, original) == ("target_is_correction", "target")


def test_an_adjustment_can_be_voided_and_nothing_else() -> None:
    original = original_of(accepted(ADJUST))
    assert resolved(VOID, original).stream == "usage"
    assert refused(AMEND, original) == ("target_not_correctable", "target")
    ended = original_of(accepted(END))
    assert refused(VOID, ended) == ("target_not_correctable", "target")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"tenantId": "t2"}, "event.tenantId"),
        ({"metric": "bytes"}, "event.metric"),
        ({"customerRef": "c2"}, "event.customerRef"),
        ({"customerRef": 5}, "event.customerRef"),
        ({"stream": "trades"}, "event.stream"),
    ],
)
def test_an_amend_may_repeat_tenant_metric_and_customer_but_not_change_them(
    change: dict[str, Any], path: str
) -> None:
    same = {"tenantId": "t1", "metric": "api_calls", "customerRef": "c1", "stream": "usage"}
    assert resolved({**AMEND, "event": {**AMEND["event"], **same}}) == resolved(AMEND)  # type: ignore[dict-item]
    event = {**AMEND["event"], **change}  # type: ignore[dict-item]
    assert refused({**AMEND, "event": event}) == ("amend_changes_identity", path)


@pytest.mark.parametrize(
    ("event", "code", "path"),
    [
        ({"ts": "2026-06-01T10:00:00Z"}, "missing_field", "event.quantity"),
        ({"quantity": 1}, "missing_field", "event.ts"),
        ({"ts": "2026-06-01T10:00:00.1234567Z", "quantity": 1},
         "timestamp_too_precise", "event.ts"),
        ({"ts": "2026-06-01T10:00:00Z", "quantity": "x"}, "invalid_decimal", "event.quantity"),
        ({"ts": "2026-06-01T10:00:00Z", "quantity": 1, "meta": 1}, "wrong_type", "event.meta"),
        ({"data": TRADE}, "unknown_field", "event.data"),
        ({"ts": "2026-06-01T10:00:00Z", "quantity": 1, "idempotencyKey": "k"},
         "unknown_field", "event.idempotencyKey"),
    ],
)  # fmt: skip
def test_a_fault_in_an_amended_usage_event_has_its_path(
    event: dict[str, Any], code: str, path: str
) -> None:
    assert refused({**AMEND, "event": event}) == (code, path)


@pytest.mark.parametrize(
    ("event", "code", "path"),
    [
        ({"ts": "2026-06-01T10:00:00Z"}, "unknown_field", "event.ts"),
        ({}, "missing_field", "event.data"),
        ({"data": {**TRADE, "side": "x"}}, "not_in_enum", "event.data.side"),
    ],
)
def test_a_fault_in_an_amended_stream_event_has_its_path(
    event: dict[str, Any], code: str, path: str
) -> None:
    assert refused({**AMEND, "event": event}, TRADE_ORIGINAL) == (code, path)


def test_an_amend_of_a_stream_that_is_no_longer_declared_is_refused() -> None:
    assert refused(AMEND, Original("gone", None, None, None)) == ("unknown_stream", "target")
    assert resolved(VOID, Original("gone", None, None, None)).stream == "gone"


def test_an_adjustment_is_complete_by_itself() -> None:
    draft = accepted(ADJUST)
    hashed = content_hash(
        {**ADJUST, "periodStart": "2026-05-01T00:00:00.000000Z", "quantity": "-5"}
    )
    subject = ["api_calls", "c1", "2026-05-01T00:00:00.000000Z", "-5"]
    assert draft == Draft(
        tenant_id="t1",
        stream="usage",
        idempotency_key=IDENTITY.control_key("t1", "adjust", subject, hashed),
        content_hash=hashed,
        occurred_at=None,
        metric="api_calls",
        customer_ref="c1",
        quantity="-5",
        data='{"periodStart":"2026-05-01T00:00:00.000000Z","reason":"goodwill"}',
        control="adjust",
    )


def test_an_end_names_the_stream_that_is_finished() -> None:
    draft = accepted({**END, "reason": "market closed"})
    assert draft.stream == "trades"
    assert draft.control == "end"
    assert draft.data == '{"reason":"market closed"}'
    hashed = content_hash({**END, "reason": "market closed"})
    assert draft.content_hash == hashed
    assert draft.idempotency_key == IDENTITY.control_key("t1", "end", ["trades"], hashed)
    assert accepted(END).data == "{}"


@pytest.mark.parametrize(
    ("event", "code", "path"),
    [
        ({**VOID, "control": "undo"}, "unknown_control", "control"),
        ({**VOID, "control": "Void"}, "unknown_control", "control"),
        ({**VOID, "control": 5}, "wrong_type", "control"),
        ({**VOID, "target": None}, "missing_field", "target"),
        ({**VOID, "target": ""}, "string_empty", "target"),
        ({**VOID, "target": "k" * 257}, "string_too_long", "target"),
        ({**VOID, "tenantId": None}, "missing_field", "tenantId"),
        ({**VOID, "reason": 5}, "wrong_type", "reason"),
        ({**VOID, "reason": "x" * 1025}, "string_too_long", "reason"),
        ({**VOID, "event": {}}, "unknown_field", "event"),
        ({**VOID, "quantity": 1}, "unknown_field", "quantity"),
        ({**AMEND, "event": None}, "missing_field", "event"),
        ({**AMEND, "event": []}, "wrong_type", "event"),
        ({**AMEND, "event": {"ts": "nope"}}, "invalid_timestamp", "event.ts"),
        ({**AMEND, "event": {"ts": "2027-01-01T00:00:00Z"}}, "future_timestamp", "event.ts"),
        ({**AMEND, "event": {"occurredAt": "2027-01-01T00:00:00Z", "data": {}}},
         "future_timestamp", "event.occurredAt"),
        ({**AMEND, "event": {"meta": {"a": "\0"}}}, "nul_character", "event.meta.a"),
        ({**ADJUST, "reason": None}, "missing_field", "reason"),
        ({**ADJUST, "reason": ""}, "string_empty", "reason"),
        ({**ADJUST, "quantity": "1e19"}, "decimal_out_of_range", "quantity"),
        ({**ADJUST, "periodStart": "2026-05-01"}, "invalid_timestamp", "periodStart"),
        ({**ADJUST, "periodStart": None}, "missing_field", "periodStart"),
        ({**ADJUST, "metric": ""}, "string_empty", "metric"),
        ({**ADJUST, "target": "k"}, "unknown_field", "target"),
        ({**END, "stream": "trade"}, "unknown_stream", "stream"),
        ({**END, "stream": None}, "missing_field", "stream"),
        ({**END, "data": {}}, "unknown_field", "data"),
    ],
)  # fmt: skip
def test_a_fault_in_a_control_event_is_named_with_its_field(
    event: dict[str, Any], code: str, path: str
) -> None:
    assert rejected(event) == (code, path)


def test_a_correction_keeps_the_numbers_of_its_event_exact() -> None:
    event = b'{"control":"amend","tenantId":"t1","target":"key-1","event":{"ts":"2026-06-01T10:00:00Z","quantity":0.1000000000,"meta":{"x":0.10000000000000000000000000000001}}}'  # noqa: E501
    entry = decode(event)
    assert isinstance(entry, Correction)
    draft = DECODER.resolve(entry, USAGE_ORIGINAL)
    assert isinstance(draft, Draft)
    assert draft.quantity == "0.1"
    assert '"x":0.10000000000000000000000000000001' in (draft.data or "")
