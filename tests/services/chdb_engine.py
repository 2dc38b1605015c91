"""The engine of chDB in this process, kept open so that opening a directory again takes no time.

A process has one directory of it at a time, so who keeps one gives each test a database of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import clickhouse_connect
import pyarrow as pa

from tidemark.config.urls import CHDB_PREFIX


class ChdbEngine:
    """A directory, and plain statements past whoever else has it open in this process."""

    def __init__(self, path: Path) -> None:
        self.url = f"{CHDB_PREFIX}{path}"
        self._client = clickhouse_connect.get_client(interface="chdb", path=str(path))
        self._numbers = count(1)

    def new_database(self) -> str:
        return f"database_{next(self._numbers)}"

    def run(self, statement: str) -> None:
        self._client.command(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._client.query(query).result_rows]

    def table(self, query: str) -> pa.Table:
        return self._client.query_arrow(query)

    def insert(self, database: str, table: str, rows: pa.Table) -> None:
        self._client.insert_arrow(table, rows, database=database)

    def close(self) -> None:
        self._client.close()


@contextmanager
def chdb_engine(path: Path) -> Iterator[ChdbEngine]:
    engine = ChdbEngine(path)
    try:
        yield engine
    finally:
        engine.close()
