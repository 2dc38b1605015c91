"""What clients say: read if it is a message of the protocol, and refused with one error if not."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.live.sockets import messages
from tidemark.live.sockets.messages import InvalidMessage, read_message

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
)
KINDS = ["connection_init", "ping", "pong", "subscribe", "complete", "next", "error", ""]
LIKELY = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(KINDS) | VALUES, "id": VALUES, "payload": VALUES}
)


@given(LIKELY)
def test_whatever_looks_like_a_message_is_read_or_refused(likely: dict[str, Any]) -> None:
    text = msgspec.json.encode(likely).decode()
    with contextlib.suppress(InvalidMessage):
        message = read_message(text)
        assert type(message).__struct_config__.tag == likely["type"]


@given(st.text() | st.binary())
def test_anything_else_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidMessage):
        read_message(text)


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_no_nesting_is_too_deep_to_be_refused(depth: int) -> None:
    with pytest.raises(InvalidMessage):
        read_message('{"type":"ping","payload":' + '{"a":' * depth + "1" + "}" * (depth + 1))


def test_numbers_are_read_to_the_last_digit() -> None:
    message = read_message('{"type":"ping","payload":{"a":0.10000000000000000001,"b":1e400}}')
    assert isinstance(message, messages.Ping)
    assert message.payload == {"a": Decimal("0.10000000000000000001"), "b": Decimal("1e400")}


@given(st.text(min_size=1, max_size=200))
def test_an_id_comes_back_as_it_was_given(operation_id: str) -> None:
    frame = messages.next_start(operation_id) + b"{}" + messages.NEXT_END
    assert msgspec.json.decode(frame) == {"id": operation_id, "type": "next", "payload": {}}
    assert msgspec.json.decode(messages.complete(operation_id))["id"] == operation_id


@pytest.mark.parametrize("operation_id", ["", "x" * 201])
def test_an_id_has_a_length(operation_id: str) -> None:
    text = msgspec.json.encode({"type": "complete", "id": operation_id}).decode()
    with pytest.raises(InvalidMessage, match="1 to 200"):
        read_message(text)
