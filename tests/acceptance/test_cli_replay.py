"""`tidemark replay`: a changed definition is tried out beside the live one, then swapped."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.cli_runs import tidemark
from tests.acceptance.pipelines import CONFIG, fill_ledger, history, write_config
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.contract.events import draft
from tests.contract.stores import append
from tests.services.graphql_socket import connected
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer
from tidemark.canonical import canonical_json
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ledger.opening import open_ledger
from tidemark.timestamps import format_timestamp

CALLS: Final = (
    "subscription { api_calls { operation ts_timestamp"
    " data { customer_ref counted adjusted total } } }"
)
# Nothing is late any more, and there is one view more.
NEW: Final = CONFIG.replace("lateness: 1h", "lateness: 2400h") + (
    "  by_account: {stream: trades, key: [account]}\n"
)
CUSTOMERS: Final = 3
# One has late events, and another a late correction.
CHANGED: Final = ("c-0", "c-2")


class Listener:
    """A subscriber in a thread of its own."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.has_all = threading.Event()
        self.is_listening = threading.Event()

    async def listen(self, url: str, count: int) -> None:
        async with connected(url) as client:
            await client.ask("1", CALLS)
            while len(self.heard) < count:
                message = await client.receive()
                self.heard.append(message["payload"]["data"]["api_calls"])
                if len(self.heard) == CUSTOMERS:
                    self.is_listening.set()
        self.has_all.set()


@contextmanager
def listening(server: TidemarkServer, count: int) -> Iterator[Listener]:
    listener = Listener()
    url = f"{server.websocket_url}/graphql"
    thread = threading.Thread(target=lambda: asyncio.run(listener.listen(url, count)), daemon=True)
    thread.start()
    assert listener.is_listening.wait(30)
    yield listener
    assert listener.has_all.wait(30), listener.heard
    thread.join()


def replay(home: Path, *args: object, config: str = "new.yaml") -> Any:
    ran = tidemark_on_spark("replay", "-c", config, "--json", *args, cwd=home)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


@pytest.fixture
def server(postgres_url: str) -> Iterator[TidemarkServer]:
    """Not started. The tests below are on SQLite."""
    ledger = f"ledger: {{url: '{postgres_url}'}}\n"
    server = TidemarkServer(CONFIG + ledger)
    (server.directory / "new.yaml").write_text(NEW + ledger)
    yield server
    server.close()


def test_a_changed_meter_shows_what_changes_and_after_the_swap_everyone_sees_it(
    server: TidemarkServer,
) -> None:
    home = server.directory
    fill_ledger(home, history())
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=home).code == 0

    # As it is configured there is no difference, and nothing to swap.
    found = replay(home, "--as", "same", "--swap", config="tidemark.yaml")
    assert (found["same"], found["examples"], found["swapped"]) == (True, [], None)

    server.start()
    found = replay(home, "--as", "wider")
    assert (found["same"], found["sequence"], found["swapped"]) == (False, "36", None)
    views = {view["view"]: view for view in found["views"]}
    assert {name: view["definition"] for name, view in views.items()} == {
        "api_calls": "changed",
        "by_account": "new",
        "trades": "same",
        "users": "same",
    }
    # What was late is counted, and nothing but that is different.
    assert views["api_calls"]["rows"] == {"added": 0, "removed": 0, "changed": len(CHANGED)}
    assert views["api_calls"]["tenants"] == {"acme": views["api_calls"]["rows"]}
    assert views["by_account"]["rows"]["added"] == 1
    assert [views[name]["rows"]["changed"] for name in ("trades", "users")] == [0, 0]
    changed = [example for example in found["examples"] if example["view"] == "api_calls"]
    assert [json.loads(example["key"])[2] for example in changed] == list(CHANGED)
    for example in changed:
        assert "total" not in example["live"]
        assert {"counted", "adjusted"} <= example["live"].keys()

    with listening(server, CUSTOMERS + len(CHANGED)) as listener:
        swapped = replay(home, "--as", "wider", "--swap")["swapped"]
    assert (swapped["sequence"], swapped["views"]) == ("37", ["api_calls", "by_account"])
    snapshot, updates = listener.heard[:CUSTOMERS], listener.heard[CUSTOMERS:]
    before = {update["data"]["customer_ref"]: update["data"] for update in snapshot}
    assert sorted(update["data"]["customer_ref"] for update in updates) == list(CHANGED)
    for update in updates:
        assert update["operation"] == "UPDATE"
        data = update["data"]
        assert data["total"] == before[data["customer_ref"]]["total"]
        assert data["adjusted"] != before[data["customer_ref"]]["adjusted"]
    [at] = {update["ts_timestamp"] for update in updates}
    assert format_timestamp(int(at)) == swapped["receivedAt"]

    # It is an event like any other, at that time.
    answer = call(server.base_url, "GET", "/admin/events?stream=tidemark.swaps")
    [event] = answer.json["events"]
    assert (event["control"], event["ingressSequence"]) == ("swap", "37")
    assert event["receivedAt"] == swapped["receivedAt"]
    assert event["data"]["after"] == "36"
    assert list(event["data"]["views"]) == ["api_calls", "by_account"]
    # Usage is not shown by a server that has another idea of the meter.
    usage = call(server.base_url, "GET", "/v1/usage?tenantId=acme&metric=api_calls")
    assert usage.json["error"]["code"] == "definition_changed"
    assert "Start the server with the configuration" in usage.json["error"]["hint"]

    verified = tidemark_on_spark("verify", "-c", "new.yaml", cwd=home)
    assert (verified.code, "No difference." in verified.out) == (0, True), verified.out
    # The pipeline goes on with the new definitions, and not with the old ones.
    assert tidemark_on_spark("pipeline", "--until-caught-up", "-c", "new.yaml", cwd=home).code == 0
    refused = tidemark_on_spark("pipeline", "--until-caught-up", cwd=home)
    assert (refused.code, "tidemark replay --as NAME" in refused.err) == (2, True)

    kept = json.loads(tidemark("replay", "--list", "--json", "-c", "new.yaml", cwd=home).out)
    assert kept["replays"] == []
    assert [(old["view"], old["version"]) for old in kept["oldViews"]] == [("api_calls", 1)]
    dropped = tidemark("replay", "--as", "wider", "--drop", "-c", "new.yaml", cwd=home)
    assert dropped.out == "Dropped wider, version 1 of api_calls.\n"
    nothing = tidemark("replay", "--list", "-c", "new.yaml", cwd=home)
    assert nothing.out.startswith("There are no replays and no old views")


