"""`triggers` against a running server: made, fired, delivered, given up, sent again, ended."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import threading
from collections.abc import Coroutine, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.acceptance.cli_runs import Ran, on_terminal, tidemark, wait_until, without_escapes
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.fed_views import FedViews, Row
from tests.services.http_calls import call
from tests.services.tidemark_server import TidemarkServer
from tests.services.webhook_receiver import WebhookReceiver, answering
from tidemark.config import load_config
from tidemark.live.triggers.definition import NewTrigger
from tidemark.live.triggers.opening import open_triggers
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.views.opening import open_views

SECRET = "whsec_QSBzZWNyZXQgdGhhdCBpcyBuZXcgYW5kIGxvbmcgZW5vdWdo"
CONFIG = f"""
streams:
  trades:
    identity: [trade_id]
    fields: {{trade_id: string, account: string, quantity: decimal}}
views:
  positions: {{stream: trades, key: [account]}}
  trades: {{stream: trades, key: [trade_id]}}
triggers:
  declared: {{view: trades, webhook: "https://example.org/hook", match: {{quantity: {{_gt: "5"}}}}}}
webhooks:
  secrets: [{SECRET}]
  allow: [127.0.0.1]
  first_retry: 50ms
  max_retry: 50ms
  retry_for: 100ms
"""
KEYS = """
auth:
  keys:
    - {{name: all, sha256: "{all}", scopes: [read, triggers, introspect], tenants: ["*"]}}
    - {{name: acme, sha256: "{acme}", scopes: [read, triggers], tenants: [acme]}}
    - {{name: reader, sha256: "{reader}", scopes: [read], tenants: ["*"]}}
