from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events import NOW_US, SALT, a_config, decode
from tests.unit.planted import assert_catches
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft
from tidemark.ingress.identity import Identity
from tidemark.timestamps import MAX_TIMESTAMP_US, format_timestamp, normalise_timestamp

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/identity.json").read_text())

UsageKey = Callable[[str, str, str, str | None, str], str]
Check = Callable[[], None]

IDENTITY = Identity(SALT)

names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
)
# Few names, so that two tuples often differ only in where one member ends and the next begins.
close_names = st.sampled_from(["a", "b", "a|b", "b|a", 'a","b', "a\\", '"'])
usage_tuples = st.tuples(
    st.just("t") | close_names,
    close_names,
    close_names,
    st.sampled_from([None, "", "null", "default", "a", "None"]),
    st.sampled_from(["2025-01-01T00:00:00.000000Z", "2025-01-01T00:00:00.000001Z"]),
)


def expected_key(salt: str, message: str) -> str:
    """The key as a reader of the documentation would compute it."""
    digest = hmac.new(salt.encode(), message.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def compact(values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["note"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    decoder = Decoder(a_config(), VECTORS["salt"])
    entry = decoder.decode_event(json.dumps(case["event"]).encode(), now_us=NOW_US)
    assert isinstance(entry, Draft)
    assert entry.idempotency_key == case["key"]


@given(names, names, names, st.none() | names, st.text(min_size=1, max_size=200))
def test_a_usage_key_is_the_hmac_of_the_tuple(
    tenant: str, metric: str, customer: str, resource: str | None, salt: str
) -> None:
    salt = salt.encode("utf-8", "replace").decode()
    ts = "2025-01-01T00:00:00.000000Z"
    message = compact([tenant, metric, customer, resource, ts])
    key = Identity(salt).usage_key(tenant, metric, customer, resource, ts)
    assert key == expected_key(salt, message)
    assert Identity(salt.encode()).usage_key(tenant, metric, customer, resource, ts) == key


def test_the_kinds_of_key_are_told_apart_by_a_prefix() -> None:
    assert IDENTITY.stream_key("t", "trades", ["x", None, True, 5]) == expected_key(
        SALT, 'stream\n["t","trades","x",null,true,5]'
    )
    assert IDENTITY.cloudevent_key("t", "/s", "1") == expected_key(
        SALT, 'cloudevents\n["t","/s","1"]'
    )
    assert IDENTITY.control_key("t", "void", ["k"], b"\x01\xff") == expected_key(
        SALT, 'control\n["t","void","k","01ff"]'
    )
    same = {
        IDENTITY.stream_key("t", "/s", ["1"]),
        IDENTITY.cloudevent_key("t", "/s", "1"),
        IDENTITY.control_key("t", "/s", ["1"], b""),
    }
    assert len(same) == 3


def test_another_salt_gives_other_keys() -> None:
    event = ("t", "m", "c", None, "2025-01-01T00:00:00.000000Z")
    assert Identity("a").usage_key(*event) != Identity("b").usage_key(*event)


def is_injective(usage_key: UsageKey) -> Check:
    @given(st.sets(usage_tuples, min_size=2, max_size=40))
    def check(tuples: set[Any]) -> None:
        assert len({usage_key(*members) for members in tuples}) == len(tuples)

    return check


test_two_tuples_have_one_key_only_if_they_are_one_tuple = is_injective(IDENTITY.usage_key)


def test_a_key_that_joins_with_a_separator_is_caught() -> None:
    assert_catches(is_injective, lambda *members: "|".join(str(member) for member in members))


def test_a_key_that_takes_an_absent_resource_for_a_named_one_is_caught() -> None:
    def with_default(tenant: str, metric: str, customer: str, resource: str | None, ts: str) -> str:
        return compact([tenant, metric, customer, resource or "default", ts])

    assert_catches(is_injective, with_default)


def depends_on_the_instant_alone(key_of: Callable[[str], str]) -> Check:
    @given(
        st.integers(min_value=86_400_000_000, max_value=MAX_TIMESTAMP_US - 86_400_000_000),
        st.integers(min_value=-1439, max_value=1439),
        st.integers(min_value=0, max_value=1),
    )
    def check(us: int, offset_minutes: int, later: int) -> None:
        sign = "-" if offset_minutes < 0 else "+"
        hours, minutes = divmod(abs(offset_minutes), 60)
        local = format_timestamp(us + offset_minutes * 60_000_000)[:-1].rstrip("0")
        text = f"{local}{'0' if local.endswith('.') else ''}{sign}{hours:02d}:{minutes:02d}"
        assert key_of(text) == key_of(format_timestamp(us))
        assert (key_of(format_timestamp(us + later)) == key_of(text)) == (later == 0)

    return check


def key_at(text: str) -> str:
    return IDENTITY.usage_key("t", "m", "c", None, normalise_timestamp(text)[1])


test_every_spelling_of_an_instant_gives_one_key = depends_on_the_instant_alone(key_at)


def test_a_key_of_the_time_as_written_is_caught() -> None:
    assert_catches(depends_on_the_instant_alone, lambda text: text)


def test_a_key_with_milliseconds_is_caught() -> None:
    def by_milliseconds(text: str) -> str:
        return str(normalise_timestamp(text)[0] // 1000)

    assert_catches(depends_on_the_instant_alone, by_milliseconds)


def test_a_clients_key_wins_over_a_derived_one() -> None:
    event = {
        "tenantId": "t1",
        "metric": "m",
        "customerRef": "c",
        "ts": "2025-01-01T00:00:00Z",
        "quantity": 1,
    }
    derived = decode(event)
    given_key = decode({**event, "idempotencyKey": "mine"})
    assert isinstance(derived, Draft)
    assert isinstance(given_key, Draft)
    assert given_key.idempotency_key == "mine"
    assert len(derived.idempotency_key) == 43
    assert given_key.content_hash == derived.content_hash


def test_the_example_on_the_page_about_identity_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs/concepts/identity.md").read_text()
    example = page.split("## An example")[1].split("\n## ")[0]
    event, message, content = re.findall(r"```(?:json)?\n(.*?)\n```", example, re.DOTALL)
    draft = decode(event.encode())
    assert isinstance(draft, Draft)
    assert f"`{draft.idempotency_key}`" in example
    assert draft.idempotency_key == expected_key(SALT, message)
    assert f"`{draft.content_hash.hex()}`" in example
    assert draft.content_hash == hashlib.sha256(content.encode()).digest()
