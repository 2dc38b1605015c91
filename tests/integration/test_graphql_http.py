"""GraphQL over HTTP: the statuses, the types, and a page that needs nothing from elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from tests.contract.views_home import Views, ViewsHome
from tests.integration.graphql_rows import fill, orders, service
from tests.unit.live.graphql_triggers import Triggers
from tests.unit.live.graphql_views import COUNTERS, ORDERS
from tidemark.config.load import load_config
from tidemark.live.access import Gatekeeper
from tidemark.live.graphql.configured import introspection, service_limits
from tidemark.live.graphql.endpoint import GraphqlEndpoint
from tidemark.live.graphql.limits import QueryLimits
from tidemark.live.graphql.page import GraphiqlPage
from tidemark.live.graphql.rate import RateLimits
from tidemark.live.graphql.service import ServiceLimits
from tidemark.views.port import RowQuery, RowsFound
from tidemark.web.access import Access
from tidemark.web.application import Application, Route
from tidemark.web.messages import Request, Response

GRAPHQL = "application/graphql-response+json"
READER = "tm_reader"
CONFIG = """
auth:
  keys:
    - name: reader
      sha256: 49bbaf0a4c1afd824479ba9e762f5f2644c696775a9c2322e1dcb04aafab90ac
      scopes: [read]
      tenants: ["*"]
