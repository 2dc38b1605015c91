"""Eight API processes on one PostgreSQL, and readers that see 1, 2, 3, … whatever they do."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from tests.crash.audit import assert_complete
from tests.crash.conftest import MakeServer
from tests.crash.reading import POSTGRES_SCHEMA
from tests.crash.senders import Publishers, traffic
from tests.crash.watching import OutOfOrder, Watch, follow_tail, poll

PROCESSES = 8
# What is written at least, and how often the reader looks at least while it is.
ANSWERS = 30 * 2 * PROCESSES
LOOKS = 100


async def test_readers_see_every_number_in_order_while_eight_processes_write(
    postgres_url: str, server_on: MakeServer
) -> None:
    servers = [server_on(postgres_url).start(wait=False) for _ in range(PROCESSES)]
    for server in servers:
        await asyncio.to_thread(server.wait_until_ready)
    over_sql, over_websocket = Watch(), Watch()
    connection = await asyncpg.connect(
        postgres_url, server_settings={"search_path": POSTGRES_SCHEMA}
    )
    readers = [
        asyncio.create_task(poll(connection, "events", over_sql)),
        asyncio.create_task(follow_tail(servers[0].websocket_url, over_websocket)),
    ]
    planned = traffic(random.Random(8), senders=2 * PROCESSES, largest=40)
    urls = [server.base_url for server in servers]
    try:
        async with Publishers(planned, urls, roaming=False) as publishers:
            await publishers.answers(ANSWERS)
            await over_sql.looked(LOOKS)
            await publishers.wind_down()
            history = await assert_complete(postgres_url, publishers)
            for watch in (over_sql, over_websocket):
                await watch.reached(history.head.last)
    finally:
        for reader in readers:
            reader.cancel()
        ended = await asyncio.gather(*readers, return_exceptions=True)
        await connection.close()
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
    assert over_sql.last == over_websocket.last == history.head.last
    assert not publishers.refusals
    assert not publishers.disconnections


async def test_the_reader_would_see_numbers_that_are_taken_outside_the_lock(
    postgres_url: str,
) -> None:
    """A database sequence gives numbers in the order of asking, not in that of the commits."""
    early, late, reader = [await asyncpg.connect(postgres_url) for _ in range(3)]
    try:
        await early.execute("CREATE TABLE numbered (ingress_sequence bigserial PRIMARY KEY)")
        transaction = early.transaction()
        await transaction.start()
        await early.execute("INSERT INTO numbered DEFAULT VALUES")
        await late.execute("INSERT INTO numbered DEFAULT VALUES")
        with pytest.raises(OutOfOrder, match="2 was visible after 0"):
            async with asyncio.timeout(10):
                await poll(reader, "numbered", Watch())
        await transaction.commit()
    finally:
        for connection in (early, late, reader):
            await connection.close()
