"""A fresh place for triggers, once on SQLite and once on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.triggers_home import SQLITE_SCHEME, Triggers, TriggersHome


@pytest.fixture(params=["sqlite", "postgres"])
def triggers_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place. PostgreSQL is started only if it is this one's turn."""
    if request.param == "sqlite":
        return f"{SQLITE_SCHEME}{tmp_path / 'triggers.db'}"
    url = request.getfixturevalue("postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
async def triggers_home(triggers_url: str) -> AsyncIterator[TriggersHome]:
    place = TriggersHome(triggers_url)
    yield place
    await place.close()


@pytest.fixture
async def triggers(triggers_home: TriggersHome) -> Triggers:
    """An empty store."""
    return await triggers_home.open()
