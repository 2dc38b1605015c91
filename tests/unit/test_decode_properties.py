"""One event has one identity and one content, however it is spelled and sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events import NOW_US, decode, decode_cloudevent, encode, spelled
from tests.unit.planted import assert_catches
from tidemark.canonical import Number
from tidemark.ingress.drafts import Draft, Entry
from tidemark.timestamps import format_timestamp

Check = Callable[[], None]

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)
units = st.integers(min_value=-(10**28) + 1, max_value=10**28 - 1)
instants = st.integers(min_value=86_400_000_000, max_value=NOW_US)


@st.composite
def quantity_texts(draw: st.DrawFn, billionths: int) -> str:
    """One of the spellings of so many billionths."""
    sign = "-" if billionths < 0 else ""
    digits = str(abs(billionths)).rjust(10, "0")
    whole, fraction = digits[:-9], digits[-9:]
    plain = f"{sign}{whole}.{fraction}"
    return draw(
        st.sampled_from(
            [
                plain,
                plain + "000",
                plain.rstrip("0").rstrip("."),
                f"{billionths}e-9",
                f"{billionths}.0E-9",
            ]
        )
    )


@st.composite
def time_texts(draw: st.DrawFn, us: int) -> str:
    """One of the spellings of an instant."""
    minutes = draw(st.integers(min_value=-1439, max_value=1439))
    text = format_timestamp(us + minutes * 60_000_000)[:-1]
    if draw(st.booleans()):
        text = text.rstrip("0").rstrip(".")
    if minutes == 0:
        return text + draw(st.sampled_from(["Z", "z", "+00:00", "-00:00"]))
    return f"{text}{'+' if minutes > 0 else '-'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


class Meaning(msgspec.Struct):
    """A usage event apart from how it is spelled."""

    tenant_id: str
    metric: str
    customer_ref: str
    resource_id: str | None
    us: int
    billionths: int
    meta: dict[str, int | str | None]
    causality_key: str | None


meanings = st.builds(
    Meaning,
    tenant_id=names,
    metric=names,
    customer_ref=names,
    resource_id=st.none() | st.just("") | names,
    us=instants,
    billionths=units | st.integers(min_value=-5, max_value=5),
    meta=st.dictionaries(names, st.none() | names | st.integers(-3, 3), max_size=3),
    causality_key=st.none() | names,
)


@st.composite
def content_of(draw: st.DrawFn, meaning: Meaning) -> dict[str, Any]:
    """The fields of the event in some spelling, without the envelope's."""
    quantity = draw(quantity_texts(meaning.billionths))
    content: dict[str, Any] = {
        "metric": meaning.metric,
        "customerRef": meaning.customer_ref,
        "ts": draw(time_texts(meaning.us)),
        "quantity": draw(st.sampled_from([quantity, Number(quantity)])),
    }
    explicit = draw(st.booleans())
    if meaning.resource_id is not None or explicit:
        content["resourceId"] = meaning.resource_id
    if meaning.meta or explicit:
        zeros = draw(st.sampled_from(["", ".0", "e0", ".00E+0"]))
        content["meta"] = {
            name: Number(f"{value}{zeros}") if isinstance(value, int) else value
            for name, value in meaning.meta.items()
        }
    return content


@st.composite
def plain_form(draw: st.DrawFn, meaning: Meaning) -> bytes:
    event = {"tenantId": meaning.tenant_id, **draw(content_of(meaning))}
    if meaning.causality_key is not None:
        event["causalityKey"] = meaning.causality_key
    order = draw(st.lists(st.integers(0, 9), max_size=4))
    return spelled(event, order).encode()


@st.composite
def cloudevent_form(draw: st.DrawFn, meaning: Meaning) -> bytes:
    content = draw(content_of(meaning))
    event = {"specversion": "1.0", "id": draw(names), "source": draw(names), "type": "usage"}
    if draw(st.booleans()):
        event["time"] = content.pop("ts")
    if draw(st.booleans()):
        event["tenantid"] = meaning.tenant_id
    else:
        content["tenantId"] = meaning.tenant_id
    if meaning.causality_key is not None:
        event["causalitykey"] = meaning.causality_key
    order = draw(st.lists(st.integers(0, 9), max_size=4))
    return spelled({**event, "data": content}, order).encode()


