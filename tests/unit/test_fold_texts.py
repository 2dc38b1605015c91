"""Rows and keys as SQL writes them are those that `output.encoding` writes, for any values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.instants import instant_us
from tidemark.pipeline.fold.parts import ARROW_TYPES
from tidemark.pipeline.fold.texts import key_sql, open_database, row_sql
from tidemark.pipeline.output.encoding import MAX_ROW_KEY_BYTES, encode_rows, row_keys
from tidemark.pipeline.output.schema import Column, Value, ViewSchema

COLUMNS = (
    Column("words", "string"),
    Column("kind", "enum", ("a",)),
    Column("number", "int"),
    Column("big", "bigint"),
    Column("amount", "decimal"),
    Column("moment", "timestamp"),
    Column("flag", "boolean"),
    Column("tree", "json"),
)
SCHEMA = ViewSchema("texts", COLUMNS, tuple(c.name for c in COLUMNS if c.type != "json"), "")
# What a decimal(38,9) holds.
LARGEST = Decimal("9" * 29 + "." + "9" * 9)
FIRST = instant_us(datetime(1, 1, 1, tzinfo=UTC))
LAST = instant_us(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))

WORDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("\x00\x01\t\n\x1f\x7f\"\\/'ü💧\u2028"), max_size=8),
    # On both sides of the limit of a key.
    st.integers(MAX_ROW_KEY_BYTES - 120, MAX_ROW_KEY_BYTES + 8).map(lambda size: "ü" * (size // 2)),
    st.integers(MAX_ROW_KEY_BYTES - 120, MAX_ROW_KEY_BYTES + 8).map(lambda size: "a" * size),
)
BILLIONTHS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.integers(-20, 20).map(lambda number: number * 10**9),
    st.integers(-20, 20),
    st.sampled_from([10**9 * 10**28, 1 - 10**38, 10**38 - 1, 5 * 10**8, -(10**9 * 10**18)]),
)
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "words": WORDS,
    "kind": WORDS,
    "number": st.integers(-(2**31), 2**31 - 1),
    "big": st.integers(-(2**63), 2**63 - 1),
    "amount": BILLIONTHS.map(lambda billionths: Decimal(f"{billionths}E-9")),
    "moment": st.integers(FIRST, LAST) | st.integers(-2, 2) | st.sampled_from([FIRST, LAST]),
    "flag": st.booleans(),
    "tree": st.recursive(st.none() | st.booleans() | WORDS, st.lists).map(
        lambda tree: msgspec.json.encode(tree).decode()
    ),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return open_database()


def written(
    database: duckdb.DuckDBPyConnection, columns: Mapping[str, Sequence[Value]]
) -> tuple[list[str], list[str]]:
    """The rows and the keys as SQL writes them."""
    arrays = {c.name: pa.array(columns[c.name], ARROW_TYPES[c.type]) for c in COLUMNS}
    database.register("given", pa.table(arrays))
    found = database.sql(
        f"SELECT {row_sql(SCHEMA)}, {key_sql(SCHEMA.key_columns, 'given.')} FROM given"
    ).fetchall()
    rows, keys = zip(*found, strict=True)
    return list(rows), list(keys)


@settings(max_examples=150)
@given(rows=ROWS)
def test_sql_writes_the_texts_that_the_encoder_writes(
    database: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Value]]
) -> None:
    columns = {name: [row[name] for row in rows] for name in VALUES}
    expected = encode_rows(SCHEMA, columns), row_keys(SCHEMA, columns)
    assert written(database, columns) == expected


def test_many_rows_at_once_keep_their_places(database: duckdb.DuckDBPyConnection) -> None:
    # More than one vector of the engine, with nulls, escapes and long keys among plain values.
    words = [None, "plain", "\x1f", 'a"b\\', "ü" * 600, "x" * 1100, ""]
    count = 5_000
    columns: dict[str, list[Value]] = {name: [None] * count for name in VALUES}
    columns["words"] = [words[i % len(words)] for i in range(count)]
    columns["big"] = list(range(count))
    expected = encode_rows(SCHEMA, columns), row_keys(SCHEMA, columns)
    assert written(database, columns) == expected
