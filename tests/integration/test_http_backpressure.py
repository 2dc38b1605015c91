"""A store that stands still turns into 429 for senders, never into memory or into loss."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

import pytest

from tests.contract.stores import KINDS
from tests.integration.http_client import Api, assert_refused, usage
from tests.integration.test_http_health import metric
from tests.services.http_calls import Answer
from tests.services.postgres import PostgresServer
from tests.services.processes import resident_bytes
from tests.services.tidemark_server import TidemarkServer

EVENTS_PER_REQUEST: Final = 10
MAX_QUEUED: Final = 50
REQUESTS: Final = 40
FILLED_WITHIN_S: Final = 10.0
SENDERS: Final = 16

TINY: Final = {
    "TIDEMARK_HTTP__MAX_EVENTS": str(EVENTS_PER_REQUEST),
    "TIDEMARK_LEDGER__MAX_QUEUED_EVENTS": str(MAX_QUEUED),
    "TIDEMARK_LEDGER__MAX_GROUP_EVENTS": str(EVENTS_PER_REQUEST),
}


class Tiny:
    """A server with a queue of five requests, and a way to make its store stand still."""

    def __init__(self, server: TidemarkServer, hold: Callable[[], Any]) -> None:
        self.server = server
        self.hold = hold


@pytest.fixture(params=KINDS)
def tiny(request: pytest.FixtureRequest) -> Iterator[Tiny]:
    if request.param == "sqlite":
        with TidemarkServer(env=TINY) as server:
            yield Tiny(server, lambda: held_file(server))
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    url: str = request.getfixturevalue("postgres_url")
    with TidemarkServer(env=TINY, ledger_url=url) as server:
        yield Tiny(server, lambda: postgres.held(url, "SELECT 1 FROM tidemark.ledger FOR UPDATE"))


@contextmanager
def held_file(server: TidemarkServer) -> Iterator[None]:
    """Hold the write lock of the SQLite ledger, as any tool with the file could."""
    with closing(sqlite3.connect(server.ledger_file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def request_of(tenant: str, number: int) -> list[dict[str, Any]]:
    return [usage(tenant, resourceId=f"{number}-{n}") for n in range(EVENTS_PER_REQUEST)]


def test_a_full_queue_answers_429_and_everything_is_stored_once_in_the_end(
    tiny: Tiny, tenant: str
) -> None:
    api = Api(tiny.server.base_url, tenant)
    api.accept(usage(tenant, customerRef="first"))
    refused: list[Answer] = []
    gave_way = threading.Event()

    def deliver(number: int) -> list[dict[str, Any]]:
        """As a client does: the same request again, until it is taken."""
        while True:
            answer = api.post(*request_of(tenant, number))
            if answer.status == 200:
                results: list[dict[str, Any]] = answer.json["results"]
                return results
            refused.append(answer)
            if not gave_way.wait(1):
                time.sleep(0.2)

    with ThreadPoolExecutor(SENDERS) as senders:
        with tiny.hold():
            under_way = [senders.submit(deliver, number) for number in range(REQUESTS)]
            deadline = time.monotonic() + FILLED_WITHIN_S
            while not refused:
                assert time.monotonic() < deadline, "nobody was refused"
                time.sleep(0.02)
            assert metric(api, "tidemark_ingest_queue_events") == MAX_QUEUED
            assert api.get("/healthz").status == 200
            assert len(api.events()) == 1
        gave_way.set()
        results = [future.result(timeout=60) for future in under_way]

    for answer in refused:
        assert_refused(answer, 429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
    assert {result["status"] for of_one in results for result in of_one} == {"accepted"}
    stored = api.events(limit="1000")
    assert len(stored) == 1 + REQUESTS * EVENTS_PER_REQUEST
    assert [int(it["ingressSequence"]) for it in stored] == list(range(1, len(stored) + 1))
    assert len({it["idempotencyKey"] for it in stored}) == len(stored)
    assert metric(api, "tidemark_ingest_queue_events") == 0


def test_bodies_in_memory_are_bounded_too(postgres: PostgresServer, postgres_url: str) -> None:
    """Ten senders of two megabytes each, where at most four megabytes are worked on at once."""
    limit = 4 * 1024 * 1024
    env = {"TIDEMARK_HTTP__MAX_INFLIGHT_BYTES": str(limit)}
    filling = {"filling": "x" * 20_000}
    with TidemarkServer(env=env, ledger_url=postgres_url) as server:
        api = Api(server.base_url, "acme")

        def events(number: int) -> list[dict[str, Any]]:
            return [usage("acme", resourceId=f"{number}-{n}", meta=filling) for n in range(100)]

        api.accept(*events(0))
        before = resident_bytes(server.pid)
        with ThreadPoolExecutor(10) as senders:
            with postgres.held(postgres_url, "SELECT 1 FROM tidemark.ledger FOR UPDATE"):
                under_way = [senders.submit(api.post, *events(n)) for n in range(1, 11)]
                refused = [f.result() for f in islice(as_completed(under_way, timeout=30), 8)]
                grown = resident_bytes(server.pid) - before
            answers = [future.result(timeout=60) for future in under_way]
        for answer in refused:
            assert_refused(answer, 429, "queue_full")
        assert 200 in {answer.status for answer in answers}
        assert grown < 10 * limit
        for number in range(1, 11):
            api.send(*events(number))
        assert len(api.events(limit="1000")) == 1100
