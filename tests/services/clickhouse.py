"""ClickHouse as somebody beside Tidemark has it: plain statements, past whoever else is there.

The engine of chDB is in this process, and has one directory at a time. As long as it is open here,
to open it again takes no time; so who keeps one gives each test a database of its own.
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


class Engine:
    """Made of an address as it stands in a configuration."""

    def __init__(self, url: str) -> None:
        self.url = url
        if url.startswith(CHDB_PREFIX):
            path = url.removeprefix(CHDB_PREFIX)
            self._client = clickhouse_connect.get_client(interface="chdb", path=path)
        else:
            self._client = clickhouse_connect.get_client(
                dsn=url, interface="http", autogenerate_session_id=False
            )
        self._numbers = count(1)

    def new_database(self) -> str:
        name = f"database_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return name

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
def chdb_engine(path: Path) -> Iterator[Engine]:
    """The engine on a directory."""
    engine = Engine(f"{CHDB_PREFIX}{path}")
    try:
        yield engine
    finally:
        engine.close()