"""


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return str(self.json["errors"][0]["extensions"]["code"])


class NotAnswered(Exception):
    """Nothing came back."""


class Client:
    """Calls the application as a server would."""

    def __init__(self, application: Application) -> None:
        self._application = application
        # Set when whoever asks goes away without waiting for the answer.
        self.leaves = asyncio.Event()

    async def get(self, path: str, **headers: str) -> Answer:
        return await self._call("GET", path, b"", headers)

    async def post(self, body: Any, **headers: str) -> Answer:
        text = body if isinstance(body, bytes) else msgspec.json.encode(body)
        given = {"content_type": "application/json"} | headers
        return await self._call("POST", "/graphql", text, given)

    async def _call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        place, _, query = path.partition("?")
        sent: list[Any] = []
        scope = {
            "type": "http",
            "method": method,
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": [
                (b"host", b"localhost"),
                (b"content-length", b"%d" % len(body)),
                *((n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()),
            ],
        }

        received = False

        async def receive() -> Any:
            nonlocal received
            if not received:
                received = True
                return {"type": "http.request", "body": body}
            await self.leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        if not sent:
            raise NotAnswered
        start, content = sent
        names = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], names, content["body"])


def application(endpoint: GraphqlEndpoint, config: Any) -> Application:
    page = GraphiqlPage()

    async def nothing() -> None:
        pass

    async def asset(request: Request) -> Response:
        return page.asset(request)

    routes = [
        Route("GET", "/graphql", endpoint.get),
        Route("POST", "/graphql", endpoint.post),
        Route("GET", "/graphql/assets/{name}", asset),
    ]
    return Application(Access(config), routes, [], startup=nothing, shutdown=nothing)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ViewsHome]:
    place = ViewsHome(f"sqlite:///{tmp_path / 'views.db'}")
    yield place
    await place.close()


async def client(
    home: ViewsHome, tmp_path: Path, text: str = "", *, store: Any = None, **options: Any
) -> Client:
    opened = await home.open()
    await opened.declare([ORDERS, COUNTERS])
    await fill(opened, orders(3))
    path = tmp_path / "tidemark.yaml"
    path.write_text(text or "state_dir: state\n")
    config = load_config(path, {})
    options = {"limits": service_limits(config), "may_introspect": introspection(config)} | options
    endpoint = GraphqlEndpoint(
        service(store or opened, **options), Gatekeeper(config).authenticate, max_body_bytes=10_000
    )
    return Client(application(endpoint, config))


@pytest.fixture
async def open_client(home: ViewsHome, tmp_path: Path) -> Client:
    return await client(home, tmp_path)


async def test_a_query_is_answered_in_the_type_that_is_accepted(open_client: Client) -> None:
    body = {"query": "{ orders { number } }"}
    for accept, kind in (
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        (GRAPHQL, GRAPHQL),
        (f"{GRAPHQL}, application/json;q=0.9", GRAPHQL),
    ):
        answer = await open_client.post(body, accept=accept)
        assert answer.status == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert len(answer.json["data"]["orders"]) == 3
        assert answer.json["extensions"]["frontier"] == "10"


async def test_a_query_may_stand_in_the_address(open_client: Client) -> None:
    query = {
        "query": "query A($n: BigInt) { orders(where: {number: {_eq: $n}}) { number } }",
        "variables": '{"n": 9007199254740993}',
        "operationName": "A",
    }
    answer = await open_client.get(f"/graphql?{urlencode(query)}", accept="text/html")
    assert answer.json["data"] == {"orders": [{"number": "9007199254740993"}]}
    answer = await open_client.get(f"/graphql?{urlencode({'query': '{a}', 'variables': 'x'})}")
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize("name", ["variables", "extensions"])
async def test_what_stands_in_the_address_is_read_as_carefully_as_a_body(
    open_client: Client, name: str
) -> None:
    for text in ("[" * 20_000, '{"a":' * 5_000, "x", "\ud800".encode("utf-8", "surrogatepass")):
        query = urlencode({"query": "{ __typename }", name: text})
        answer = await open_client.get(f"/graphql?{query}")
        assert answer.status == 400, text[:10]
        assert b"internal" not in answer.body


async def test_numbers_in_the_address_keep_every_digit(open_client: Client) -> None:
    query = {
        "query": "query ($p: Decimal) { orders(where: {price: {_eq: $p}}) { price } }",
        "variables": '{"p": 12345678901234567890.123456789}',
    }
    found = (await open_client.get(f"/graphql?{urlencode(query)}")).json
    wanted = "12345678901234567890.123456789"
    assert all(row["price"] == wanted for row in found["data"]["orders"])
    exact = {"query": query["query"], "variables": msgspec.json.encode({"p": wanted}).decode()}
    assert found == (await open_client.get(f"/graphql?{urlencode(exact)}")).json


async def test_a_mutation_is_not_sent_with_get(home: ViewsHome, tmp_path: Path) -> None:
    triggers = Triggers()
    calls = await client(home, tmp_path, triggers=triggers)
    text = 'mutation { delete_orders_trigger(name: "big") { name } }'
    for accept in (GRAPHQL, "application/json"):
        answer = await calls.get(f"/graphql?{urlencode({'query': text})}", accept=accept)
        assert (answer.status, answer.code) == (405, "mutation_over_get")
        assert answer.headers["allow"] == "POST"
    assert triggers.asked == []
    answer = await calls.post({"query": text})
    assert answer.json == {"data": {"delete_orders_trigger": {"name": "big"}}}


async def test_a_get_without_a_query_is_refused_unless_a_person_comes(open_client: Client) -> None:
    answer = await open_client.get("/graphql", accept="application/json")
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "code", "always"),
    [
        ({"query": "{ orders { numbr } }"}, "graphql_invalid", False),
        ({"query": "{"}, "graphql_syntax", False),
        (
            {"query": "query ($n: Int!) { orders(limit: $n) { number } }"},
            "graphql_variables",
            False,
        ),
        ({"query": "subscription { orders { operation } }"}, "subscription_over_http", False),
        ({"query": 1}, "invalid_request", True),
        (b"{", "invalid_request", True),
    ],
)
async def test_a_refused_document_is_a_bad_request_to_who_asks_for_statuses(
    open_client: Client, body: Any, code: str, always: bool
) -> None:
    for accept, status in ((GRAPHQL, 400), ("application/json", 400 if always else 200)):
        answer = await open_client.post(body, accept=accept)
        assert (answer.status, answer.code) == (status, code)
        assert "data" not in answer.json


async def test_a_field_that_fails_is_an_answer_nevertheless(open_client: Client) -> None:
    answer = await open_client.post({"query": "{ orders(limit: -1) { number } }"}, accept=GRAPHQL)
    assert answer.status == 200
    assert answer.json["data"] is None
    assert answer.code == "invalid_argument"


async def test_a_body_of_another_type_or_size_is_refused(open_client: Client) -> None:
    answer = await open_client.post({"query": "{a}"}, content_type="text/plain")
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    for accept in (GRAPHQL, "application/json"):
        answer = await open_client.post({"query": "{a}" + " " * 10_000}, accept=accept)
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert "live.max_document_bytes" in answer.json["errors"][0]["extensions"]["hint"]


async def test_too_many_documents_are_told_when_to_come_back(
    home: ViewsHome, tmp_path: Path
) -> None:
    limits = ServiceLimits(rate=RateLimits(0.5, 1))
    calls = await client(home, tmp_path, limits=limits)
    assert (await calls.post({"query": "{ __typename }"})).status == 200
    answer = await calls.post({"query": "{ __typename }"})
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert answer.headers["retry-after"] == "2"


class Unhurried:
    """A store that answers when it is told to."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.asked = self.ended = self.most = 0

    @property
    def dialect(self) -> str:
        return self._views.dialect

    async def select(self, view: str, query: RowQuery) -> RowsFound:
        self.asked += 1
        self.is_asked.set()
        self.most = max(self.most, self.asked - self.ended)
        try:
            await self.may_go_on.wait()
            return await self._views.select(view, query)
        finally:
            self.ended += 1


