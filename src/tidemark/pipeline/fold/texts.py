"""Rows and keys as text, many at once: what `output.encoding` writes, as SQL for DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import ARROW

from tidemark.pipeline.output.encoding import MAX_ROW_KEY_BYTES, bounded_key
from tidemark.pipeline.output.schema import Column, ViewSchema

# Spark gives a task one core; and nothing may be fetched from anywhere.
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
}
_CONTROL_CHARACTERS: Final = r"[\x00-\x1f]"

WIDE: Final = "DECIMAL(38, 9)"


def open_database() -> duckdb.DuckDBPyConnection:
    """A database in memory that can write texts and keys."""
    database = duckdb.connect(config=_SETTINGS)
    for name, function in (("json_text", _json_texts), ("bounded_key", _bounded_keys)):
        database.create_function(name, function, ["varchar"], "varchar", type=ARROW)
    return database


def json_sql(value: str, kind: str) -> str:
    """How a value of a column stands in JSON."""
    if kind in ("string", "enum"):
        text = f"json_text({value})"
    elif kind == "decimal":
        # Most are whole, and those are quicker to write than to trim of nine zeros.
        text = (
            f"CASE WHEN {value} % 1 = 0 THEN concat('\"', {value}::HUGEINT, '\"')"
            f" ELSE concat('\"', rtrim({value}::{WIDE}::VARCHAR, '0'), '\"') END"
        )
    elif kind == "timestamp":
        text = f"""strftime(make_timestamp({value}), '"%Y-%m-%dT%H:%M:%S.%fZ"')"""
    elif kind == "bigint":
        text = f"concat('\"', {value}::BIGINT, '\"')"
    else:
        text = f"{value}::VARCHAR"
    return f"CASE WHEN {value} IS NULL THEN 'null' ELSE {text} END"


def row_sql(schema: ViewSchema, prefix: str = "") -> str:
    """The text of a row, from its visible columns."""
    return object_sql(
        f"""'"{column.name}":', {json_sql(prefix + quoted(column.name), column.type)}"""
        for column in sorted(schema.visible, key=lambda column: column.name)
    )


def object_sql(members: Iterable[str]) -> str:
    """An object of members, each some arguments of `concat`."""
    return "concat('{', " + ", ',', ".join(members) + ", '}')"


def key_sql(columns: Sequence[Column], prefix: str = "") -> str:
    """The key of a row, from the columns of the key."""
    values = (json_sql(prefix + quoted(column.name), column.type) for column in columns)
    return "bounded_key(concat('[', " + ", ',', ".join(values) + ", ']'))"


def quoted(name: str) -> str:
    return f'"{name}"'


def _json_texts(values: pa.Array) -> pa.Array:
    """Strings in JSON: only what JSON demands is escaped."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    escaped = pc.replace_substring(values, "\\", "\\\\")
    escaped = pc.replace_substring(escaped, '"', '\\"')
    rare = pc.match_substring_regex(values, _CONTROL_CHARACTERS)
    result = pc.binary_join_element_wise('"', escaped, '"', "")
    if not pc.any(rare).as_py():
        return result
    texts = result.to_pylist()
    for place, is_rare in enumerate(rare.to_pylist()):
        if is_rare:
            texts[place] = msgspec.json.encode(values[place].as_py()).decode()
    return pa.array(texts, pa.string())


def _bounded_keys(keys: pa.Array) -> pa.Array:
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    long = pc.greater(pc.binary_length(keys), MAX_ROW_KEY_BYTES)
    if not pc.any(long).as_py():
        return keys
    return pa.array([bounded_key(key.as_py().encode()) for key in keys], pa.string())
