"""What stands ready for a whole run, and how much of everything is measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec

from benchmarks.ingest.services import CpuMeter, postmaster_pid
from benchmarks.live import engine
from benchmarks.live.clients import Clients
from benchmarks.live.engine import EngineScale
from benchmarks.live.feed import FedRows, Feed
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import load_config
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.views.opening import open_views

Store = Literal["sqlite", "postgres"]
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgres")
SERVED_WITHIN_S: Final = 30.0

STREAM: Final = {
    "identity": ["trade_id"],
    "fields": {
        "trade_id": "string",
        "account": "string",
        "symbol": "string",
        "side": {"type": "enum", "values": ["buy", "sell"]},
        "quantity": "decimal",
        "price": "decimal",
        "executed_at": "timestamp",
    },
}


class Cell(msgspec.Struct, frozen=True):
    """So many clients that all see every change; so many changes in a commit, and at most so many
    that not all clients have had when the next are committed.
    """

    clients: int
    commit_changes: int
    outstanding: int


class Scale(msgspec.Struct, frozen=True):
    """How much is measured."""

    engine: EngineScale
    stores: tuple[Store, ...]
    cells: tuple[Cell, ...]
    settle_seconds: float
    seconds: float
    rows: int
    changes_per_s: int
    filtered_clients: int
    idle_clients: int
    views: int
    clients_per_view: int
    rows_per_view: int
    webhooks: int
    webhook_rows: int


FULL: Final = Scale(
    engine=engine.FULL,
    stores=STORES,
    cells=(Cell(1, 100, 2_000), Cell(100, 10, 400), Cell(1_000, 1, 50), Cell(1_000, 10, 100)),
    settle_seconds=2.0,
    seconds=10.0,
    rows=100_000,
    changes_per_s=1_000,
    filtered_clients=100,
    idle_clients=1_000,
    views=20,
    clients_per_view=50,
    rows_per_view=5_000,
    webhooks=10_000,
    webhook_rows=5_000,
)
QUICK: Final = Scale(
    engine=engine.QUICK,
    stores=("sqlite",),
    cells=(Cell(1, 10, 100), Cell(10, 1, 50)),
    settle_seconds=0.1,
    seconds=0.3,
    rows=500,
    changes_per_s=200,
    filtered_clients=5,
    idle_clients=20,
    views=2,
    clients_per_view=4,
    rows_per_view=100,
    webhooks=50,
    webhook_rows=20,
)


class Used(msgspec.Struct, frozen=True):
    """What was used meanwhile, in parts of one core. The feeder's includes its store's client."""

    server: float
    clients: float
    feeder: float
    postgres: float | None


class Rig:
    """PostgreSQL with everything flushed, the clients, and homes for servers."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.home = Path(tempfile.mkdtemp(prefix="tidemark-bench-"))
        self.postgres = PostgresServer(durable=True)
        self.clients = Clients()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.home, ignore_errors=True)
        self._stack.enter_context(self.postgres)
        self._stack.enter_context(self.clients)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @contextlib.asynccontextmanager
    async def served(
        self, store: Store, views: Sequence[str], rows: int, accounts: int
    ) -> AsyncIterator[Served]:
        """A server over loaded views. Its ledger is empty, and no pipeline runs."""
        document = {
            "streams": {"trades": STREAM},
            "views": {name: {"stream": "trades", "key": ["trade_id"]} for name in views},
        }
        url = self.postgres.create_database() if store == "postgres" else None
        env = {} if url is None else {"TIDEMARK_VIEW_STORE__URL": url}
        # Everything that is not named has its default.
        with TidemarkServer(json.dumps(document), env, directory=self.home, forked=False) as server:
            config = load_config(server.config_path, dict(server.env))
            tables = {table.name: table for table in Definitions.of(config).tables}
            opened = await open_views(config)
            try:
                schemas = [table_schema(tables[name], ()) for name in views]
                feed = Feed(opened, [FedRows(schema, rows, accounts) for schema in schemas])
                await feed.load()
                await _until_served(server.port)
                postgres_pid = postmaster_pid(self.postgres) if url is not None else None
                yield Served(server, feed, self.clients, postgres_pid)
            finally:
                await opened.close()


class Served:
    """A server, who feeds its views, and who listens."""

    def __init__(
        self, server: TidemarkServer, feed: Feed, clients: Clients, postgres_pid: int | None
    ) -> None:
        self.feed = feed
        self.clients = clients
        self.port = server.port
        self._pid = server.pid
        self._server_cpu = CpuMeter(server.pid)
        self._postgres_cpu = None if postgres_pid is None else CpuMeter(postgres_pid)

    def rss_mib(self) -> float:
        """The memory of the server."""
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1_024
        raise RuntimeError("the server has no memory")

    async def begin(self) -> Begun:
        """Look at all clocks."""
        seen = await self.clients.look()
        self._server_cpu.start()
        if self._postgres_cpu is not None:
            self._postgres_cpu.start()
        return Begun(seen.messages, seen.reads, seen.at_s, seen.cpu_s, time.process_time())

    async def end(self, begun: Begun) -> Ended:
        """Look at them again."""
        seen = await self.clients.look()
        seconds = seen.at_s - begun.at_s
        postgres = self._postgres_cpu
        return Ended(
            messages=seen.messages - begun.messages,
            reads=seen.reads - begun.reads,
            seconds=seconds,
            used=Used(
                server=self._server_cpu.share(seconds),
                clients=(seen.cpu_s - begun.clients_cpu_s) / seconds,
                feeder=(time.process_time() - begun.feeder_cpu_s) / seconds,
                postgres=None if postgres is None else postgres.share(seconds),
            ),
        )


class Begun(msgspec.Struct, frozen=True):
    messages: int
    reads: int
    at_s: float
    clients_cpu_s: float
    feeder_cpu_s: float


class Ended(msgspec.Struct, frozen=True):
    """What has come since, in how many pieces."""

    messages: int
    reads: int
    seconds: float
    used: Used


async def _until_served(port: int) -> None:
    deadline = time.monotonic() + SERVED_WITHIN_S
    while await asyncio.to_thread(_status, port) == 503:
        if time.monotonic() > deadline:
            raise RuntimeError("GraphQL is not served in time")
        await asyncio.sleep(0.05)


def _status(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = json.dumps({"query": "{ __typename }"})
        connection.request("POST", "/graphql", body, {"content-type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()