def test_what_cannot_be_done_is_told(tmp_path: Path) -> None:
    write_config(tmp_path)
    fill_ledger(tmp_path, history(days=[1]))
    for args, code, words in (
        ((), 2, "--as NAME says which replay"),
        (("--as", "x", "--swap", "--drop"), 2, "exclude each other"),
        (("--as", "Not a name"), 2, "cannot be the name of a replay"),
        (("--as", "x", "--drop"), 1, "there is no replay x"),
    ):
        ran = tidemark("replay", *args, cwd=tmp_path)
        assert (ran.code, words in ran.err) == (code, True), ran.err
    assert not (tmp_path / "state" / "replays").exists()
    ran = tidemark_on_spark("replay", "--as", "x", cwd=tmp_path)
    assert (ran.code, "nothing was folded yet" in ran.err) == (1, True)


def test_people_read_what_would_differ_and_a_replay_of_other_definitions_is_refused(
    tmp_path: Path,
) -> None:
    write_config(tmp_path)
    (tmp_path / "new.yaml").write_text(NEW)
    fill_ledger(tmp_path, history(days=[1]))
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=tmp_path).code == 0
    ran = tidemark_on_spark("replay", "--as", "wider", "-c", "new.yaml", "--limit", 1, cwd=tmp_path)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith('api_calls ["acme","api_calls","c-2",')
    assert 'counted is "' in lines[0]
    assert lines[1].startswith('by_account ["acme","A"] is new: {')
    assert lines[2].startswith("Replayed as wider up to sequence 14 at 2026-03-01T13:00:00.000000Z")
    assert "  api_calls   other definition, 3 rows, 1 changed (acme: 1)" in lines
    assert lines[-1] == "2 rows would differ."
    other = tidemark_on_spark("replay", "--as", "wider", cwd=tmp_path)
    assert (other.code, "was built with other definitions" in other.err) == (1, True)
    listed = tidemark("replay", "--list", cwd=tmp_path)
    assert listed.out.startswith("wider: replayed up to sequence 14 at ")


async def trade_more(home: Path) -> None:
    ledger = await open_ledger(load_config(home / "tidemark.yaml", {}), SystemClock())
    trade = {"trade_id": "later", "account": "A", "quantity": "1", "price": "2"}
    await append(ledger, draft("later", stream="trades", data=canonical_json(trade).decode()))
    await ledger.close()


def test_a_swap_that_was_killed_after_it_was_recorded_is_finished_by_asking_again(
    tmp_path: Path,
) -> None:
    write_config(tmp_path)
    (tmp_path / "new.yaml").write_text(NEW)
    fill_ledger(tmp_path, history(days=[1]))
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=tmp_path).code == 0
    # Servers go on: there are events that the live views do not have when the swap is recorded.
    asyncio.run(trade_more(tmp_path))
    args = ("replay", "--as", "wider", "--swap", "-c", "new.yaml")
    killed = tidemark(*args, cwd=tmp_path, env={"TIDEMARK_CRASH_AT": "replay.recorded"})
    assert killed.code == -9
    document = replay(tmp_path, "--as", "wider", "--swap")
    assert document["swapped"]["sequence"] == "16"
    assert document["swapped"]["views"] == ["api_calls", "by_account"]
    # Asked again, it has nothing to do.
    assert replay(tmp_path, "--as", "wider", "--swap")["swapped"] is None
    assert tidemark_on_spark("verify", "-c", "new.yaml", cwd=tmp_path).code == 0
