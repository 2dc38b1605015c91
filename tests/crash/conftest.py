"""Places for ledgers that processes are killed over, and processes to kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.crash.reading import SQLITE_SCHEME
from tests.crash.variants import VariantServer
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer

MakeServer: TypeAlias = Callable[..., TidemarkServer]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place. PostgreSQL is started only if it is this one's turn."""
    if request.param == "sqlite":
        return f"{SQLITE_SCHEME}{tmp_path / 'ledger.db'}"
    url = request.getfixturevalue("postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
def server_on(tmp_path: Path) -> Iterator[MakeServer]:
    """Makes Tidemark processes on a ledger, not yet started, and ends them with the test."""
    made: list[TidemarkServer] = []

    def make(ledger_url: str, *, crash_at: str | None = None, variant: str = "") -> TidemarkServer:
        env = {} if crash_at is None else {"TIDEMARK_CRASH_AT": crash_at}
        server = VariantServer(variant, env=env, ledger_url=ledger_url, directory=tmp_path)
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture(scope="session")
def _mortal_server() -> Iterator[PostgresServer]:
    # Flushes and full pages are on: a server that is killed in the middle of a write must find its
    # way back as it would in production.
    with PostgresServer(durable=True) as server:
        yield server


@pytest.fixture
def mortal_postgres(_mortal_server: PostgresServer) -> PostgresServer:
    """A server for the test to stop and kill, running when the test begins."""
    _mortal_server.start()
    return _mortal_server


@pytest.fixture
def mortal_url(mortal_postgres: PostgresServer) -> Iterator[str]:
    """An empty database on it."""
    url = mortal_postgres.create_database()
    yield url
    mortal_postgres.start()
    mortal_postgres.drop_database(url)
