"""Clients that others wrote work unmodified, and so do those in `docs/howto/subscribe.md`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gql import Client, GraphQLRequest, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport

from tests.services.live_server import LiveServer, position
from tests.services.node import SOURCE, node_command, node_project, run_script
from tidemark.config.live_model import LiveConfig
from tidemark.live import errors
from tidemark.live.graphql import problems

PAGE = (Path(__file__).parents[2] / "docs/howto/subscribe.md").read_text()
WITHIN_S = 30.0


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def live() -> Iterator[LiveServer]:
    """For a test to stop and start."""
    with LiveServer() as live:
        live.commit([position("a", "X", "7"), position("b", "X", "1")])
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


@pytest.fixture(scope="module")
def steady() -> Iterator[LiveServer]:
    """For all that leave it as it is, each with accounts of its own."""
    secrets = "[whsec_QSBzZWNyZXQgdGhhdCBpcyBuZXcgYW5kIGxvbmcgZW5vdWdo]"
    with LiveServer(env={"TIDEMARK_WEBHOOKS__SECRETS": secrets}) as live:
        yield live
        assert "Traceback" not in live.server.log_text(), live.server.log_text()


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveServer]:
    """One that lets nobody in without a key."""
    keys = f"[{{name: a, sha256: {'0' * 64}, scopes: [read], tenants: ['*']}}]"
    with LiveServer(env={"TIDEMARK_AUTH__KEYS": keys}) as live:
        yield live


class Program:
    """A client that runs, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            line = await self.process.stdout.readline()
        assert line, "the client has ended"
        return line.decode().rstrip("\n")

    async def rows(self) -> list[list[str]]:
        """What it knows when everything up to some time has come; the time is left out."""
        _, rows = (await self.line()).split(" ", 1)
        known: list[list[str]] = json.loads(rows)
        return known


@asynccontextmanager
async def running(command: list[str], live: LiveServer, directory: Path) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**os.environ, "TIDEMARK_URL": live.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def keeper_of_rows(
    language: str, live: LiveServer, directory: Path
) -> AsyncIterator[Program]:
    """The client of the page that keeps rows."""
    if language == "python":
        script = directory / "subscribe.py"
        script.write_text(examples("python")[0])
        command, home = [sys.executable, str(script)], directory
    else:
        script = directory / "subscribe.mjs"
        [text] = examples("javascript")
        script.write_text(text)
        command, home = node_command(script), node_project()
    async with running(command, live, home) as program:
        yield program


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_client_of_the_page_keeps_rows_whatever_happens_to_the_server(
    language: str, live: LiveServer, tmp_path: Path
) -> None:
    async with keeper_of_rows(language, live, tmp_path) as program:
        assert await program.rows() == [["acme/a/X", "7"]]
        live.commit([position("a", "Y", "8")])
        assert await program.rows() == [["acme/a/X", "7"], ["acme/a/Y", "8"]]

        live.server.kill()
        live.commit([position("b", "X", "9")])
        live.commit(deleted=[position("a", "X", "7")])
        live.start()
        # It hears of each commit that it missed; had it begun anew, only of where they led to.
        assert await program.rows() == [["acme/a/X", "7"], ["acme/a/Y", "8"], ["acme/b/X", "9"]]
        assert await program.rows() == [["acme/a/Y", "8"], ["acme/b/X", "9"]]

        live.server.stop()
        live.commit([position("a", "Y", "1")])
        live.start()
        assert await program.rows() == [["acme/b/X", "9"]]

        live.server.stop()
        live.commit([position("c", "X", "5")])
        live.prune(live.commit([position("b", "X", "10")]) + 1)
        live.start()
        # The log does not reach back to where it was, so now it does begin anew.
        assert await program.rows() == [["acme/b/X", "10"], ["acme/c/X", "5"]]
        assert program.process.returncode is None


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_client_of_the_page_gives_up_when_it_is_not_let_in(
    language: str, guarded: LiveServer, tmp_path: Path
) -> None:
    async with keeper_of_rows(language, guarded, tmp_path) as program:
        async with asyncio.timeout(WITHIN_S):
            _, complaint = await program.process.communicate()
    assert program.process.returncode == 1
    assert b"4403" in complaint, complaint.decode()


