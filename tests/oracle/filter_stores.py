"""A filter judged four ways: by the reference, by the compiled predicate, and by both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from tests.contract.views_home import Views, batch, key_of, writes
from tests.generated.filters import Row, Where
from tests.reference.filters import Types, wanted
from tidemark.live.filters import Filter, compile_predicate, parse_filter, row_query
from tidemark.pipeline.output.schema import Value, ViewSchema

T = TypeVar("T")


class FilledStores:
    """Stores on the loop of a test, for a property that runs in a thread of its own."""

    def __init__(self, *stores: Views) -> None:
        self._stores = stores
        self._loop = asyncio.get_running_loop()
        self._commits = 0

    def fill(self, schema: ViewSchema, rows: Sequence[Row]) -> ViewSchema:
        """A new view with these rows in every store."""
        self._commits += 1
        number = self._commits
        named = msgspec.structs.replace(schema, name=f"view_{number}")
        written = writes(*rows, commit=number, schema=named)
        work = batch(None if number == 1 else number - 1, number, rows=[written])
        for store in self._stores:
            self._wait(store.declare([named]))
            self._wait(store.commit(work))
        return named

    def found(self, schema: ViewSchema, filter: Filter) -> list[list[str]]:
        """The keys of the rows that each store finds."""
        answers = [
            self._wait(store.select(schema.name, row_query(schema, filter, store.dialect)))
            for store in self._stores
        ]
        return [[row.row_key for row in answer.rows] for answer in answers]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def types_of(schema: ViewSchema) -> Types:
    return {column.name: column.values or column.type for column in schema.visible}


def visible(schema: ViewSchema, row: Row) -> tuple[Value, ...]:
    return tuple(row[column.name] for column in schema.visible)


def by_reference(schema: ViewSchema, where: Where, rows: Sequence[Row]) -> list[str]:
    types = types_of(schema)
    return sorted(key_of(row, schema) for row in rows if wanted(types, where, row))


def by_predicate(schema: ViewSchema, filter: Filter, rows: Sequence[Row]) -> list[str]:
    matches = compile_predicate(schema, filter)
    return sorted(key_of(row, schema) for row in rows if matches(visible(schema, row)))


def assert_all_agree(
    stores: FilledStores, schema: ViewSchema, rows: Sequence[Row], wheres: Sequence[Where]
) -> None:
    filled = stores.fill(schema, rows)
    for where in wheres:
        filter = parse_filter(filled, where)
        expected = by_reference(filled, where, rows)
        assert by_predicate(filled, filter, rows) == expected, where
        for found in stores.found(filled, filter):
            assert found == expected, where
