"""The page at /graphql as a person uses it: it shows the schema, answers, and follows changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from playwright.sync_api import Page

from tests.services.browser import running_browser
from tests.services.fed_views import FedViews, Row
from tests.services.tidemark_server import TidemarkServer
from tidemark.config import load_config
from tidemark.pipeline.definitions import Definitions, table_schema
from tidemark.views.opening import open_views

VIEW = "positions"
SUBSCRIPTION = """subscription {
  positions(where: {quantity: {_gte: "10"}}) { operation data { account quantity } }
}"""


def position(account: str, quantity: str) -> Row:
    return {
        "tenant_id": "acme",
        "trade_id": "t1",
        "account": account,
        "symbol": "TIDE",
        "side": "buy",
        "quantity": Decimal(quantity),
        "price": Decimal("1.5"),
        "executed_at": 1_700_000_000_000_000,
        "row_ts": 1,
        "row_seq": 1,
    }


class Feed:
    """Feeds the views of a server from a test that is not asynchronous."""

    def __init__(self, server: TidemarkServer) -> None:
        self._config = load_config(server.config_path, dict(server.env))
        self._rows: list[list[Row]] = []

    def commit(self, *rows: Row) -> None:
        """Commits anew from the beginning: what is there already is passed over."""
        self._rows.append(list(rows))
        # The browser has a loop of its own in this thread.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self._commit()).result()

    async def _commit(self) -> None:
        store = await open_views(self._config)
        try:
            [table] = [t for t in Definitions.of(self._config).tables if t.name == VIEW]
            fed = FedViews(store, [table_schema(table, ())])
            await fed.declare()
            for rows in self._rows:
                await fed.commit(VIEW, rows)
        finally:
            await store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[TidemarkServer]:
    with TidemarkServer() as running:
        yield running


@pytest.fixture(scope="module")
def feed(server: TidemarkServer) -> Feed:
    feed = Feed(server)
    feed.commit(position("a", "5"), position("b", "20"))
    return feed


@pytest.fixture
def page(server: TidemarkServer, feed: Feed) -> Iterator[Page]:
    with running_browser() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.on(
            "request",
            lambda asked: (
                asked.url.startswith((server.base_url, "data:", "blob:"))
                or faults.append(f"asked {asked.url}")
            ),
        )
        # It may be that GraphQL is not there yet: that takes a second after the first view.
        page.wait_for_timeout(2_500)
        page.goto(f"{server.base_url}/graphql")
        page.wait_for_selector(".graphiql-query-editor .CodeMirror")
        yield page
        assert faults == []


def run(page: Page, query: str) -> None:
    editor = page.locator(".graphiql-query-editor .CodeMirror")
    editor.evaluate("(element, text) => element.CodeMirror.setValue(text)", query)
    # Until the page has noticed what was typed, as it does after a while without a key.
    page.wait_for_timeout(1_000)
    page.locator("button.graphiql-execute-button").click()


def shown(page: Page, text: str) -> None:
    """Waits until the result shows this."""
    page.locator(".result-window", has_text=text).wait_for(timeout=15_000)


def test_a_query_is_answered_and_the_schema_is_explained(page: Page) -> None:
    run(page, '{ positions(where: {quantity: {_gt: "10"}}) { account quantity } }')
    shown(page, '"quantity": "20"')
    page.get_by_role("button", name="Show Documentation Explorer").click()
    page.locator(".graphiql-doc-explorer", has_text="Subscription").wait_for()


def test_a_subscription_follows_the_rows(page: Page, feed: Feed) -> None:
    run(page, SUBSCRIPTION)
    shown(page, '"account": "b"')
    feed.commit(position("a", "77"))
    shown(page, '"quantity": "77"')
    page.locator("button.graphiql-execute-button").click()


def test_a_mistake_is_shown_where_people_look(page: Page) -> None:
    run(page, "{ positions(where: {quantity: {_eq: null}}) { account } }")
    shown(page, "_is_null")