async def test_the_client_of_the_page_that_acts_on_changes_does_so_once(
    live: LiveServer, tmp_path: Path
) -> None:
    script = tmp_path / "act.py"
    script.write_text(examples("python")[1])
    async with running([sys.executable, str(script)], live, tmp_path) as program:
        assert await program.line() == "INSERT acme a X 7"
        live.commit([position("a", "X", "8"), position("a", "Y", "5")])
        lines = [await program.line() for _ in range(2)]
        assert sorted(lines) == ["INSERT acme a Y 5", "UPDATE acme a X 8"]
        live.server.kill()
        live.commit([position("b", "X", "9")], deleted=[position("a", "X", "8")])
        live.start()
        lines = [await program.line() for _ in range(2)]
        assert sorted(lines) == ["DELETE acme a X None", "INSERT acme b X 9"]


async def test_graphql_ws_of_npm_works_unmodified(steady: LiveServer) -> None:
    steady.commit([position("js-a", "X", "7"), position("js-b", "X", "2.50")])
    ran = await asyncio.to_thread(run_script, SOURCE / "live_client.mjs", steady.url)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["query"]["data"] == {
        "positions": [{"account": "js-a", "quantity": "7"}, {"account": "js-b", "quantity": "2.5"}]
    }
    assert said["mutation"]["data"] == {"create_positions_trigger": {"name": "js"}}
    assert said["refused"][0]["extensions"]["code"] == "graphql_invalid"
    assert said["filter"][0]["extensions"]["field"] == "where.account._eq"
    rows = [answer["data"]["positions"]["data"] for answer in said["both"]]
    assert [row["account"] for row in rows] == ["js-a", "js-b"]
    assert said["pong"] is True
    assert said["closed"] == 1000


UPDATES = """
subscription ($account: String, $bounds: DecimalComparison) {
  positions(where: {account: {_eq: $account}, quantity: $bounds}, progress: true) {
    operation
    data { quantity }
  }
}
"""


@pytest.mark.parametrize(
    "protocols", [None, [WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL]], ids=["default", "named"]
)
async def test_gql_of_python_works_unmodified(
    steady: LiveServer, protocols: list[Any] | None
) -> None:
    account = f"gql-{protocols is None}"
    steady.commit([position(account, "X", "7"), position(account, "Y", "1")])
    transport = WebsocketsTransport(
        url=steady.url, subprotocols=protocols, ping_interval=0.05, pong_timeout=5
    )

    def wanted(account: str | None, **bounds: str) -> GraphQLRequest:
        return GraphQLRequest(UPDATES, variable_values={"account": account, "bounds": bounds})

    async with Client(transport=transport) as session, asyncio.timeout(WITHIN_S):
        query = '{ positions(where: {account: {_eq: "%s"}}) { quantity } }' % account
        found = await session.execute(gql(query))
        assert sorted(row["quantity"] for row in found["positions"]) == ["1", "7"]
        with pytest.raises(TransportQueryError) as refused:
            await session.execute(gql("{ nothing }"))
        assert refused.value.errors is not None
        assert refused.value.errors[0]["extensions"]["code"] == "graphql_invalid"

        large = session.subscribe(wanted(account, _gte="5"))
        small = session.subscribe(wanted(account, _lt="5"))
        for updates, quantity in ((large, "7"), (small, "1")):
            first = (await anext(updates))["positions"]
            assert first == {"operation": "INSERT", "data": {"quantity": quantity}}
            assert (await anext(updates))["positions"]["operation"] == "PROGRESS"
        steady.commit([position(account, "X", "2")])
        assert (await anext(large))["positions"]["operation"] == "DELETE"
        assert (await anext(small))["positions"]["operation"] == "INSERT"

        with pytest.raises(TransportQueryError) as refused:
            await anext(session.subscribe(wanted(None)))
        assert refused.value.errors is not None
        assert refused.value.errors[0]["extensions"]["field"] == "where.account._eq"
        for updates in (large, small):
            await updates.aclose()


def test_every_code_and_setting_of_the_page_is_one_that_there_is() -> None:
    codes = {kind.code for kind in errors.LiveError.__subclasses__()}
    codes |= {problems.INVALID, problems.SYNTAX, problems.VARIABLES}
    assert first_column("When a subscription is refused") <= codes
    settings = {field.validation_alias or name for name, field in LiveConfig.model_fields.items()}
    named = {name.removeprefix("live.") for name in first_column("Limits")} - {"_bytes"}
    assert named <= settings


def first_column(heading: str) -> set[str]:
    """What is named in the first column of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)
    named = set(re.findall(r"`([\w.]+)`", "".join(cells)))
    assert named
    return named
