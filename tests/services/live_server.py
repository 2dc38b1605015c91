"""A real server whose views a test feeds by hand, so that what is live needs no Spark.

    with LiveServer() as live:
        live.commit([position("a", "X", "1")])

The feeding has a thread and an event loop of its own, so tests may share a server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests.services.fed_views import FedViews, Row
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import load_config
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.views.opening import open_views
from tidemark.views.port import ViewsStore

T = TypeVar("T")

VIEW: Final = "positions"
SERVED_WITHIN_S: Final = 30.0
POLL_S: Final = 0.05


def position(account: str, symbol: str = "X", quantity: str = "1", **values: Any) -> Row:
    """A row of the sample's view `positions`, whose key is account and symbol."""
    return {
        "tenant_id": "acme",
        "trade_id": "1",
        "account": account,
        "symbol": symbol,
        "side": "buy",
        "quantity": Decimal(quantity),
        "price": Decimal("1.5"),
        "executed_at": 1,
        "row_ts": 1,
        "row_seq": 1,
        **values,
    }


class LiveServer:
    """A server over the view `positions`; nobody but this object commits to it."""

    def __init__(
        self,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        *,
        store_url: str | None = None,
    ) -> None:
        """Without `store_url` everything is in SQLite."""
        self.server = TidemarkServer(config, env, ledger_url=store_url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._store: ViewsStore
        self._fed: FedViews

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.server.start()
            self._run(self._open())
            self.wait_until_served()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"{self.server.websocket_url}/graphql"

    @property
    def received_at(self) -> int:
        """When the last commit was received."""
        return self._fed.received_at

    def commit(
        self, rows: Sequence[Row] = (), *, deleted: Sequence[Row] = (), after_us: int | None = None
    ) -> int:
        """Rows as they are from now on; says when that was received, so long after the last."""
        at = None if after_us is None else self.received_at + after_us
        return self._run(self._fed.commit(VIEW, rows, deleted=deleted, received_at=at))

    def prune(self, older_than: int) -> int:
        """Forget changes, as the pipeline does; says how many."""
        return self._run(self._store.prune_changes(older_than))

    def build_anew(self, removed: str = "views.db*") -> None:
        """While the server runs: remove files of the views, then begin again."""
        self._run(self._store.close())
        for path in self.server.ledger_file.parent.glob(removed):
            path.unlink()
        self._run(self._open())

    def start(self) -> None:
        """Again, after it was stopped or killed."""
        self.server.start()
        self.wait_until_served()

    def wait_until_served(self) -> None:
        deadline = time.monotonic() + SERVED_WITHIN_S
        while self._answers() == 503:
            assert time.monotonic() < deadline, self.server.log_tail()
            time.sleep(POLL_S)

    def close(self) -> None:
        if self._thread.is_alive():
            if hasattr(self, "_store"):
                self._run(self._store.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self.server.close()

    async def _open(self) -> None:
        config = load_config(self.server.config_path, self.server.env)
        [table] = [table for table in Definitions.of(config).tables if table.name == VIEW]
        self._store = await open_views(config)
        self._fed = FedViews(self._store, [table_schema(table, ())])
        await self._fed.declare()

    def _answers(self) -> int:
        body = {"query": "{ __typename }"}
        return call(self.server.base_url, "POST", "/graphql", json=body).status

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)
