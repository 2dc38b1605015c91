from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.unit.events import DECODER, NOW_US, SALT, STREAM_EVENT, USAGE, a_config, encode
from tidemark.config.model import HttpConfig
from tidemark.errors import EventRejected, RequestError
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Correction, Draft, Entry, Rejection

GOOD = encode(USAGE)
VOID = encode({"control": "void", "tenantId": "t1", "target": "k"})


def body_of(*events: bytes) -> bytes:
    return b'{"events": [' + b", ".join(events) + b"]}"


def decode_body(body: bytes, **options: Any) -> list[Entry]:
    return DECODER.decode_body("application/json", body, now_us=NOW_US, **options)


def refusal_of(
    body: bytes, content_type: str | None = "application/json", **options: Any
) -> RequestError:
    with pytest.raises(RequestError) as caught:
        DECODER.decode_body(content_type, body, now_us=NOW_US, **options)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def test_entries_are_aligned_with_the_events() -> None:
    entries = decode_body(body_of(GOOD, b"{}", encode(STREAM_EVENT), VOID))
    assert [type(entry) for entry in entries] == [Draft, Rejection, Draft, Correction]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (b'{"tenantId":"\\ud800"}', "invalid_unicode"),
        (b'{"tenantId":"\\udc00\\ud800"}', "invalid_unicode"),
        (b'{"tenantId":"\\ud800\\u0041"}', "invalid_unicode"),
        (b'{"tenantId":"\xff"}', "invalid_unicode"),
        (b'{"tenantId":"\xe2\x82"}', "invalid_unicode"),
        (b'{"tenantId":"\xed\xa0\x80"}', "invalid_unicode"),
        (b'{"\xff":1}', "invalid_unicode"),
        (b'{"tenantId":"a\\u0000b"}', "nul_character"),
        (b'{"tenantId":"a\nb"}', "malformed_event"),
        (b'{"tenantId":"a\0b"}', "malformed_event"),
        (b'{"quantity":NaN}', "not_a_number"),
        (b'{"quantity":-Infinity}', "not_a_number"),
        (b'{"meta":' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
        (b'{"meta":' + b'{"a":"]}",\n"b":[' * 2000 + b"1" + b"]}" * 2000 + b"}", "too_deep"),
        (b'{"meta":"' + b"x" * 70_000 + b'"}', "event_too_large"),
        (b'{"quantity":' + b"1" * 100_000 + b"}", "event_too_large"),
        (b'{"quantity":' + b"1" * 10_000 + b"}", "decimal_too_long"),
        (b'{"quantity":1e999999999}', "missing_field"),
        (b"null", "malformed_event"),
        (b"17", "malformed_event"),
        (b'"text"', "malformed_event"),
        (b"[]", "malformed_event"),
    ],
)
def test_one_bad_event_never_fails_its_neighbours(event: bytes, code: str) -> None:
    before, bad, after = decode_body(body_of(GOOD, event, GOOD))
    assert isinstance(before, Draft)
    assert before == after
    assert isinstance(bad, Rejection)
    assert bad.code == code
    assert bad.hint


def test_an_unreadable_event_among_many_costs_only_itself() -> None:
    events = [GOOD] * 20 + [b'{"tenantId":"\\ud800"}'] + [GOOD] * 20
    entries = decode_body(body_of(*events))
    assert [index for index, entry in enumerate(entries) if not isinstance(entry, Draft)] == [20]
    bad = entries[20]
    assert isinstance(bad, Rejection)
    assert bad.body == '{"tenantId":"\\ud800"}'


def test_what_is_not_known_of_a_rejected_event_is_not_made_up() -> None:
    void = encode({"control": "void", "tenantId": "t1", "targt": "k"})
    entries = decode_body(body_of(b"5", void, b'{"tenantId":"t1"}'))
    streams = [entry.stream for entry in entries if isinstance(entry, Rejection)]
    assert streams == [None, None, "usage"]


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    event = encode({**USAGE, "customerRef": "\\u0000"})
    assert b"\\\\u0000" in event
    (entry,) = decode_body(body_of(event))
    assert isinstance(entry, Draft)
    assert entry.customer_ref == "\\u0000"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed_json"),
        (b"   ", "malformed_json"),
        (b"{", "malformed_json"),
        (b'{"events"', "malformed_json"),
        (b'{"events" 1}', "malformed_json"),
        (b'{"events":', "malformed_json"),
        (b'{"events":[', "malformed_json"),
        (b'{"events":[1', "malformed_json"),
        (b'{"events":[1 2]}', "malformed_json"),
        (b'{"events":[1,]}', "malformed_json"),
        (b'{"events":[1]', "malformed_json"),
        (b'{"events":[1]} x', "malformed_json"),
        (b'{"events":[1],}', "malformed_json"),
        (b"{events:[1]}", "malformed_json"),
        (b'{"events":[{"a":01}]}', "malformed_json"),
        (b'{"events":[' + b"[" * 5000 + b"]", "malformed_json"),
        (b'{"events":[\xff]}', "not_utf8"),
        (b"\xff\xfe{\x00}\x00", "not_utf8"),
        ('{"events":[]}'.encode("utf-16"), "not_utf8"),
        (b"[]", "invalid_body"),
        (b"[{}]", "invalid_body"),
        (b"5", "invalid_body"),
        (b'"events"', "invalid_body"),
        (b"{}", "invalid_body"),
        (b'{"event":[{}]}', "invalid_body"),
        (b'{"events":{}}', "invalid_body"),
        (b'{"events":null}', "invalid_body"),
        (b'{"events":[1],"x":1}', "invalid_body"),
        (b'{"events":[1],"events":[2]}', "invalid_body"),
        (b'{"events":[1],"\\u0065vents":[2]}', "invalid_body"),
        (GOOD, "invalid_body"),
        (b'{"events":[]}', "no_events"),
    ],
)
def test_a_body_that_is_not_a_list_of_events_is_refused_as_a_whole(body: bytes, code: str) -> None:
    error = refusal_of(body)
    assert (error.code, error.status) == (code, 400)


