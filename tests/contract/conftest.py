"""A fresh place for a ledger, once on SQLite and once on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.events import ManualClock
from tests.contract.stores import KINDS, SQLITE_SCHEME, Ledger, LedgerHome
from tests.services.postgres import PostgresServer


@pytest.fixture(scope="session")
def _shared_database(postgres: PostgresServer) -> str:
    return postgres.create_database()


@pytest.fixture
async def postgres_home(
    postgres: PostgresServer, _shared_database: str
) -> AsyncIterator[LedgerHome]:
    postgres.start()
    place = LedgerHome(_shared_database)
    # Five times quicker than a database of its own, and as empty.
    await place.sql("DROP SCHEMA IF EXISTS tidemark CASCADE")
    yield place
    await place.close()


@pytest.fixture
async def sqlite_home(tmp_path: Path) -> AsyncIterator[LedgerHome]:
    place = LedgerHome(f"{SQLITE_SCHEME}{tmp_path / 'ledger.db'}")
    yield place
    await place.close()


@pytest.fixture(params=KINDS)
def home(request: pytest.FixtureRequest) -> LedgerHome:
    """An empty place. PostgreSQL is started only when it is this one's turn."""
    place = request.getfixturevalue(f"{request.param}_home")
    assert isinstance(place, LedgerHome)
    return place


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def ledger(home: LedgerHome, clock: ManualClock) -> Ledger:
    """A new ledger whose clock the test moves."""
    return await home.open(clock)
