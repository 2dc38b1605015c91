"""A server with meters, on each store, in place of that with the sample configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.filled_views import FilledViews
from tests.integration.usage.metered import CONFIG
from tests.services.tidemark_server import TidemarkServer


@pytest.fixture(scope="module")
def server(store_url: str | None) -> Iterator[TidemarkServer]:
    with TidemarkServer(CONFIG, ledger_url=store_url) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@pytest.fixture
def views(server: TidemarkServer) -> FilledViews:
    return FilledViews(server.config_path, server.env)
