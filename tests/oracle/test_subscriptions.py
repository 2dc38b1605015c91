"""Whatever happens to subscribers, what they have folded is what SQL would find at that time.

Rows are committed in batches of some commits; clients join and leave at any moment, read slowly,
resume by PROGRESS or by the last timestamp they saw, and the server is started anew. After every
step each client is compared with the rows as of its own time, filtered by the reference.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure

from tests.contract.views_home import POSITIONS, SQLITE_SCHEME, Views, ViewsHome, at
from tests.contract.views_model import COMMITS, Model
from tests.generated.filters import filters
from tests.oracle.filter_stores import types_of
from tests.oracle.subscribers import ALL_COLUMNS, Client, Connection, Row, new_hub
from tests.reference.filters import wanted
from tidemark.live import hub as hub_module
from tidemark.live import snapshots
from tidemark.live.filters import parse_filter, row_query
from tidemark.live.hub import Hub
from tidemark.pipeline.output.encoding import encode_row

WHERES = filters(POSITIONS, depth=2) | st.just({})
TYPES = types_of(POSITIONS)
FEW_COLUMNS = ("tenant_id", "open")


def expected(model: Model, number: int, where: Any, columns: Sequence[str]) -> dict[str, Row]:
    rows = {}
    for row in model.states[number].values():
        if wanted(TYPES, where, row):
            whole = json.loads(encode_row(POSITIONS, row))
            shown = {name: whole[name] for name in {*POSITIONS.key, *columns}}
            rows[json.dumps([shown[name] for name in POSITIONS.key])] = shown
    return rows


class Story:
    """One run: what is committed, who listens, and what must then be true."""

    def __init__(self, store: Views, model: Model, wheres: list[Any], seed: int) -> None:
        self.store = store
        self.model = model
        self.wheres = wheres
        self.dice = random.Random(seed)
        self.committed = 0
        self.hub = new_hub(store)
        self.clients = [
            Client(progress=bool(n % 2), columns=self.dice.choice([ALL_COLUMNS, FEW_COLUMNS]))
            for n in range(len(wheres))
        ]
        self.connections: list[Connection | None] = [None] * len(wheres)

    async def tell(self) -> None:
        for number in range(len(self.clients)):
            await self.connect(number, fresh=False)
        while self.committed < self.model.last:
            await self.commit()
            for _ in range(self.dice.randint(3, 12)):
                await self.dice.choice(self.happenings)()
                self.check()
        await self.come_to_rest()

    @property
    def happenings(self) -> list[Callable[[], Any]]:
        return [self.look] * 4 + [self.beat, self.join, self.join, self.join, self.leave] * 2 + [
            self.slow_down, self.read_on, self.restart
        ]  # fmt: skip

    async def commit(self) -> None:
        end = self.dice.randint(self.committed + 1, min(self.model.last, self.committed + 3))
        await self.store.commit(self.model.batch(self.committed, end))
        self.committed = end

    async def look(self) -> None:
        await self.hub.look()

    async def beat(self) -> None:
        self.hub.beat()

    def one(self) -> int:
        return self.dice.randrange(len(self.clients))

    async def join(self) -> None:
        number = self.one()
        if self.connections[number] is None:
            await self.connect(number, fresh=self.dice.random() < 0.2)
            connection = self.connections[number]
            assert connection is not None
            if self.dice.random() < 0.6:
                await connection.joined()
            else:
                for _ in range(self.dice.randint(0, 5)):
                    await asyncio.sleep(0)

    async def connect(self, number: int, *, fresh: bool) -> None:
        wanted_rows = parse_filter(POSITIONS, self.wheres[number])
        self.connections[number] = Connection(
            self.clients[number], self.hub, wanted_rows, fresh=fresh
        )

    async def leave(self) -> None:
        number = self.one()
        connection, self.connections[number] = self.connections[number], None
        if connection is not None:
            await connection.leave()

    async def slow_down(self) -> None:
        connection = self.connections[self.one()]
        if connection is not None:
            connection.is_congested = True

    async def read_on(self) -> None:
        connection = self.connections[self.one()]
        if connection is not None:
            connection.reads_on()

    async def restart(self) -> None:
        """The server dies, and all it had in memory with it."""
        for connection in self.connections:
            if connection is not None:
                await connection.leave()
        self.connections = [None] * len(self.clients)
        self.hub = new_hub(self.store)

    async def come_to_rest(self) -> None:
        for number, connection in enumerate(self.connections):
            if connection is None:
                await self.connect(number, fresh=False)
            else:
                connection.reads_on()
        for connection in self.connections:
            assert connection is not None
            await connection.joined()
        while await self.hub.look():
            pass
        self.hub.beat()
        self.check()
        for client, connection, where in zip(
            self.clients, self.connections, self.wheres, strict=True
        ):
            assert connection is not None
            last = self.model.last
            assert client.rows == expected(self.model, last, where, client.columns), where
            found = await self.store.select(
                POSITIONS.name,
                row_query(POSITIONS, parse_filter(POSITIONS, where), self.store.dialect),
            )
            assert len(found.rows) == len(client.rows)
            if client.progress:
                assert client.last_progress == at(self.model.last)
            await connection.leave()

    def check(self) -> None:
        for connection, where in zip(self.connections, self.wheres, strict=True):
            if connection is not None:
                assert connection.failed is None, connection.failed
                self.check_client(connection.client, where)

    def check_client(self, client: Client, where: Any) -> None:
        """A client that was told of progress, and of nothing since, has the rows as of then."""
        told = client.last_progress
        if told is not None and (client.last_seen is None or client.last_seen <= told):
            number = self.number_of(told)
            assert client.rows == expected(self.model, number, where, client.columns), where

    def number_of(self, received_at: int) -> int:
        """The last commit up to a time; progress may be told between two commits."""
        return max((n for n in range(1, self.model.last + 1) if at(n) <= received_at), default=0)


async def tell(url: str, story: list[Any], wheres: list[Any], seed: int) -> None:
    home = ViewsHome(url)
    try:
        store = await home.open()
        await store.declare([POSITIONS])
        await home.empty()
        await Story(store, Model(story), wheres, seed).tell()
    finally:
        await home.close()


STORY = {
    "story": st.lists(COMMITS, min_size=4, max_size=10),
    "wheres": st.lists(WHERES, min_size=1, max_size=4),
    "seed": st.integers(0, 10_000),
}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there is something between two looks."""
    monkeypatch.setattr(hub_module, "CHANGES_AT_ONCE", 2)
    monkeypatch.setattr(snapshots, "ROWS_AT_ONCE", 1)


