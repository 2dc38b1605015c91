"""No room left: senders are told to try again, nothing acknowledged is lost, and when there is room
again ingest goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.crash.audit import assert_complete, assert_sound
from tests.crash.conftest import MakeServer
from tests.crash.reading import SQLITE_SCHEME
from tests.crash.senders import Publishers, traffic
from tests.crash.small_disks import KIB, MIB, SmallDisk, kinds_of_small_disk, small_disk
from tests.services.postgres import PostgresServer
from tests.services.processes import children_of

UNAVAILABLE: Final = (503, "ledger_unavailable")
EVENT_BYTES: Final = 1_500


@pytest.fixture(params=kinds_of_small_disk())
def disk(request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    with small_disk(request.param, 8 * MIB) as disk:
        yield disk


@pytest.fixture(params=kinds_of_small_disk())
def database_disk(request: pytest.FixtureRequest) -> Iterator[SmallDisk]:
    with small_disk(request.param, 192 * MIB) as disk:
        yield disk


def assert_refused_clearly(publishers: Publishers) -> None:
    assert set(publishers.refusals) == {UNAVAILABLE}
    assert "Nothing of this request was acknowledged" in publishers.last_refusal["hint"]
    assert not publishers.disconnections, "the process itself was there all the time"


async def test_sqlite_goes_on_without_a_restart_when_there_is_room_again(
    disk: SmallDisk, server_on: MakeServer
) -> None:
    ledger_url = f"{SQLITE_SCHEME}{disk.directory / 'ledger.db'}"
    server = server_on(ledger_url).start()
    planned = traffic(random.Random(1), senders=6, padding=EVENT_BYTES)
    async with Publishers(planned, [server.base_url]) as publishers:
        await publishers.answers(10)
        disk.fill([server.pid], leave=256 * KIB)
        await publishers.refused(20)
        await assert_sound(ledger_url, publishers)
        disk.free([server.pid])
        await publishers.answers(20)
        await publishers.wind_down()
        await assert_complete(ledger_url, publishers)
    assert_refused_clearly(publishers)


async def test_sqlite_killed_while_the_disk_is_full_has_everything_when_there_is_room_again(
    disk: SmallDisk, server_on: MakeServer
) -> None:
    ledger_url = f"{SQLITE_SCHEME}{disk.directory / 'ledger.db'}"
    server = server_on(ledger_url).start()
    planned = traffic(random.Random(2), senders=6, padding=EVENT_BYTES)
    async with Publishers(planned, [server.base_url]) as publishers:
        await publishers.answers(10)
        disk.fill([server.pid], leave=128 * KIB)
        await publishers.refused(5)
        await asyncio.to_thread(server.kill)
        disk.free([server.pid])
        await asyncio.to_thread(server.start)
        await publishers.answers(20)
        await publishers.wind_down()
        await assert_complete(ledger_url, publishers)


def processes_of(postgres: PostgresServer) -> Callable[[], list[int]]:
    """The server and everything it has started, now and later; what it starts inherits from it."""
    [[data_directory]] = postgres.execute("SHOW data_directory")

    def running() -> list[int]:
        if not postgres.is_running:
            return []
        server = int((Path(data_directory) / "postmaster.pid").read_text().split()[0])
        return [server, *children_of(server)]

    return running


async def test_postgres_goes_on_when_there_is_room_again(
    database_disk: SmallDisk, server_on: MakeServer
) -> None:
    settings = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
    with PostgresServer(settings=settings, directory=database_disk.directory) as postgres:
        running = processes_of(postgres)
        ledger_url = postgres.create_database()
        server = server_on(ledger_url).start()
        planned = traffic(random.Random(3), senders=6, largest=300, padding=EVENT_BYTES)
        async with Publishers(planned, [server.base_url]) as publishers:
            await publishers.answers(10)
            database_disk.fill(running(), leave=512 * KIB)
            await publishers.refused(20)
            database_disk.free(running())
            # Where it was the log that found no room, PostgreSQL may have ended itself.
            await asyncio.to_thread(postgres.start)
            await publishers.answers(20)
            await publishers.wind_down()
            await assert_complete(ledger_url, publishers)
        assert_refused_clearly(publishers)
