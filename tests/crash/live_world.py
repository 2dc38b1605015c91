"""Servers over views that are fed by hand, to be killed while rows change and triggers fire."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

from tests.crash.live_past import Key, Past, Row, Where, key_of
from tests.crash.variants import VariantServer
from tests.services.fed_views import FIRST_RECEIVED_AT, FedViews
from tests.services.http_calls import call
from tests.services.live_server import VIEW, position
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import Config, load_config
from tidemark.config.sample import sample_text
from tidemark.live.triggers.definition import Trigger
from tidemark.live.triggers.opening import open_triggers
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.pipeline.output.batch import Frontier, ViewBatch
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.pipeline.output.port import ViewRow
from tidemark.pipeline.output.schema import ViewSchema
from tidemark.views.opening import open_views
from tidemark.views.port import RowQuery, ViewsStore

SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
COMMIT_STEP_US: Final = 1_000
AGAIN_S: Final = 0.05
ANSWERED_WITHIN_S: Final = 60.0
# What a server says while a store is away or its parts are not there yet.
PASSING: Final = frozenset({"views_not_ready", "views_unavailable", "triggers_unavailable"})

SETTINGS: Final = f"""
webhooks:
  secrets: [{SECRET}]
  allow: [127.0.0.1]
  first_retry: 20ms
  max_retry: 100ms
"""
DECLARED: Final = "declared"
DECLARED_MATCH: Final[Where] = {"quantity": {"_gte": "10"}}
DECLARED_UNMATCH: Final[Where] = {"quantity": {"_lt": "5"}}


def settings(webhook: str) -> str:
    """The sample, with a trigger that it declares and webhooks that are tried again at once."""
    return f"""{sample_text()}{SETTINGS}
triggers:
  {DECLARED}:
    view: {VIEW}
    webhook: {webhook}
    match: {{quantity: {{_gte: 10}}}}
    unmatch: {{quantity: {{_lt: 5}}}}
"""


class Refused(Exception):
    """GraphQL has answered with this error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code


class PatientSink:
    """A store of views that is asked again until it has a batch."""

    def __init__(self, store: ViewsStore) -> None:
        self._store = store

    async def declare(self, views: Sequence[ViewSchema]) -> None:
        await self._store.declare(views)

    async def frontier(self) -> Frontier | None:
        return await self._store.frontier()

    async def commit(self, batch: ViewBatch) -> bool:
        while True:
            try:
                return await self._store.commit(batch)
            except ViewsUnavailable:
                await asyncio.sleep(AGAIN_S)

    async def read_state(self, view: str, row_keys: Sequence[str]) -> list[ViewRow]:
        return await self._store.read_state(view, row_keys)

    async def read_pipeline_state(self) -> dict[str, bytes]:
        return await self._store.read_pipeline_state()

    async def close(self) -> None:
        await self._store.close()


