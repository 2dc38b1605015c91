"""Landing into ClickHouse over HTTP: a server that is away, and one that does not let us in."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import started, stop, tidemark, wait_until
from tests.acceptance.pipelines import CONFIG, fill_ledger, history, write_config
from tests.services.clickhouse import Engine
from tests.services.clickhouse_server import PASSWORD, ClickHouseServer
from tests.services.ports import free_port

LANDING = "landing: {clickhouse: {enabled: true, block_events: 10, every: 50ms}}\n"
EVENT_COUNT = 36


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    server = ClickHouseServer(tmp_path_factory.mktemp("server"), free_port())
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path, CONFIG + LANDING)
    return tmp_path


@pytest.mark.parametrize(
    ("password", "database", "field", "told"),
    [
        ("guessed", "tidemark", "landing.clickhouse.url", "Authentication failed"),
        (PASSWORD, "nowhere", "landing.clickhouse.database", "Database nowhere does not exist"),
    ],
)
def test_who_is_not_let_in_is_told_at_once_and_no_password_is_shown(
    home: Path, server: ClickHouseServer, password: str, database: str, field: str, told: str
) -> None:
    env = {
        "TIDEMARK_LANDING__CLICKHOUSE__URL": server.url.replace(PASSWORD, password),
        "TIDEMARK_LANDING__CLICKHOUSE__DATABASE": database,
        # Which has no reason to end, but is not to hide the error either.
        "TIDEMARK_LANDING__PARQUET__ENABLED": "true",
    }
    # Not only when it is to end: waiting would not help.
    ran = tidemark("land", "--json", cwd=home, env=env)
    error = ran.json["error"]
    assert (ran.code, error["code"], error["field"]) == (1, "landing_refused", field)
    assert error["message"].startswith(
        f"ClickHouse at http://127.0.0.1:{server.port} refuses it: {told}"
    )
    assert error["hint"]
    assert password not in ran.out + ran.err


def test_a_server_that_was_killed_is_waited_for_and_landing_goes_on(
    home: Path, server: ClickHouseServer
) -> None:
    env = {"TIDEMARK_LANDING__CLICKHOUSE__URL": server.url}
    server.kill()
    fill_ledger(home, history())
    with started("land", cwd=home, env=env) as process:
        assert process.stderr is not None
        assert "does not answer: Connection refused" in process.stderr.readline()
        server.start()
        engine = Engine(server.url)
        exists = "SELECT count() FROM system.tables WHERE database = 'tidemark' AND name = 'events'"
        wait_until(lambda: engine.rows(exists) == [(1,)])
        counted = "SELECT count(), uniqExact(ingress_sequence) FROM tidemark.events"
        wait_until(lambda: engine.rows(counted) == [(EVENT_COUNT, EVENT_COUNT)])
        engine.close()
        ran = stop(process, signal.SIGTERM)
    assert ran.code == 0
    assert PASSWORD not in ran.out + ran.err
