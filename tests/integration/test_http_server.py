"""The server process itself: it starts, stops, dies and starts again where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.http_client import Api, usage
from tests.services.processes import is_running
from tests.services.tidemark_server import ServerFailed, TidemarkServer
from tidemark.app import server as app
from tidemark.clock import Clock
from tidemark.config import Config
from tidemark.ledger.opening import open_ledger
from tidemark.ledger.port import LedgerStore

STARTER = """
import os, signal
from tests.services.tidemark_server import TidemarkServer
server = TidemarkServer().start()
print(server.pid, server.directory, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_goes_and_comes_back_with_what_it_had(
    number: signal.Signals, tenant: str
) -> None:
    with TidemarkServer() as server:
        api = Api(server.base_url, tenant)
        api.accept(usage(tenant))
        assert server.signal_and_wait(number) == 0
        assert not server.is_running
        assert "Traceback" not in server.log_text()
        port = server.port
        server.restart()
        assert server.port == port
        assert len(api.events()) == 1


def test_a_server_that_cannot_start_says_why() -> None:
    server = TidemarkServer("streams: {trades: {fields: {side: colour}}}")
    try:
        with pytest.raises(ServerFailed, match=r"streams\.trades\.fields\.side"):
            server.start()
    finally:
        server.close()
    assert not server.directory.exists()


async def test_a_start_that_fails_closes_the_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed = []

    async def open_and_watch(config: Config, clock: Clock) -> LedgerStore:
        store = await open_ledger(config, clock)
        close = store.close

        async def watched_close() -> None:
            closed.append(store)
            await close()

        monkeypatch.setattr(store, "close", watched_close)
        return store

    async def fail(base_url: str) -> None:
        raise RuntimeError("nobody can be told")

    monkeypatch.setattr(app, "open_ledger", open_and_watch)
    config = Config(state_dir=tmp_path)
    with pytest.raises(RuntimeError, match="nobody can be told"):
        await app.serve(config, sockets=[app.listen("127.0.0.1", 0)], on_ready=fail)
    assert len(closed) == 1
    monkeypatch.setattr(app, "Decoder", None)
    with pytest.raises(TypeError):
        await app.serve(config, sockets=[app.listen("127.0.0.1", 0)])
    assert len(closed) == 2


def test_no_server_outlives_the_tests_that_started_it() -> None:
    root = Path(__file__).parents[2]
    said = subprocess.run(
        [sys.executable, "-c", STARTER],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == -signal.SIGKILL, said.stderr
    pid, directory = said.stdout.split()
    deadline = time.monotonic() + 10
    while is_running(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    subprocess.run(["rm", "-rf", directory], check=True)
