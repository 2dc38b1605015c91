"""A fresh place for a ledger, once on SQLite and once on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.events import ManualClock
from tests.contract.stores import KINDS, SQLITE_SCHEME, Ledger, LedgerHome


@pytest.fixture(params=KINDS)
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place. PostgreSQL is started only if it is this one's turn."""
    if request.param == "sqlite":
        return f"{SQLITE_SCHEME}{tmp_path / 'ledger.db'}"
    url = request.getfixturevalue("postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
async def home(ledger_url: str) -> AsyncIterator[LedgerHome]:
    place = LedgerHome(ledger_url)
    yield place
    await place.close()


@pytest.fixture
async def postgres_home(postgres_url: str) -> AsyncIterator[LedgerHome]:
    place = LedgerHome(postgres_url)
    yield place
    await place.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def ledger(home: LedgerHome, clock: ManualClock) -> Ledger:
    """A new ledger whose clock the test moves."""
    return await home.open(clock)
