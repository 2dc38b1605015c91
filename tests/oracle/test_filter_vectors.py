"""The shared filter vectors, through the predicate and through both stores."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.contract.views_home import ViewsHome
from tests.generated.filters import Row
from tests.oracle.filter_stores import FilledStores, by_predicate, by_reference
from tests.reference.instants import parse_instant
from tidemark.live.filters import parse_filter
from tidemark.pipeline.output.encoding import row_key
from tidemark.pipeline.output.schema import Column, ViewSchema

pytest_plugins = ("tests.contract.views_fixtures",)

VECTORS = Path(__file__).parents[1] / "vectors"
UNTYPED = {
    "id": "Int",
    "sym": "String",
    "qty": "Int",
    "px": "Decimal",
    "ok": "Boolean",
    "at": "Timestamp",
}


def column(name: str, kind: Any) -> Column:
    if isinstance(kind, dict):
        return Column(name, "enum", tuple(kind["enum"]))
    return Column(name, kind.lower())


def value(kind: Any, given: Any) -> Any:
    if given is None or isinstance(kind, dict):
        return given
    match kind:
        case "BigInt":
            return int(given)
        case "Decimal":
            return Decimal(str(given))
        case "Timestamp":
            return parse_instant(given)
        case _:
            return given


@pytest.mark.parametrize("name", ["filters.json", "filters_typed.json"])
async def test_every_vector_finds_its_rows_in_python_and_on_both_stores(
    sqlite_views_home: ViewsHome, postgres_views_home: ViewsHome, name: str
) -> None:
    vectors = json.loads((VECTORS / name).read_text())
    types = vectors.get("types", UNTYPED)
    schema = ViewSchema("v", tuple(column(*pair) for pair in types.items()), ("id",), "first")
    rows: list[Row] = [
        {name: value(types[name], given) for name, given in row.items()} for row in vectors["rows"]
    ]
    stores = FilledStores(await sqlite_views_home.open(), await postgres_views_home.open())
    schema = await asyncio.to_thread(stores.fill, schema, rows)
    assert len(vectors["cases"]) >= 12
    for case in vectors["cases"]:
        filter = parse_filter(schema, case["where"])
        expected = sorted(row_key(schema, [number]) for number in case["ids"])
        assert by_reference(schema, case["where"], rows) == expected
        assert by_predicate(schema, filter, rows) == expected
        assert await asyncio.to_thread(stores.found, schema, filter) == [expected, expected]