"""
KEY_NAMES = ("all", "acme", "reader")
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "triggers.md"
ABOVE_TEN = '{"quantity": {"_gt": 10.5}}'

T = TypeVar("T")


class World:
    """A server whose views a test feeds, and a receiver of its webhooks, both at work."""

    def __init__(self, server: TidemarkServer) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.receiver = WebhookReceiver()
        self.run(self.receiver.up())
        self.fed = self.run(self._declare())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    async def _declare(self) -> FedViews:
        config = load_config(self.server.config_path, dict(self.server.env))
        self.store = await open_views(config)
        fed = FedViews(self.store, [table_schema(it, ()) for it in Definitions.of(config).tables])
        await fed.declare()
        await fed.commit("positions", [position("first", "1")])
        return fed

    async def leave_behind(self, name: str, view: str) -> None:
        """A trigger from when there was a view that is there no more."""
        config = load_config(self.server.config_path, dict(self.server.env))
        store = await open_triggers(config)
        await store.add(NewTrigger(name, view, self.receiver.url, "{}"), 0, 0)
        await store.close()

    def close(self) -> None:
        self.run(self.receiver.down())
        self.run(self.store.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def feed(self, *rows: Row) -> None:
        self.run(self.fed.commit("positions", rows))

    def ask(self, *args: object, key: str | None = None, terminal: bool = False) -> Ran:
        env = {} if key is None else {"TIDEMARK_API_KEY": key}
        command = ("triggers", *args, "--url", self.server.base_url)
        # Where no configuration is: the server is all that is known.
        home = self.server.directory / "elsewhere"
        home.mkdir(exist_ok=True)
        return (on_terminal if terminal else tidemark)(*command, cwd=home, env=env)

    def add(self, name: str, match: str = ABOVE_TEN, *more: object, key: str | None = None) -> Ran:
        url = ("--webhook", self.receiver.url)
        return self.ask("add", name, "--view", "positions", *url, "--match", match, *more, key=key)

    def deliveries(self, name: str, *args: object) -> list[dict[str, Any]]:
        return self.ask("deliveries", name, *args, "--json").json_lines

    def wait_for(self, name: str, *statuses: str) -> None:
        wait_until(lambda: [it["status"] for it in self.deliveries(name)] == list(statuses))


def position(account: str, quantity: str, tenant: str = "acme") -> Row:
    return {
        "tenant_id": tenant,
        "trade_id": "t",
        "account": account,
        "quantity": Decimal(quantity),
        "row_ts": 1,
        "row_seq": 1,
    }


def keys() -> str:
    return KEYS.format(**{it: hashlib.sha256(it.encode()).hexdigest() for it in KEY_NAMES})


def serving(config: str) -> Iterator[World]:
    with TidemarkServer(config) as server:
        world = World(server)
        try:
            key = "all" if "auth:" in config else None
            wait_until(lambda: world.ask("list", "--view", "trades", key=key).code == 0)
            yield world
        finally:
            world.close()
        assert "Traceback" not in server.log_text(), server.log_text()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    yield from serving(CONFIG)


@pytest.fixture(scope="module")
def guarded() -> Iterator[World]:
    """The same with keys, one for all tenants, one for some, and one that may only read."""
    yield from serving(CONFIG + keys())


def test_a_trigger_is_made_fires_and_ends(world: World) -> None:
    made = world.add("big")
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("The trigger big watches positions: it fires for rows that enter")
    world.feed(position("a", "11"))
    world.wait_for("big", "delivered")
    [delivery] = world.deliveries("big")
    assert (delivery["event_type"], delivery["attempts"]) == ("MATCH", 1)
    assert delivery["response_status"] == 200
    assert delivery["event_id"] in world.receiver.event_ids
    assert delivery["payload"]["data"]["quantity"] == "11"
    ended = world.ask("remove", "big")
    assert ended.out == "The trigger big is no more; what it had not delivered is dropped.\n"
    assert "big" not in world.ask("list").out


def test_a_number_of_a_filter_arrives_to_the_digit(world: World) -> None:
    exact = '{"quantity": {"_eq": 0.1000000000000000055511151231257827}}'
    made = world.add("exact", exact, "--unmatch", "{}", "--json").json
    assert made["match"] == {"quantity": {"_eq": "0.1000000000000000055511151231257827"}}
    assert made["unmatch"] == {}
    assert world.ask("remove", "exact", "--json").json["name"] == "exact"


def test_programs_and_people_see_the_list(world: World) -> None:
    world.add("listed")
    lines = world.ask("list", "--json").json_lines
    assert [it["name"] for it in lines] == ["declared", "listed"]
    assert {"view": "positions", "enabled": True, "until": None}.items() <= lines[1].items()
    assert world.ask("list", "--view", "trades", "--json").json_lines == lines[:1]
    header, *rows = world.ask("list").out.splitlines()
    assert header.split("\t")[:3] == ["name", "view", "webhook"]
    assert [row.split("\t")[0] for row in rows] == ["declared", "listed"]
    shown = without_escapes(world.ask("list", terminal=True).out)
    assert shown.split()[:4] == ["NAME", "VIEW", "STATE", "SINCE"]
    assert "listed" in shown
    world.ask("remove", "listed")


def test_a_dead_letter_is_found_and_sent_again(world: World) -> None:
    world.add("unlucky")
    world.receiver.behave = answering(500, b"no")
    world.feed(position("u1", "12"), position("u2", "13"))
    world.wait_for("unlucky", "dead", "dead")
    dead = world.deliveries("unlucky", "--status", "dead")
    assert {(it["response_status"], it["status"]) for it in dead} == {(500, "dead")}
    for it in dead:
        attempts = it["last_attempts"]
        assert len(attempts) == it["attempts"]
        assert {one["response_status"] for one in attempts} == {500}
        # On a busy machine the first may be the last.
        statuses = [one["status"] for one in attempts]
        assert statuses == ["pending"] * (len(attempts) - 1) + ["dead"]
    for status in ("delivered", "waiting"):
        assert world.deliveries("unlucky", "--status", status) == []
    shown = without_escapes(world.ask("deliveries", "unlucky", terminal=True).out)
    assert shown.split()[:3] == ["EVENT", "ID", "TYPE"]
    assert dead[0]["event_id"] in shown
    assert "500" in shown
    world.receiver.behave = answering(204)
    one = world.ask("redeliver", "unlucky", dead[0]["event_id"])
    assert one.out == "1 event of unlucky is sent again.\n"
    world.wait_for("unlucky", "delivered", "dead")
    assert world.ask("redeliver", "unlucky", "--json").json == {
        "trigger": "unlucky",
        "redelivered": 1,
    }
    world.wait_for("unlucky", "delivered", "delivered")
    assert {it["event_id"] for it in dead} <= set(world.receiver.event_ids)
    world.ask("remove", "unlucky")


def test_a_disabled_trigger_waits_and_goes_on(world: World) -> None:
    world.add("pausing")
    assert world.ask("disable", "pausing").out.startswith("The trigger pausing is disabled")
    world.feed(position("p", "14"))
    assert world.deliveries("pausing") == []
    assert world.ask("list", "--json").json_lines[1]["enabled"] is False
    assert world.ask("enable", "pausing", "--json").json["enabled"] is True
    world.wait_for("pausing", "delivered")
    world.ask("remove", "pausing")


def test_a_list_of_deliveries_is_cut_where_it_is_told_to(world: World) -> None:
    world.add("many")
    world.feed(*(position(f"m{number}", "20") for number in range(7)))
    world.wait_for("many", *(["delivered"] * 7))
    newest = [it["event_id"] for it in world.deliveries("many")]
    assert [it["event_id"] for it in world.deliveries("many", "--limit", "3")] == newest[:3]
    assert len(world.ask("deliveries", "many").out.splitlines()) == 8
    world.ask("remove", "many")


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (["add", "x", "--match", '{"quantiy": {"_gt": 1}}'], 2, "graphql_variables"),
        (["add", "x", "--match", "[]"], 2, "usage"),
        (["add", "x", "--match", "{"], 2, "usage"),
        (["add", "a:b", "--match", "{}"], 2, "invalid_trigger"),
        (["add", "declared", "--match", "{}"], 1, "trigger_exists"),
        (["add", "x", "--match", "{}", "--webhook", "http://10.0.0.1/"], 2, "webhook_refused"),
        (["add", "x", "--match", "{}", "--view", "nowhere"], 1, "unknown_view"),
        (["add", "x", "--match", "{}", "--view", "a b"], 2, "usage"),
        (["remove", "absent"], 1, "not_found"),
        (["remove", "declared"], 2, "invalid_trigger"),
        (["disable", "declared"], 2, "invalid_trigger"),
        (["restart", "absent"], 1, "not_found"),
        (["deliveries", "absent"], 1, "not_found"),
        (["redeliver", "declared", "nonsense"], 1, "not_found"),
        (["deliveries", "declared", "--status", "lost"], 2, "usage"),
        ([], 2, "usage"),
    ],
)
def test_what_cannot_be_done_says_why(world: World, args: list[str], code: int, error: str) -> None:
    if args[:1] == ["add"]:
        given = {"--view": "positions", "--webhook": world.receiver.url}
        args = [*args, *(it for pair in given.items() if pair[0] not in args for it in pair)]
    if not args:
        ran = tidemark("triggers", "--json", cwd=world.server.directory)
    else:
        ran = world.ask(*args, "--json")
    assert ran.code == code
    told = ran.json["error"]
    assert told["code"] == error
    assert told["message"]
    assert told["hint"] or error == "usage"


def test_a_fault_of_a_filter_points_to_the_schema(world: World) -> None:
    ran = world.add("x", '{"quantiy": {"_gt": 1}}')
    assert "Did you mean 'quantity'?" in ran.err
    assert "hint: `tidemark schema` prints the columns of positions" in ran.err


def test_the_commands_and_the_document_of_the_howto_work(world: World) -> None:
    blocks = re.findall(r"```console\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(it.removeprefix("$ tidemark triggers ")) for it in lines]
    commands = [it for it in commands if it[:1] != ["$"]]
    # An event of that id there is not; and what is removed last can be used before.
    [missing] = [it for it in commands if it[0] == "redeliver" and len(it) == 3]
    commands = sorted((it for it in commands if it != missing), key=lambda it: it[0] == "remove")
    assert {it[0] for it in commands} == {
        *("add", "list", "remove", "deliveries", "redeliver", "disable", "enable", "restart")
    }
    for command in commands:
        assert world.ask(*command).code == 0, command
    assert world.ask(*missing).code == 1
    [document] = re.findall(r"```graphql\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    answer = call(world.server.base_url, "POST", "/graphql", json={"query": document})
    assert answer.json["data"]["create_positions_trigger"]["name"] == "large_position"
    assert world.ask("remove", "large_position").code == 0


def test_a_key_sees_and_ends_its_own_triggers_only(guarded: World) -> None:
    assert guarded.add("ours", key="all").code == 0
    assert guarded.add("theirs", key="acme").code == 0
    view = ("--view", "positions")
    own = guarded.ask("list", *view, "--json", key="acme").json_lines
    assert [it["name"] for it in own] == ["theirs"]
    every = guarded.ask("list", "--json", key="all").json_lines
    assert [it["name"] for it in every] == ["declared", "ours", "theirs"]
    refused = guarded.ask("remove", "ours", *view, "--json", key="acme")
    assert (refused.code, refused.json["error"]["code"]) == (1, "not_found")
    guarded.feed(position("g1", "30", "acme"), position("g2", "30", "other"))

    def fired(name: str) -> set[str]:
        lines = guarded.ask("deliveries", name, "--json", key="all").json_lines
        return {json.loads(it["row_key"])[0] for it in lines}

    wait_until(lambda: fired("ours") == {"acme", "other"})
    wait_until(lambda: fired("theirs") == {"acme"})
    assert guarded.ask("remove", "theirs", *view, key="acme").code == 0


def test_a_key_that_may_not_ask_for_the_schema_needs_to_name_no_view(guarded: World) -> None:
    assert guarded.add("unnamed", key="acme").code == 0
    lines = guarded.ask("list", "--json", key="acme").json_lines
    assert [it["name"] for it in lines] == ["unnamed"]
    for verb in ("disable", "enable", "restart", "deliveries", "redeliver", "remove"):
        assert guarded.ask(verb, "unnamed", key="acme").code == 0


def test_a_trigger_whose_view_is_gone_is_listed_and_removed(world: World) -> None:
    world.run(world.leave_behind("orphan", "former"))
    assert {it["name"]: it["view"] for it in world.ask("list", "--json").json_lines} == {
        "declared": "trades",
        "orphan": "former",
    }
    ran = world.ask("enable", "orphan", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "unknown_view")
    assert world.ask("remove", "orphan", "--json").json["view"] == "former"
    assert "orphan" not in world.ask("list").out


def test_a_trigger_begins_anew(world: World) -> None:
    world.add("anew")
    before = world.ask("list", "--json").json_lines[0]["since"]
    world.ask("disable", "anew")
    world.feed(position("n1", "15"))
    told = world.ask("restart", "anew")
    assert told.out == "The trigger anew begins anew with what changes from now on.\n"
    world.feed(position("n2", "15"))
    world.wait_for("anew", "delivered")
    [delivery] = world.deliveries("anew")
    assert json.loads(delivery["row_key"])[-1] == "n2"
    again = world.ask("restart", "anew", "--json").json
    assert (again["enabled"], int(again["since"]) > int(before)) == (True, True)
    world.ask("remove", "anew")


def test_a_key_without_the_scope_is_refused(guarded: World) -> None:
    for args in (["list", "--view", "positions"], ["remove", "x", "--view", "positions"]):
        ran = guarded.ask(*args, "--json", key="reader")
        assert (ran.code, ran.json["error"]["code"]) == (1, "forbidden")
    nobody = guarded.ask("list", "--json")
    assert (nobody.code, nobody.json["error"]["code"]) == (1, "unauthorized")


def test_a_server_that_is_not_there_or_has_no_graphql_is_told_of(tmp_path: Path) -> None:
    away = tidemark("triggers", "list", "--url", "http://127.0.0.1:9", "--json", cwd=tmp_path)
    assert (away.code, away.json["error"]["code"]) == (1, "unreachable")
    with TidemarkServer("streams: {usage: {kind: usage}}\n") as server:
        ran = tidemark("triggers", "list", "--url", server.base_url, "--json", cwd=tmp_path)
        assert (ran.code, ran.json["error"]["code"]) == (1, "no_graphql")
    with TidemarkServer(CONFIG) as server:
        ran = tidemark("triggers", "list", "--url", server.base_url, "--json", cwd=tmp_path)
        assert (ran.code, ran.json["error"]["code"]) == (1, "views_not_ready")


def test_check_lists_triggers_and_needs_a_secret_for_them(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(CONFIG)
    ran = tidemark("check", cwd=tmp_path)
    assert ran.code == 0
    assert "  1 trigger\n    declared: on trades\n" in ran.out
    assert tidemark("check", "--json", cwd=tmp_path).json["triggers"] == {
        "declared": {"view": "trades", "enabled": True}
    }
    path.write_text(CONFIG.replace(f"secrets: [{SECRET}]", "secrets: []"))
    error = tidemark("check", "--json", cwd=tmp_path).json["error"]
    assert (error["code"], error["field"]) == ("config_invalid", "webhooks.secrets")
    assert "tidemark keygen --webhook" in error["hint"]


def test_check_opens_the_keys_of_issuers_and_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    issuer = {"name": "app", "algorithm": "HS256", "secret": "s" * 32}
    path.write_text(CONFIG + keys() + f"  jwt: [{json.dumps(issuer)}]\n")
    ran = tidemark("check", cwd=tmp_path)
    assert "tokens" in ran.out
    assert "app: HS256, for read" in ran.out
    assert "s" * 32 not in ran.out
    issuer = {"name": "app", "algorithm": "RS256", "public_key_file": "gone.pem"}
    path.write_text(CONFIG + keys() + f"  jwt: [{json.dumps(issuer)}]\n")
    ran = tidemark("check", "--json", cwd=tmp_path)
    assert ran.code == 2
    assert "gone.pem" in ran.json["error"]["message"]


def test_check_with_spark_finds_a_trigger_that_does_not_fit_its_view(tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    calculated = "key: [trade_id], calculated: {twice: quantity * 2}}"
    text = CONFIG.replace("key: [trade_id]}", calculated)
    path.write_text(text.replace('match: {quantity: {_gt: "5"}}', 'match: {twice: {_gt: "5"}}'))
    ran = tidemark_on_spark("check", "--expressions", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "Row rules, triggers and GraphQL fit the views." in ran.out
    path.write_text(text.replace('match: {quantity: {_gt: "5"}}', "match: {twice: {_like: a}}"))
    ran = tidemark_on_spark("check", "--expressions", "--json", cwd=tmp_path)
    assert ran.code == 2
    assert ran.json["error"]["field"].startswith("triggers.declared.match.twice")


def test_keygen_makes_a_secret_that_the_configuration_takes(tmp_path: Path) -> None:
    ran = tidemark("keygen", "--webhook", cwd=tmp_path)
    assert ran.code == 0
    secret, *lines = ran.out.splitlines()
    path = tmp_path / "tidemark.yaml"
    path.write_text("\n".join(lines) + "\n")
    assert load_config(path, {}).webhooks.secrets == [secret]
    other = tidemark("keygen", "--webhook", "--json", cwd=tmp_path).json["secret"]
    assert other.startswith("whsec_")
    assert other != secret
    ran = tidemark("keygen", "--webhook", "--name", "x", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["field"]) == (2, "name")
