"""PostgreSQL restarts, dies, or cannot be reached: senders are told to try again, nothing is lost,
and ingest goes on by itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.crash.audit import assert_complete, assert_sound
from tests.crash.conftest import MakeServer
from tests.crash.proxy import Wire
from tests.crash.senders import Publishers, traffic
from tests.crash.variants import IMPATIENT
from tests.services.http_calls import call
from tests.services.postgres import PostgresServer

UNAVAILABLE: Final = (503, "ledger_unavailable")


def ended_in_order(server: PostgresServer) -> None:
    server.stop("fast")


def ended_at_once(server: PostgresServer) -> None:
    server.stop("immediate")


def killed(server: PostgresServer) -> None:
    server.kill()


@pytest.mark.parametrize("ended", [ended_in_order, ended_at_once, killed])
async def test_a_restart_of_the_database_under_load_is_a_pause(
    mortal_postgres: PostgresServer,
    mortal_url: str,
    ended: Callable[[PostgresServer], None],
    server_on: MakeServer,
) -> None:
    server = server_on(mortal_url).start()
    async with Publishers(traffic(random.Random(1), senders=6), [server.base_url]) as publishers:
        await publishers.answers(30)
        await asyncio.to_thread(ended, mortal_postgres)
        await asyncio.sleep(0.3)
        ready = await asyncio.to_thread(call, server.base_url, "GET", "/readyz")
        assert ready.status == 503
        assert ready.json["parts"]["ledger"]["state"] == "unavailable"
        await asyncio.to_thread(mortal_postgres.start)
        await publishers.answers(30)
        await assert_sound(mortal_url, publishers)
        await publishers.wind_down()
        await assert_complete(mortal_url, publishers)
    assert set(publishers.refusals) == {UNAVAILABLE}
    assert not publishers.disconnections, "the process itself was there all the time"


async def test_sessions_that_an_operator_ends_are_made_anew(
    postgres: PostgresServer, postgres_url: str, server_on: MakeServer
) -> None:
    end_sessions = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{urlsplit(postgres_url).path.removeprefix('/')}'"
    )
    server = server_on(postgres_url).start()
    async with Publishers(traffic(random.Random(2), senders=6), [server.base_url]) as publishers:
        for _ in range(5):
            await publishers.answers(10)
            assert await asyncio.to_thread(postgres.execute, end_sessions)
        await publishers.answers(20)
        await publishers.wind_down()
        await assert_complete(postgres_url, publishers)
    assert set(publishers.refusals) <= {UNAVAILABLE}
    assert not publishers.disconnections, "the process itself was there all the time"


async def test_connections_that_are_cut_are_made_anew(
    postgres_url: str, server_on: MakeServer
) -> None:
    async with Wire(postgres_url) as wire:
        server = await asyncio.to_thread(server_on(wire.url).start)
        planned = traffic(random.Random(3), senders=6)
        async with Publishers(planned, [server.base_url]) as publishers:
            for _ in range(5):
                await publishers.answers(10)
                assert wire.cut() > 0
            await publishers.answers(20)
            await publishers.wind_down()
            await assert_complete(postgres_url, publishers)
        assert set(publishers.refusals) <= {UNAVAILABLE}
        assert not publishers.disconnections, "the process itself was there all the time"


async def test_a_connection_that_falls_silent_is_given_up(
    postgres_url: str, server_on: MakeServer
) -> None:
    async with Wire(postgres_url) as wire:
        server = await asyncio.to_thread(server_on(wire.url, variant=IMPATIENT).start)
        planned = traffic(random.Random(4), senders=6)
        async with Publishers(planned, [server.base_url]) as publishers:
            await publishers.answers(10)
            wire.fall_silent()
            await publishers.refused(6, timeout_s=20)
            wire.speak_again()
            await publishers.answers(20)
            await publishers.wind_down()
            await assert_complete(postgres_url, publishers)
        assert set(publishers.refusals) <= {UNAVAILABLE}
        assert not publishers.disconnections, "the process itself was there all the time"