@given(**STORY)
def test_every_subscriber_sees_what_sql_finds_on_sqlite(
    story: list[Any], wheres: list[Any], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"{SQLITE_SCHEME}{Path(directory) / 'views.db'}"
        asyncio.run(tell(url, story, wheres, seed))


# PostgreSQL takes longer to be emptied than a story to be told.
@settings(max_examples=max(5, settings().max_examples // 10))
@given(**STORY)
def run_on_postgres(url: str, story: list[Any], wheres: list[Any], seed: int) -> None:
    asyncio.run(tell(url, story, wheres, seed))


def test_every_subscriber_sees_what_sql_finds_on_postgresql(postgres_url: str) -> None:
    run_on_postgres(postgres_url)


async def jump(
    self: Hub, store: Any, followed: Any, wanted: Any, watcher: Any, reached: int
) -> None:
    """Joins where the others are, and leaves out what was committed before."""
    watcher.since = max(reached, followed.position)


def test_a_row_lost_when_joining_between_commits_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Hub, "_catch_up", jump)

    @settings(phases=[Phase.generate], database=None, derandomize=True)
    @given(**STORY)
    def run(story: list[Any], wheres: list[Any], seed: int) -> None:
        asyncio.run(tell(f"{SQLITE_SCHEME}{tmp_path / 'views.db'}", story, wheres, seed))

    with pytest.raises((AssertionError, FlakyFailure)) as raised:
        run()
    # What is lost depends on who is quicker, and is perhaps not lost when it is tried once more.
    if isinstance(raised.value, FlakyFailure):
        assert raised.value.split(AssertionError)[1] is None


async def test_a_snapshot_cut_off_in_the_middle_is_completed_by_timestamp(tmp_path: Path) -> None:
    first, second = ("acme", None), ("acme", "eu")
    # The second row comes first; then something of it changes that the client does not select.
    model = Model([{second: {"open": True}}, {first: {"open": True}}, {second: {"trades": 5}}])
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'views.db'}")
    try:
        store = await home.open()
        await store.declare([POSITIONS])
        await store.commit(model.batch(0, 3))
        client = Client(progress=False, columns=("tenant_id",))
        everything = parse_filter(POSITIONS, {})
        hub = new_hub(store)
        cut_off = Connection(client, hub, everything)
        while not client.rows:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await cut_off.leave()
        assert len(client.rows) == 1
        again = Connection(client, hub, everything)
        await again.joined()
        assert client.rows == expected(model, 3, {}, client.columns)
        await again.leave()
    finally:
        await home.close()
