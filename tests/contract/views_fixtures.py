"""A fresh place for views, once on SQLite and once on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.views_home import POSITIONS, SQLITE_SCHEME, Views, ViewsHome


@pytest.fixture(params=["sqlite", "postgres"])
def views_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place. PostgreSQL is started only if it is this one's turn."""
    if request.param == "sqlite":
        return f"{SQLITE_SCHEME}{tmp_path / 'views.db'}"
    url = request.getfixturevalue("postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
async def views_home(views_url: str) -> AsyncIterator[ViewsHome]:
    place = ViewsHome(views_url)
    yield place
    await place.close()


@pytest.fixture
async def sqlite_views_home(tmp_path: Path) -> AsyncIterator[ViewsHome]:
    place = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'views.db'}")
    yield place
    await place.close()


@pytest.fixture
async def postgres_views_home(postgres_url: str) -> AsyncIterator[ViewsHome]:
    place = ViewsHome(postgres_url)
    yield place
    await place.close()


@pytest.fixture
async def views(views_home: ViewsHome) -> Views:
    """An empty store in which the view `positions` is declared."""
    opened = await views_home.open()
    await opened.declare([POSITIONS])
    return opened
