"""The id of an event, its payload, and what a trigger may be called."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.live.errors import InvalidTrigger
from tidemark.live.triggers.definition import NewTrigger, read_where, where_text
from tidemark.live.triggers.event_ids import event_id, key_text, primary_key
from tidemark.live.triggers.payloads import payload
from tidemark.live.triggers.transitions import Transition
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.schema import Column, ViewSchema

VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors/event_id.json").read_text())


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["event_id"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any]) -> None:
    key = case["primary_key"]
    values = key if isinstance(key, list) else [key]
    timestamp = int(case["source_timestamp"])
    assert event_id(case["trigger"], values, timestamp) == case["event_id"]
    assert event_id(case["trigger"], values, timestamp, "eu_") == "eu_" + case["event_id"]


def view(*types: str) -> ViewSchema:
    columns = tuple(Column(f"k{n}", kind) for n, kind in enumerate(types))  # type: ignore[arg-type]
    names = tuple(column.name for column in columns)
    return ViewSchema("v", (*columns, Column("rest", "string")), names, "first")


@pytest.mark.parametrize(
    ("types", "values", "text"),
    [
        (["string"], ["b:c"], "b:c"),
        (["int"], [114], "114"),
        (["bigint"], [2**62], str(2**62)),
        (["decimal"], [Decimal("1.50")], "1.5"),
        (["boolean"], [True], "true"),
        (["timestamp"], [0], "1970-01-01T00:00:00.000000Z"),
        (["json"], ['"a"'], '"a"'),
        (["string", "string"], ["t1", "é"], '["t1","é"]'),
        (["string", "bigint"], [None, 7], '[null,"7"]'),
    ],
)
def test_a_key_is_read_from_the_text_of_its_row(
    types: list[str], values: list[Any], text: str
) -> None:
    schema = view(*types)
    row = dict(zip(schema.key, values, strict=True)) | {"rest": "x"}
    assert key_text(primary_key(schema, encode_row(schema, row))) == text


@given(
    st.lists(
        st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0")), unique=True
    )
)
def test_two_keys_never_share_a_text(keys: list[str | None]) -> None:
    schema = view("string")
    rows = [encode_row(schema, {"k0": key, "rest": None}) for key in keys]
    assert len({key_text(primary_key(schema, row)) for row in rows}) == len(keys)


def test_a_payload_has_the_row_as_readers_see_it() -> None:
    one = Transition("UNMATCH", 1_725_326_445_133_456, "[1]", '{"a":"1.10","b":[1, 2]}')
    assert payload("0f", "hot", one, 1_735_689_600_000_001) == (
        b'{"event_id":"0f","event_type":"UNMATCH","trigger_name":"hot",'
        b'"timestamp":"2025-01-01T00:00:00.000001Z","source_timestamp":"1725326445133456",'
        b'"data":{"a":"1.10","b":[1, 2]}}'
    )


@pytest.mark.parametrize("name", ["a", "Large_trade-2", "x" * 64])
def test_names_of_letters_digits_and_two_signs_are_taken(name: str) -> None:
    assert NewTrigger(name, "v", "https://example.org/", "{}").name == name


@pytest.mark.parametrize("name", ["", "a:b", "a b", "é", "x" * 65, "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        NewTrigger(name, "v", "https://example.org/", "{}")
    assert caught.value.field == "name"


def test_a_where_is_kept_exactly_and_told_by_its_content() -> None:
    exact = {"qty": {"_gt": Decimal("0.1000000000000000055511151231257827")}, "a": {"_in": [1]}}
    text = where_text(exact)
    assert read_where(text) == exact
    assert where_text({"a": {"_in": [1]}, "qty": exact["qty"]}) == text
