"""How a subscriber is brought to the present, over a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.views_home import POSITIONS, ViewsHome, position
from tests.oracle.subscribers import Client, Connection, new_hub
from tests.services.fed_views import FedViews
from tidemark.live.errors import CannotResume, ViewNotReady
from tidemark.live.filters import parse_filter

EVERYTHING = parse_filter(POSITIONS, {})


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ViewsHome]:
    place = ViewsHome(f"sqlite:///{tmp_path / 'views.db'}")
    yield place
    await place.close()


async def test_a_view_that_the_pipeline_has_not_made_is_not_ready(home: ViewsHome) -> None:
    connection = Connection(Client(progress=True), new_hub(await home.open()), EVERYTHING)
    await connection.joined()
    assert isinstance(connection.failed, ViewNotReady)
    await connection.leave()


async def test_views_that_are_built_anew_end_those_who_watched_the_old_ones(
    home: ViewsHome,
) -> None:
    store = await home.open()
    fed = FedViews(store, [POSITIONS])
    await fed.declare()
    await fed.commit(POSITIONS.name, [position(region="a")])
    hub = new_hub(store)
    connection = Connection(Client(progress=True), hub, EVERYTHING)
    await connection.joined()
    await home.empty()
    await hub.look()
    assert isinstance(connection.failed, CannotResume)
    await connection.leave()


async def test_one_who_resumes_too_early_takes_nobody_with_it(home: ViewsHome) -> None:
    store = await home.open()
    fed = FedViews(store, [POSITIONS])
    await fed.declare()
    first = await fed.commit(POSITIONS.name, [position(region="a")])
    second = await fed.commit(POSITIONS.name, [position(region="b")])
    await store.prune_changes(second)
    hub = new_hub(store)
    late = Client(progress=True)
    late.last_progress = first - 1
    too_early = Connection(late, hub, EVERYTHING)
    other = Connection(Client(progress=True), hub, EVERYTHING)
    await too_early.joined()
    await other.joined()
    assert isinstance(too_early.failed, CannotResume)
    assert too_early.failed.field == "after"
    await fed.commit(POSITIONS.name, [position(region="c")])
    await hub.look()
    assert other.failed is None
    assert len(other.client.rows) == 3
    await too_early.leave()
    await other.leave()


async def test_an_error_of_our_own_ends_a_subscription_and_not_the_hub(
    home: ViewsHome, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await home.open()
    fed = FedViews(store, [POSITIONS])
    await fed.declare()
    await fed.commit(POSITIONS.name, [position(region="a")])
    hub = new_hub(store)
    broken = Connection(Client(progress=True), hub, EVERYTHING)
    await broken.joined()
    monkeypatch.setattr(broken.client, "hears", None)
    await fed.commit(POSITIONS.name, [position(region="b")])
    await hub.look()
    assert broken.failed is not None
    assert "could not be published" in caplog.text
    await broken.leave()
    other = Connection(Client(progress=True), hub, EVERYTHING)
    await other.joined()
    await fed.commit(POSITIONS.name, [position(region="c")])
    await hub.look()
    assert len(other.client.rows) == 3
    await other.leave()


async def test_what_is_watched_by_nobody_is_not_kept(home: ViewsHome) -> None:
    store = await home.open()
    fed = FedViews(store, [POSITIONS])
    await fed.declare()
    await fed.commit(POSITIONS.name, [position(region="a")])
    hub = new_hub(store)
    connections = [Connection(Client(progress=True), hub, EVERYTHING) for _ in range(2)]
    for connection in connections:
        await connection.joined()
    assert (hub._attached, len(list(hub.counts()))) == (2, 1)
    await connections[0].leave()
    assert (hub._attached, len(list(hub.counts()))) == (1, 1)
    await connections[1].leave()
    assert (hub._attached, len(list(hub.counts()))) == (0, 0)
    running = asyncio.create_task(hub.run())
    await asyncio.sleep(0.01)
    running.cancel()