def normal(entry: Entry) -> tuple[Any, ...]:
    """All of a draft but how it came."""
    assert isinstance(entry, Draft), entry
    entry.source = entry.source_id = None
    return msgspec.structs.astuple(entry)


def does_not_depend_on_spelling(read: Callable[[bytes], Entry]) -> Check:
    @given(meanings, st.data())
    def check(meaning: Meaning, data: st.DataObject) -> None:
        one = read(data.draw(plain_form(meaning)))
        other = read(data.draw(plain_form(meaning)))
        assert normal(one) == normal(other)

    return check


def does_not_depend_on_the_transport(read: Callable[[bytes], Entry]) -> Check:
    @given(meanings, st.data())
    def check(meaning: Meaning, data: st.DataObject) -> None:
        plain = decode(data.draw(plain_form(meaning)))
        assert normal(read(data.draw(cloudevent_form(meaning)))) == normal(plain)

    return check


test_a_valid_event_is_accepted_and_its_spelling_does_not_matter = does_not_depend_on_spelling(
    decode
)
test_a_cloudevent_and_the_plain_form_agree = does_not_depend_on_the_transport(decode_cloudevent)


def test_a_hash_over_the_text_as_sent_is_caught() -> None:
    def over_text(raw: bytes) -> Entry:
        entry = decode(raw)
        assert isinstance(entry, Draft)
        entry.content_hash = raw
        return entry

    assert_catches(does_not_depend_on_spelling, over_text)


def test_a_quantity_that_keeps_its_zeros_is_caught() -> None:
    def with_zeros(raw: bytes) -> Entry:
        entry = decode(raw)
        assert isinstance(entry, Draft)
        entry.quantity = str(json.loads(raw, parse_float=str, parse_int=str)["quantity"])
        return entry

    assert_catches(does_not_depend_on_spelling, with_zeros)


def test_a_transport_that_is_part_of_the_content_is_caught() -> None:
    def with_id(raw: bytes) -> Entry:
        entry = decode_cloudevent(raw)
        assert isinstance(entry, Draft)
        entry.idempotency_key = str(entry.source_id)
        return entry

    assert_catches(does_not_depend_on_the_transport, with_id)


def notices_every_change(hashed: Callable[[bytes], bytes]) -> Check:
    @given(meanings, st.data())
    def check(meaning: Meaning, data: st.DataObject) -> None:
        change: dict[str, Any] = data.draw(
            st.sampled_from(
                [
                    {"tenant_id": meaning.tenant_id + "x"},
                    {"metric": meaning.metric + "x"},
                    {"customer_ref": meaning.customer_ref + "x"},
                    {"resource_id": "" if meaning.resource_id is None else None},
                    {"us": meaning.us - 1},
                    {"billionths": meaning.billionths + (1 if meaning.billionths < 0 else -1)},
                    {"meta": {**meaning.meta, "added": None}},
                    {"causality_key": (meaning.causality_key or "") + "x"},
                ]
            )
        )
        before = hashed(data.draw(plain_form(meaning)))
        after = hashed(data.draw(plain_form(msgspec.structs.replace(meaning, **change))))
        assert before != after

    return check


def hash_of(raw: bytes) -> bytes:
    entry = decode(raw)
    assert isinstance(entry, Draft), entry
    return entry.content_hash


test_any_change_of_a_value_changes_the_content_hash = notices_every_change(hash_of)


def test_a_hash_without_the_causality_key_is_caught() -> None:
    def without_causality(raw: bytes) -> bytes:
        return hash_of(encode({**_exactly(raw), "causalityKey": None}))

    assert_catches(notices_every_change, without_causality)


def test_a_hash_that_drops_nulls_of_free_json_is_caught() -> None:
    def without_nulls(raw: bytes) -> bytes:
        event = _exactly(raw)
        meta = {name: value for name, value in event.get("meta", {}).items() if value is not None}
        return hash_of(encode({**event, "meta": meta}))

    assert_catches(notices_every_change, without_nulls)


def _exactly(raw: bytes) -> Any:
    """The event with numbers as strings; whether they were is nothing to these tests."""
    return json.loads(raw, parse_float=str, parse_int=str)