async def test_so_many_queries_are_answered_at_once_and_others_not_for_ever(
    home: ViewsHome, tmp_path: Path
) -> None:
    store = Unhurried(await home.open())
    limits = ServiceLimits(queries=QueryLimits(at_once=2, turn_within_s=0.2))
    calls = await client(home, tmp_path, store=store, limits=limits)
    body = {"query": "{ a: orders { number } b: orders { number } }"}
    waiting = [asyncio.create_task(calls.post(body)) for _ in range(2)]
    await asyncio.sleep(0.05)
    answer = await calls.post(body)
    assert (answer.status, answer.code) == (503, "too_many_queries")
    assert answer.headers["retry-after"] == "1"
    store.may_go_on.set()
    for task in waiting:
        assert len((await task).json["data"]["b"]) == 3
    # However many fields a document has, it has one query at a time.
    assert (store.asked, store.most) == (4, 2)
    assert (await calls.post(body)).status == 200


async def test_a_query_whose_client_has_gone_away_is_ended(home: ViewsHome, tmp_path: Path) -> None:
    store = Unhurried(await home.open())
    calls = await client(home, tmp_path, store=store)
    for method in ("get", "post"):
        calls.leaves = asyncio.Event()
        store.is_asked.clear()
        body = {"query": "{ orders { number } }"}
        request = calls.post(body) if method == "post" else calls.get(f"/graphql?{urlencode(body)}")
        asking = asyncio.create_task(request)
        async with asyncio.timeout(5):
            await store.is_asked.wait()
            assert not asking.done()
            calls.leaves.set()
            with pytest.raises(NotAnswered):
                await asking
        assert store.asked == store.ended


async def test_where_there_are_keys_one_is_needed(home: ViewsHome, tmp_path: Path) -> None:
    calls = await client(home, tmp_path, CONFIG)
    answer = await calls.post({"query": "{ orders { number } }"})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    good = {"authorization": f"Bearer {READER}"}
    answer = await calls.post({"query": "{ orders { number } }"}, **good)
    assert answer.status == 200
    answer = await calls.post({"query": "{ __schema { description } }"}, **good)
    assert (answer.status, answer.code) == (403, "forbidden")


async def test_the_page_loads_only_what_is_served_here_and_lets_nothing_else_in(
    open_client: Client,
) -> None:
    answer = await open_client.get("/graphql", accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        directive.split(" ", 1)
        for directive in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = answer.body.decode()
    assert "//" not in page
    linked = set(re.findall(r'(?:src|href)="([^"]+)"', page)) - {"data:,"}
    stored = {
        entry.name.removesuffix(".gz")
        for entry in (files("tidemark.live.graphql") / "assets").iterdir()
    }
    assert linked == {f"graphql/assets/{name}" for name in stored - {"LICENSES"}}


async def test_every_file_of_the_page_is_served_whole(open_client: Client) -> None:
    types = {"js": "text/javascript", "css": "text/css", "LICENSES": "text/plain"}
    for entry in (files("tidemark.live.graphql") / "assets").iterdir():
        name = entry.name.removesuffix(".gz")
        content = entry.read_bytes()
        plain = gzip.decompress(content) if entry.name != name else content
        answer = await open_client.get(f"/graphql/assets/{name}", accept_encoding="gzip, br")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(types[name.rpartition(".")[2]])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.body == content
        assert ("content-encoding" in answer.headers) == (entry.name != name)
        answer = await open_client.get(f"/graphql/assets/{name}")
        assert answer.body == plain
        assert "content-encoding" not in answer.headers
    assert (await open_client.get("/graphql/assets/endpoint.py")).status == 404
    assert (await open_client.get("/graphql/assets/..%2Fendpoint.py")).status == 404


def test_the_styles_and_our_own_script_name_no_other_host() -> None:
    place = files("tidemark.live.graphql") / "assets"
    styles = gzip.decompress((place / "graphiql.min.css.gz").read_bytes()).decode()
    assert "@import" not in styles
    assert set(re.findall(r"url\(['\"]?([a-z]+:|/|\w)", styles)) == {"data:"}
    assert "//" not in re.sub(r"^ *//.*$", "", (place / "page.js").read_text(), flags=re.MULTILINE)
