"""Worlds of triggers: over both stores, or over one where that makes no difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.triggers_home import TriggersHome
from tests.contract.views_home import SQLITE_SCHEME, ViewsHome
from tests.integration.trigger_world import TriggerWorld


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TriggerWorld]:
    """An empty view `quotes`. PostgreSQL is started only if it is this one's turn."""
    if request.param == "sqlite":
        places = [f"{SQLITE_SCHEME}{tmp_path / name}" for name in ("views.db", "triggers.db")]
    else:
        places = [request.getfixturevalue("postgres_url")] * 2
    made = TriggerWorld(ViewsHome(places[0]), TriggersHome(places[1]))
    yield await made.open()
    await made.views_home.close()
    await made.triggers_home.close()


@pytest.fixture
async def sqlite_world(tmp_path: Path) -> AsyncIterator[TriggerWorld]:
    """For what does not depend on the store."""
    places = [f"{SQLITE_SCHEME}{tmp_path / name}" for name in ("views.db", "triggers.db")]
    made = TriggerWorld(ViewsHome(places[0]), TriggersHome(places[1]))
    yield await made.open()
    await made.views_home.close()
    await made.triggers_home.close()
