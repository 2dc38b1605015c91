"""The PostgreSQL that other tests stand on does what they believe it does."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.services.postgres import PostgresFailed, PostgresServer
from tests.services.processes import is_running

ROOT = Path(__file__).resolve().parents[2]


async def test_a_fresh_database_is_empty_and_is_the_tests_own(
    postgres: PostgresServer, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("CREATE TABLE mine (n int)")
    finally:
        await connection.close()

    other = postgres.create_database()
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'") == [(0,)]
    assert urlsplit(other).path != urlsplit(postgres_url).path
    postgres.drop_database(other)


def test_a_database_is_dropped_under_the_feet_of_its_sessions(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    name = urlsplit(url).path.removeprefix("/")

    async def drop_while_connected() -> None:
        connection = await asyncpg.connect(url)
        postgres.drop_database(url)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetch("SELECT 1")
        connection.terminate()

    asyncio.run(drop_while_connected())
    assert postgres.execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'") == []


def test_a_stranger_without_the_password_is_refused(postgres: PostgresServer) -> None:
    async def knock() -> None:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(postgres.url().replace(postgres.url().split(":")[2][:8], "wrong"))

    asyncio.run(knock())


@pytest.mark.parametrize(
    "go_down",
    [
        lambda server: server.stop("fast"),
        lambda server: server.stop("immediate"),
        lambda server: server.kill(),
    ],
    ids=["fast", "immediate", "kill"],
)
def test_what_was_committed_survives_every_way_of_going_down(
    second_postgres: PostgresServer, go_down: Callable[[PostgresServer], None]
) -> None:
    url = second_postgres.create_database()
    name = urlsplit(url).path.removeprefix("/")
    second_postgres.execute("CREATE TABLE kept (n int)", name)
    second_postgres.execute("INSERT INTO kept VALUES (7)", name)

    go_down(second_postgres)

    assert not second_postgres.is_running
    with pytest.raises(ConnectionRefusedError):
        second_postgres.execute("SELECT 1")

    second_postgres.start()
    assert second_postgres.url(name) == url
    assert second_postgres.execute("SELECT n FROM kept", name) == [(7,)]
    second_postgres.drop_database(url)


def test_two_servers_run_side_by_side_and_one_outlives_the_other(
    postgres: PostgresServer, second_postgres: PostgresServer
) -> None:
    assert postgres.port != second_postgres.port

    second_postgres.stop()

    assert postgres.execute("SELECT 1") == [(1,)]


def test_a_kill_leaves_no_process_of_the_server(second_postgres: PostgresServer) -> None:
    rows = second_postgres.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert rows

    second_postgres.kill()

    assert [pid for (pid,) in rows if is_running(pid)] == []


def test_a_durable_server_flushes_and_settings_of_the_caller_win() -> None:
    with PostgresServer(settings={"max_connections": "7"}) as server:
        shown = {
            name: server.execute(f"SHOW {name}")[0][0]
            for name in ("fsync", "synchronous_commit", "full_page_writes", "max_connections")
        }
        version = server.execute("SHOW server_version_num")[0][0]
    assert shown == {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "max_connections": "7",
    }
    assert int(version) >= 130000


def test_a_server_without_the_flush_still_commits_synchronously(postgres: PostgresServer) -> None:
    assert postgres.execute("SHOW fsync") == [("off",)]
    assert postgres.execute("SHOW synchronous_commit") == [("on",)]


def test_a_server_that_cannot_start_shows_its_log() -> None:
    server = PostgresServer(durable=False, settings={"no_such_setting": "1"})
    try:
        with pytest.raises(PostgresFailed, match="no_such_setting"):
            server.start()
    finally:
        server.close()


def test_closing_removes_the_data_and_may_be_repeated() -> None:
    with tempfile.TemporaryDirectory(prefix="tidemark-place-") as place:
        # Only its owner could look into the usual one, and that may not be the server's account.
        Path(place).chmod(0o755)
        server = PostgresServer(durable=False, directory=Path(place))
        [home] = Path(place).iterdir()
        assert home.name.startswith("tidemark-postgres-")

        server.close()
        server.close()

        assert list(Path(place).iterdir()) == []


OWNER = """
import sys, time
from tests.services.postgres import PostgresServer
with PostgresServer(durable=False) as server:
    pid = server.execute("SELECT pg_backend_pid()") and server._process.pid
    print(pid, server._home, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_goes_when_the_test_process_goes(how: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, home = owner.stdout.readline().split()
        assert is_running(int(pid))
        owner.send_signal(how)

    deadline = time.monotonic() + 20
    while (is_running(int(pid)) or Path(home).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(int(pid))
    assert not Path(home).exists()


@pytest.mark.parametrize("owner", ["postgres", "nobody"])
def test_root_hands_the_server_to_an_ordinary_user(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run by an ordinary user this says that the server is that user's own."""
    expected = os.geteuid()
    if expected == 0:
        accounts = {entry.pw_name: entry for entry in pwd.getpwall()}
        known = accounts.get(owner, accounts["nobody"])
        monkeypatch.setattr(pwd, "getpwnam", lambda name: {known.pw_name: known}[name])
        expected = known.pw_uid
    with PostgresServer(durable=False) as server:
        data = Path(server.execute("SHOW data_directory")[0][0])
        assert data.stat().st_uid == expected
        assert expected != 0
