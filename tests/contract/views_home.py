"""A place for views, and a view of every type to put there."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec

from tests.contract.events import START
from tidemark.ledger.migrations import Migration
from tidemark.pipeline.output.batch import (
    DELETE,
    INSERT,
    UPDATE,
    Adjustment,
    Changes,
    ErrorRow,
    Frontier,
    RowWrites,
    ViewBatch,
)
from tidemark.pipeline.output.encoding import encode_names, encode_row, row_key
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import Column, Value, ViewSchema
from tidemark.views import postgres, sqlite
from tidemark.views.port import RowFilter
from tidemark.views.postgres import PostgresViews
from tidemark.views.sqlite import SqliteViews

Views: TypeAlias = SqliteViews | PostgresViews
Values: TypeAlias = dict[str, Value]

SQLITE_SCHEME: Final = "sqlite:///"
EVERYTHING: Final = 1_000_000

POSITIONS: Final = ViewSchema(
    name="positions",
    columns=(
        Column("tenant_id", "string"),
        Column("region", "string"),
        Column("since", "timestamp"),
        Column("quantity", "decimal"),
        Column("trades", "bigint"),
        Column("rank", "int"),
        Column("open", "boolean"),
        Column("side", "enum", values=("sell", "buy", "it's both")),
        Column("note", "json"),
        Column("memory", "string", hidden=True),
        Column("sum_of_all", "decimal", hidden=True),
    ),
    key=("tenant_id", "region"),
    definition_hash="first",
)
VISIBLE: Final = tuple(column.name for column in POSITIONS.visible)


class ViewsHome:
    """A place for views. It may be opened several times, as several processes would."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "sqlite" if url.startswith(SQLITE_SCHEME) else "postgres"
        self._opened: list[Views] = []

    async def open(self) -> Views:
        views: Views
        if self.kind == "sqlite":
            views = await SqliteViews.open(self.place)
        else:
            views = await PostgresViews.open(self.place)
        self._opened.append(views)
        return views

    async def reopen(self) -> Views:
        """As a restart of the process would: everything is closed, then opened."""
        await self.close()
        return await self.open()

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def migrate(self, *, dry_run: bool = False) -> list[Migration]:
        if self.kind == "sqlite":
            return await asyncio.to_thread(sqlite.migrate, self.place, dry_run=dry_run)
        return await postgres.migrate(self.place, dry_run=dry_run)

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements past the store, as any tool with the database's address could."""
        if self.kind == "sqlite":
            return await asyncio.to_thread(self._sqlite_sql, statements)
        connection = await asyncpg.connect(
            self.url, server_settings={"search_path": postgres.SCHEMA}
        )
        try:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                rows = [tuple(row) for row in await connection.fetch(statement)]
            return rows
        finally:
            await connection.close()

    async def empty(self) -> None:
        """As if nothing had ever been committed; declared views stay."""
        tables = ("view_changes", "adjustments", "pipeline_errors", "pipeline_state")
        await self.sql(
            *(f"DELETE FROM {table}" for table in (*tables, POSITIONS.table)),
            "UPDATE frontier SET ingress_sequence = 0, received_at = 0, ledger_id = NULL",
            "UPDATE views SET log_floor = 0",
        )

    @property
    def place(self) -> Any:
        """What the store's own functions take: a path or a URL."""
        return Path(self.url.removeprefix(SQLITE_SCHEME)) if self.kind == "sqlite" else self.url

    def _sqlite_sql(self, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with closing(sqlite3.connect(self.place, isolation_level=None)) as connection:
            for statement in statements:
                rows = connection.execute(statement).fetchall()
        return rows


def position(tenant: str = "acme", region: str | None = None, **values: Value) -> Values:
    """A row; what is not given is null."""
    row: Values = dict.fromkeys(column.name for column in POSITIONS.columns)
    return row | {"tenant_id": tenant, "region": region} | values


def key_of(row: Mapping[str, Value], schema: ViewSchema = POSITIONS) -> str:
    return row_key(schema, [row[name] for name in schema.key])


def text_of(row: Mapping[str, Value], schema: ViewSchema = POSITIONS) -> str:
    return encode_row(schema, row)


def frontier(number: int, *, ledger_id: str = "ledger-1", history: str = "") -> Frontier:
    """The commit with this number: a second after the one before it, with ten events."""
    chain = hashlib.sha256(f"{history}{number}".encode()).digest()
    return Frontier(number * 10, START + number * 1_000_000, chain, ledger_id)


def at(number: int) -> int:
    """When the commit with this number was received."""
    return frontier(number).received_at


def writes(
    *rows: Values,
    commit: int,
    deleted: Sequence[Values] = (),
    schema: ViewSchema = POSITIONS,
) -> RowWrites:
    """Rows as they are after a commit, and rows that it has taken away."""
    return RowWrites(
        schema.name,
        [key_of(row, schema) for row in rows],
        [at(commit)] * len(rows),
        [[row[column.name] for row in rows] for column in schema.columns],
        [key_of(row, schema) for row in deleted],
    )


def changes(
    *pairs: tuple[int, Values | None, Values | None], schema: ViewSchema = POSITIONS
) -> Changes:
    """Changes of rows from what they were to what they are, each at a commit."""
    lines = []
    for commit, old, new in pairs:
        row = new if new is not None else old
        assert row is not None
        operation = INSERT if old is None else DELETE if new is None else UPDATE
        changed = None
        if old is not None and new is not None:
            changed = encode_names(
                column.name for column in schema.visible if old[column.name] != new[column.name]
            )
        lines.append(
            (
                at(commit),
                key_of(row, schema),
                operation,
                None if old is None else text_of(old, schema),
                None if new is None else text_of(new, schema),
                changed,
            )
        )
    columns = [list(column) for column in zip(*lines, strict=True)] or [[] for _ in range(6)]
    return Changes(schema.name, *columns)


def batch(start: int | None, end: int, **parts: Any) -> ViewBatch:
    """What is written between two commits, named by their numbers."""
    return ViewBatch(None if start is None else frontier(start), frontier(end), **parts)


def insertion(*rows: Values, commit: int = 1) -> ViewBatch:
    """Some rows that are new at a commit."""
    return batch(
        None if commit == 1 else commit - 1,
        commit,
        rows=[writes(*rows, commit=commit)],
        changes=[changes(*((commit, None, row) for row in rows))],
    )


def adjustment(sequence: int, *, commit: int = 1, **fields: Any) -> Adjustment:
    values: dict[str, Any] = {
        "ingress_sequence": sequence,
        "view": "usage_bytes",
        "part": 0,
        "received_at": at(commit),
        "tenant_id": "acme",
        "metric": "bytes",
        "customer_ref": "one",
        "group_values": "{}",
        "period_start": START,
        "amount": Decimal("1.5"),
        "reason": "late",
        "idempotency_key": f"key-{sequence}",
    }
    return Adjustment(**(values | fields))


def error(sequence: int, *, commit: int = 1, **fields: Any) -> ErrorRow:
    values: dict[str, Any] = {
        "ingress_sequence": sequence,
        "stage": "decode",
        "received_at": at(commit),
        "code": "invalid_json",
        "message": "why",
        "tenant_id": "acme",
        "stream": "trades",
        "idempotency_key": f"key-{sequence}",
    }
    return ErrorRow(**(values | fields))


async def all_rows(views: Views, view: str = "positions") -> list[ViewRow]:
    page = await views.read_rows(view, RowFilter(), limit=EVERYTHING)
    assert page.next_cursor is None
    return page.rows


async def everything(views: Views) -> dict[str, Any]:
    """All that a store says it holds, to see that something changed nothing."""
    shown = await views.read_changes("positions", 0, limit=EVERYTHING)
    keys = [row.row_key for row in await all_rows(views)]
    return {
        "frontier": await views.frontier(),
        "rows": await views.read_state("positions", keys),
        "changes": [msgspec.structs.astuple(change) for change in shown.changes],
        "state": await views.read_pipeline_state(),
        "fingerprint": await views.fingerprint(),
    }