@pytest.mark.parametrize(
    ("body", "position"),
    [(b'{"events":[1 2]}', 13), ('{"events":["é" x]}'.encode(), 16), (b"nope", 0)],
)
def test_malformed_json_is_reported_with_its_byte(body: bytes, position: int) -> None:
    assert f"(byte {position})" in refusal_of(body).message


def test_too_many_events_are_refused() -> None:
    assert len(decode_body(body_of(*[GOOD] * 50))) == 50
    error = refusal_of(body_of(*[GOOD] * 51))
    assert (error.code, error.status) == ("too_many_events", 413)
    error = refusal_of(b'{"events":[' + b"1," * 2_000_000 + b"1]}")
    assert (error.code, error.status) == ("too_many_events", 413)


def test_a_body_beyond_the_limit_is_refused() -> None:
    config = a_config().model_copy(update={"http": HttpConfig(max_body_bytes=1024)})
    decoder = Decoder(config, SALT)
    with pytest.raises(RequestError) as caught:
        decoder.decode_body(None, body_of(GOOD) + b" " * 1024, now_us=NOW_US)
    assert (caught.value.code, caught.value.status) == ("body_too_large", 413)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert len(decode_body(b"\xef\xbb\xbf" + body_of(GOOD))) == 1


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json; odata=verbose",
    ],
)
def test_json_is_read_however_its_type_is_spelled(content_type: str | None) -> None:
    assert len(DECODER.decode_body(content_type, body_of(GOOD), now_us=NOW_US)) == 1


@pytest.mark.parametrize(
    ("content_type", "options", "code"),
    [
        ("text/plain", {}, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", {}, "unsupported_media_type"),
        ("application/json; charset=latin-1", {}, "unsupported_media_type"),
        ("", {"content_encoding": "gzip"}, "unsupported_content_encoding"),
        ("application/json", {"binary_mode": True}, "cloudevents_binary_mode"),
        ("text/plain", {"binary_mode": True}, "cloudevents_binary_mode"),
        ("application/cloudevents+avro", {}, "unsupported_media_type"),
    ],
)
def test_other_forms_are_refused_with_415(
    content_type: str, options: dict[str, Any], code: str
) -> None:
    error = refusal_of(body_of(GOOD), content_type, **options)
    assert (error.code, error.status) == (code, 415)


def test_a_body_as_it_is_has_no_encoding() -> None:
    assert len(decode_body(body_of(GOOD), content_encoding="identity")) == 1


@pytest.mark.parametrize(
    "event",
    [
        b"[" * 1_000_000,
        b"[1," * 1_000_000,
        b"[" * 1_000_000 + b"]" * 1_000_000,
        b'{"a":' * 600_000 + b"1" + b"}" * 600_000,
        b"[[],[]" * 400_000 + b"]" * 400_000,
        b'"' + b"\\" * 2_000_000 + b'"',
        b'"' + b"\\ud800" * 300_000 + b'"',
        b"9" * 4_000_000,
        b"\xff" * 2_000_000,
    ],
    ids=["open", "open-1", "closed", "objects", "wide", "escapes", "surrogates", "digits", "bytes"],
)
def test_a_bomb_is_defused_quickly(event: bytes) -> None:
    start = time.perf_counter()
    try:
        entries = decode_body(body_of(GOOD, event, GOOD))
    except RequestError:
        entries = []
    assert [type(entry) for entry in entries] in ([], [Draft, Rejection, Draft])
    assert time.perf_counter() - start < 5


def deny(tenant_id: str, is_control: bool) -> EventRejected | None:
    if tenant_id == "t1" and not is_control:
        return None
    return EventRejected("not allowed", code="forbidden", hint="Ask for it.", field="tenantId")


def test_events_of_tenants_the_caller_may_not_act_for_are_rejected() -> None:
    other = encode({**USAGE, "tenantId": "t2", "idempotencyKey": "k"})
    entries = decode_body(body_of(GOOD, other, VOID), allow=deny)
    assert [type(entry) for entry in entries] == [Draft, Rejection, Rejection]
    forbidden = entries[1]
    assert isinstance(forbidden, Rejection)
    assert (forbidden.code, forbidden.tenant_id, forbidden.stream) == ("forbidden", "t2", "usage")
    assert forbidden.idempotency_key == "k"
    assert json.loads(forbidden.body)["tenantId"] == "t2"


def test_a_caller_learns_nothing_of_faults_in_events_of_other_tenants() -> None:
    bad = encode({**USAGE, "tenantId": "t2", "quantity": "x"})
    own = encode({**USAGE, "quantity": "x"})
    anonymous = encode({"quantity": "x"})
    entries = decode_body(body_of(bad, own, anonymous), allow=deny)
    codes = [entry.code for entry in entries if isinstance(entry, Rejection)]
    assert codes == ["forbidden", "invalid_decimal", "missing_field"]
