"""A running Tidemark for the tests of its HTTP interface, on SQLite and on PostgreSQL.

The tests of one module share a server, so each works for a tenant of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.integration.http_client import Api
from tests.services.postgres import PostgresServer
from tests.services.tidemark_server import TidemarkServer

_tenants = itertools.count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Where a server keeps its data, on each store; None is a file of its own.

    PostgreSQL is started only if it is this one's turn.
    """
    if request.param == "sqlite":
        yield None
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    postgres.start()
    url = postgres.create_database()
    yield url
    # A test may have stopped it.
    postgres.start()
    postgres.drop_database(url)


@pytest.fixture(scope="module")
def server(store_url: str | None) -> Iterator[TidemarkServer]:
    """The sample configuration, on each store."""
    yield from _running(TidemarkServer(ledger_url=store_url))


@pytest.fixture(scope="module")
def sqlite_server() -> Iterator[TidemarkServer]:
    """For what does not depend on the store."""
    yield from _running(TidemarkServer())


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return f"tenant-{next(_tenants)}"


@pytest.fixture
def api(server: TidemarkServer, tenant: str) -> Api:
    return Api(server.base_url, tenant)


@pytest.fixture
def sqlite_api(sqlite_server: TidemarkServer, tenant: str) -> Api:
    return Api(sqlite_server.base_url, tenant)


def _running(server: TidemarkServer) -> Iterator[TidemarkServer]:
    """Whatever the tests do to it, the server never meets an error of its own making."""
    with server:
        yield server
        said = server.log_text()
        assert "Traceback" not in said, said
        assert "ASGI callable" not in said, said
