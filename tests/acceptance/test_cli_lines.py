"""What is sent for a line: the event as it stands, and a time where it must have one."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.planted import assert_catches
from tidemark.cli.refusals import Refusals
from tidemark.cli.sent_lines import ReadingStamps, RepeatableStamps, sent_line
from tidemark.errors import EventRejected
from tidemark.event_files import EventLine

BEGAN_US = 1_735_689_600_000_000


class StoppedClock:
    def wall_us(self) -> int:
        return BEGAN_US

    def elapsed_us(self) -> int:
        return 0


def sent(raw: bytes, number: int = 1) -> bytes:
    return sent_line(EventLine(number, raw), RepeatableStamps(BEGAN_US, "s")).body


def loads(raw: bytes) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a member stands twice"
        return dict(pairs)

    return json.loads(raw, parse_float=Decimal, object_pairs_hook=members)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"ts":"2025-01-01T00:00:00Z", "quantity": 1.10}',
        b'{"stream":"trades","data":{"price":12345678901234567890.123456789}}',
        b'{"control":"void","target":"k"}',
        b'{"specversion":"1.0","id":"1"}',
        b'{"quantity":1,"quantity":2,"ts":"x"}',
        # The server is the judge of these.
        b"[1]",
        b'"text"',
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":' + b"[" * 300 + b"]" * 300 + b',"ts":1}',
    ],
)
def test_an_event_goes_out_as_it_stands(raw: bytes) -> None:
    assert sent(raw) == raw


@pytest.mark.parametrize(
    "raw", [b"{bad", b'{"a":1} {"b":2}', b'{"a":1},{"b":2}', b'{"a":1}]', b"x"]
)
def test_a_line_that_would_spoil_its_neighbours_is_refused_here(raw: bytes) -> None:
    with pytest.raises(EventRejected) as refused:
        sent(raw)
    assert refused.value.code == "malformed_event"


def test_a_fault_of_reading_is_passed_on() -> None:
    fault = EventRejected("too long", code="line_too_long")
    with pytest.raises(EventRejected) as refused:
        sent_line(EventLine(1, b"x", fault), RepeatableStamps(BEGAN_US, "s"))
    assert refused.value is fault


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"{}", {}),
        (b'{ "a" : 1.50}', {"a": Decimal("1.50")}),
        (b'{"ts":null,"a":1}', {"a": 1}),
        (b'{"a":1,"idempotencyKey":null}', {"a": 1}),
    ],
)
def test_a_usage_event_without_a_time_gets_one_and_a_key(
    raw: bytes, expected: dict[str, Any]
) -> None:
    assert loads(sent(raw, 7)) == {
        "ts": "2025-01-01T00:00:00.000007Z",
        "idempotencyKey": "s:7",
        **expected,
    }


def test_a_key_of_its_own_is_kept() -> None:
    assert loads(sent(b'{"idempotencyKey":"mine"}')) == {
        "ts": "2025-01-01T00:00:00.000001Z",
        "idempotencyKey": "mine",
    }


def test_lines_that_are_read_at_one_moment_get_different_times() -> None:
    stamps = ReadingStamps(StoppedClock())
    times = [loads(sent_line(EventLine(n, b"{}"), stamps).body)["ts"] for n in range(1, 4)]
    assert times == [f"2025-01-01T00:00:00.00000{n}Z" for n in range(3)]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.decimals(allow_nan=False, allow_infinity=False, places=9)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def render(value: Any, space: str) -> str:
    """JSON text, numbers to the digit."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return "[" + f"{space},{space}".join(render(item, space) for item in value) + "]"
    if isinstance(value, dict):
        members = [f"{json.dumps(k)}{space}:{space}{render(v, space)}" for k, v in value.items()]
        return "{" + space + f"{space},{space}".join(members) + space + "}"
    return json.dumps(value, ensure_ascii=False)


def only_what_is_added_differs(send: Callable[[bytes, int], bytes]) -> Callable[[], None]:
    @given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.sampled_from(["", " "]))
    def holds(event: dict[str, Any], space: str) -> None:
        for name in ("ts", "idempotencyKey", "stream", "control", "specversion"):
            event.pop(name, None)
        raw = render(event, space).encode()
        body = loads(send(raw, 3))
        assert body.pop("ts") == "2025-01-01T00:00:00.000003Z"
        assert body.pop("idempotencyKey") == "s:3"
        assert body == loads(raw)

    return holds


def test_only_what_is_added_differs() -> None:
    only_what_is_added_differs(sent)()


def test_a_number_that_was_read_and_written_again_would_be_noticed() -> None:
    def through_floats(raw: bytes, number: int) -> bytes:
        return json.dumps(json.loads(sent(raw, number))).encode()

    assert_catches(only_what_is_added_differs, through_floats)


def test_a_refused_event_is_written_to_the_digit(tmp_path: Path) -> None:
    with (tmp_path / "rejects").open("wb+") as file:
        refusals = Refusals(file)
        refusals.add(3, "rejected", EventRejected("no"), b'{"quantity":1.10, "a":[]}')
        refusals.add(4, "rejected", EventRejected("no"), b"{bad\xff")
        file.seek(0)
        first, second = file.read().splitlines()
    assert first.endswith(b'"event":{"quantity":1.10, "a":[]}}')
    assert json.loads(second)["event"] == "{bad\ufffd"