class LiveWorld:
    """One deployment: some servers, not yet started, on one state directory and one store."""

    def __init__(
        self,
        directory: Path,
        config: str,
        *,
        store_url: str | None = None,
        servers: int = 1,
        variant: str = "",
    ) -> None:
        """Without `store_url` everything is in SQLite, in `directory`."""
        self._directory = directory
        state = {"TIDEMARK_STATE_DIR": str(directory / "state")}
        self.servers = [
            VariantServer(
                variant, config=config, env=state, ledger_url=store_url, directory=directory
            )
            for _ in range(servers)
        ]
        self.past = Past()
        self.committed = 0
        self.config: Config
        self.schema: ViewSchema
        self.store: ViewsStore
        self._fed: FedViews

    async def __aenter__(self) -> Self:
        server = self.servers[0]
        self.config = load_config(server.config_path, server.env)
        [table] = [table for table in Definitions.of(self.config).tables if table.name == VIEW]
        self.schema = table_schema(table, ())
        self.store = await open_views(self.config)
        self._fed = FedViews(PatientSink(self.store), [self.schema])
        await self._fed.declare()
        return self

    async def __aexit__(self, *_: object) -> None:
        for number, server in enumerate(self.servers):
            (self._directory / f"server-{number}.log").write_text(server.log_text())
            await asyncio.to_thread(server.close)
        await self.store.close()

    async def commit(self, rows: Sequence[Row] = (), *, deleted: Sequence[Row] = ()) -> int:
        """Rows as they are from now on, known to the past before anybody can see them."""
        changed: dict[Key, Row | None] = {key_of(row): row for row in rows}
        changed |= {key_of(row): None for row in deleted}
        received_at = (self._fed.received_at or FIRST_RECEIVED_AT) + COMMIT_STEP_US
        self.past.add(received_at, changed)
        await self._store(rows, deleted, received_at)
        return received_at

    async def replay(self, past: Past) -> None:
        """Another past, commit by commit, from nothing."""
        rows: dict[Key, Row] = {}
        for received_at, changed in past.commits:
            deleted = [rows.pop(key) for key, row in changed.items() if row is None]
            kept = {key: row for key, row in changed.items() if row is not None}
            rows |= kept
            self.past.add(received_at, changed)
            await self._store(list(kept.values()), deleted, received_at)

    async def _store(self, rows: Sequence[Row], deleted: Sequence[Row], received_at: int) -> None:
        await self._fed.commit(VIEW, rows, deleted=deleted, received_at=received_at)
        self.committed = received_at

    async def ask(
        self, query: str, *, server: TidemarkServer | None = None, **variables: Any
    ) -> dict[str, Any]:
        """The data of an answer, however often it takes to get one; `Refused` for an error."""
        asked = server or self.servers[0]
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while True:
                try:
                    return await asyncio.to_thread(_asked, asked.base_url, query, variables)
                except (OSError, HTTPException):
                    pass
                except Refused as refused:
                    if refused.code not in PASSING:
                        raise
                await asyncio.sleep(AGAIN_S)

    async def triggers(self) -> list[Trigger]:
        """Every life that a trigger ever had, from the store itself."""
        store = await open_triggers(self.config)
        try:
            return await store.listed(ended=True)
        finally:
            await store.close()

    async def until_declared(self) -> int:
        """Waits for the trigger of the configuration; its `since`."""
        deadline = time.monotonic() + ANSWERED_WITHIN_S
        while True:
            for trigger in await self.triggers():
                if trigger.name == DECLARED:
                    return trigger.since
            assert time.monotonic() < deadline, "the trigger of the configuration is not made"
            await asyncio.sleep(AGAIN_S)

    async def stored_rows(self) -> dict[Key, Row]:
        found = await self.store.select(VIEW, RowQuery())
        rows = [dict(zip(found.columns, row.values, strict=True)) for row in found.rows]
        return {key_of(row): row for row in rows}


def some_change(choose: random.Random, present: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows to commit and rows to delete: few keys, around the thresholds of the triggers."""
    gone = choose.sample(present, 1) if present and choose.random() < 0.15 else []
    taken = {key_of(row) for row in gone}
    rows: dict[Key, Row] = {}
    for _ in range(choose.randint(0 if gone else 1, 4)):
        row = position(
            f"account-{choose.randrange(5)}",
            choose.choice(["X", "Ü"]),
            str(choose.randrange(15)),
            side=choose.choice(["buy", "sell"]),
        )
        if key_of(row) not in taken:
            rows[key_of(row)] = row
    return list(rows.values()), list(gone)


def kill_database(choose: random.Random, postgres: PostgresServer) -> str:
    """Ends PostgreSQL in one of two rude ways and starts it again; says how."""
    if choose.random() < 0.5:
        said = "PostgreSQL, SIGKILL"
        postgres.kill()
    else:
        said = "PostgreSQL, immediate stop"
        postgres.stop("immediate")
    postgres.start()
    return said


def _asked(base_url: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    answer = call(base_url, "POST", "/graphql", json={"query": query, "variables": variables}).json
    errors = answer.get("errors") or ([answer["error"]] if "error" in answer else [])
    if errors:
        code = errors[0].get("code") or errors[0].get("extensions", {}).get("code", "")
        raise Refused(code, errors[0]["message"])
    data: dict[str, Any] = answer["data"]
    return data
