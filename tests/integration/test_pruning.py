"""How long the log of changes is kept for triggers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.services.fed_views import FedViews
from tests.services.live_server import VIEW, position
from tests.services.ports import free_port
from tidemark.app.pipeline import _try_to_prune, prune_changes
from tidemark.config import Config, load_config
from tidemark.config.sample import sample_text
from tidemark.live.triggers.definition import NewTrigger
from tidemark.live.triggers.opening import open_triggers
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.pipeline.output.errors import ChangesForgotten
from tidemark.views.opening import open_views
from tidemark.views.port import ViewsStore


def config(directory: Path, **env: str) -> Config:
    path = directory / "tidemark.yaml"
    path.write_text(sample_text())
    settings = {"TIDEMARK_PIPELINE__CHANGE_RETENTION": "1ms"}
    return load_config(path, settings | {f"TIDEMARK_{name}": value for name, value in env.items()})


async def filled(settings: Config) -> ViewsStore:
    """Views whose commits are further apart than changes are kept."""
    store = await open_views(settings)
    [table] = [table for table in Definitions.of(settings).tables if table.name == VIEW]
    fed = FedViews(store, [table_schema(table, ())])
    await fed.declare()
    for quantity in range(5):
        await fed.commit(VIEW, [position("a", "X", str(quantity))])
    return store


async def follow_from_the_beginning(settings: Config) -> None:
    triggers = await open_triggers(settings)
    webhook = "https://one.example/hook"
    await triggers.add(NewTrigger("hot", VIEW, webhook, "{}", None, creator=None), 0, 0)
    await triggers.close()


async def is_kept(views: ViewsStore) -> bool:
    try:
        return len((await views.read_changes(VIEW, 0, None, limit=100)).changes) == 5
    except ChangesForgotten:
        return False


async def test_an_old_trigger_holds_the_log_only_where_something_is_live(tmp_path: Path) -> None:
    live, quiet = config(tmp_path), config(tmp_path, LIVE__ENABLED="false")
    views = await filled(live)
    await follow_from_the_beginning(live)
    await prune_changes(live, views)
    assert await is_kept(views)
    await prune_changes(quiet, views)
    assert not await is_kept(views)
    await views.close()


async def test_a_store_of_triggers_that_is_away_ends_nothing_and_keeps_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    settings = config(tmp_path, TRIGGER_STORE__URL=nobody)
    views = await filled(settings)
    with caplog.at_level(logging.WARNING):
        await _try_to_prune(settings, views)
    assert "old changes are kept until the next try" in caplog.text
    assert await is_kept(views)
    await views.close()
