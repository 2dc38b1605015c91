"""Every body gets an answer, and the quick reading of an event never differs from the careful."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events import DECODER, NOW_US, STREAM_EVENT, USAGE, decode, encode, spelled
from tests.unit.planted import assert_catches
from tidemark.canonical import Number
from tidemark.errors import RequestError
from tidemark.ingress.drafts import Correction, Draft, Entry, Rejection

Check = Callable[[], None]

HORIZON_US = NOW_US + 3_600_000_000

near_values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [
            "",
            "t1",
            "usage",
            "trades",
            "everything",
            "buy",
            "high",
            "void",
            "x" * 300,
            "x" * 1100,
            "a\0",
            "\ud800",
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.1234567+01:00",
            "2999-01-01T00:00:00Z",
            "1.50",
            "1e3",
            "-0",
        ]
    ),
    st.sampled_from(["0", "-0", "1.0", "1e2", "1e400", "2147483648", "0.0000000001", "NaN"]).map(
        Number
    ),
    st.just({}),
    st.just([[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]),
    st.just({"b": 1, "a": [Number("1.0"), None]}),
)
envelope_names = st.sampled_from(
    [
        *("tenantId", "metric", "customerRef", "resourceId", "ts", "quantity", "meta"),
        *("causalityKey", "idempotencyKey", "source", "stream", "data", "occurredAt"),
        *("control", "target", "event", "reason", "periodStart", "unknown"),
    ]
)
data_names = st.sampled_from(
    [
        *("a_string", "a_int", "a_bigint", "a_decimal", "a_boolean", "a_timestamp", "a_json"),
        *("a_enum", "trade_id", "side", "price", "executed_at", "venue", "unknown"),
    ]
)
valid_events: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        USAGE,
        STREAM_EVENT,
        {"tenantId": "t1", "stream": "everything", "data": {}},
        {"tenantId": "t1", "stream": "notes", "data": {"text": "x"}, "idempotencyKey": "k"},
        {"tenantId": "t1", "stream": "usage", "data": {"metric": "m"}},
    ]
)


@st.composite
def near_events(draw: st.DrawFn) -> dict[str, Any]:
    """A valid event in which one or two things are changed, in most cases for the worse."""
    event = {**draw(valid_events), **draw(st.dictionaries(envelope_names, near_values, max_size=2))}
    if isinstance(event.get("data"), dict):
        changes = draw(st.dictionaries(data_names, near_values, max_size=2))
        event["data"] = {**event["data"], **changes}
    return event


def reads_as_the_careful_reader_does(read: Callable[[bytes], Entry]) -> Check:
    @given(near_events())
    def check(event: Any) -> None:
        raw = spelled(event).encode()
        assert read(raw) == DECODER._entry(raw, HORIZON_US, quickly=False)

    return check


test_the_quick_reader_never_disagrees_with_the_careful_one = reads_as_the_careful_reader_does(
    decode
)


def test_a_quick_reader_that_forgets_a_bound_is_caught() -> None:
    def boundless(raw: bytes) -> Entry:
        entry = decode(raw)
        if isinstance(entry, Rejection) and entry.code == "string_too_long":
            return Draft("t1", "usage", "k", b"", None)
        return entry

    assert_catches(reads_as_the_careful_reader_does, boundless)


def test_a_quick_reader_that_takes_unknown_fields_is_caught() -> None:
    def lenient(raw: bytes) -> Entry:
        event = json.loads(raw)
        event.pop("unknown", None)
        return decode(encode(event))

    assert_catches(reads_as_the_careful_reader_does, lenient)


fragments = st.sampled_from(
    [
        *(b'{"events":[', b"]}", b"{", b"}", b"[", b"]", b",", b":", b'"', b'"a"', b"\\"),
        *(b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\0", b"NaN", b"-0", b"null"),
        *(b"1e999999999", b"[" * 1200, b"]" * 1200),
    ]
)
events = st.sampled_from(
    [
        *(encode(USAGE), encode(STREAM_EVENT), b'{"control":"void","tenantId":"t1","target":"k"}'),
        *(
            b'{"tenantId":"\xff"}',
            b'{"tenantId":"\\ud800"}',
            b'{"\\u0000":1}',
            b'{"a":"\0"}',
            b"NaN",
        ),
        *(b"[" * 1200 + b"]" * 1200, b"9" * 5000, b"{}", b"5"),
    ]
)
bodies = (
    st.binary(max_size=60)
    | st.lists(fragments | events, max_size=12).map(b"".join)
    | st.lists(events | fragments | st.binary(max_size=5), max_size=8).map(
        lambda parts: b'{"events":[' + b",".join(parts) + b"]}"
    )
    | st.lists(events, min_size=1, max_size=5).map(
        lambda parts: b'{"events":[' + b",".join(parts) + b"]}"
    )
)
media_types = st.sampled_from(
    [None, "application/json", "application/cloudevents+json", "application/cloudevents-batch+json"]
)


def is_storable(text: str) -> bool:
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text


def always_answers(read: Callable[[str | None, bytes], list[Entry]]) -> Check:
    @given(media_types, bodies)
    def check(content_type: str | None, body: bytes) -> None:
        try:
            entries = read(content_type, body)
        except RequestError:
            return
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} escaped") from error
        assert entries
        for entry in entries:
            assert isinstance(entry, Draft | Correction | Rejection)
            for text in msgspec.structs.astuple(entry):
                assert not isinstance(text, str) or is_storable(text)

    return check


def read_body(content_type: str | None, body: bytes) -> list[Entry]:
    return DECODER.decode_body(content_type, body, now_us=NOW_US)


test_any_bytes_give_entries_or_a_refusal = always_answers(read_body)


def test_a_reader_that_lets_a_decoding_error_escape_is_caught() -> None:
    def without_second_look(content_type: str | None, body: bytes) -> list[Entry]:
        events = msgspec.json.decode(body, type=dict[str, list[msgspec.Raw]]).get("events", [])
        return [decode(bytes(event)) for event in events]

    assert_catches(always_answers, without_second_look)


def test_a_rejection_that_cannot_be_sent_is_caught() -> None:
    def verbatim(content_type: str | None, body: bytes) -> list[Entry]:
        entries = read_body(content_type, body)
        for entry in entries:
            if isinstance(entry, Rejection):
                entry.body = body.decode("utf-8", "surrogateescape")
        return entries

    assert_catches(always_answers, verbatim)
