"""A process that polls `sequence > last` while others append: `python -m … URL`.

It asks the database itself and not the store, whose own idea of the last sequence could hide a gap.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import msgspec

from tests.contract.stores import SQLITE_SCHEME

Poll = Callable[[int], Awaitable[list[int]]]

POLL_S = 0.002


class Sighting(msgspec.Struct):
    """What a reader saw: how far it came, in how many steps, and what was out of order."""

    last: int = 0
    steps: int = 0
    faults: list[str] = msgspec.field(default_factory=list)

    def look(self, numbers: list[int]) -> None:
        """Take the numbers of one poll, which must go on from the last without a gap."""
        for number in numbers:
            if number != self.last + 1:
                self.faults.append(f"{number} after {self.last}")
            self.last = number
        self.steps += bool(numbers)


async def watch(poll: Poll, is_over: Callable[[], bool]) -> Sighting:
    """Poll until it is over, and once more then."""
    sighting = Sighting()
    over = False
    while not over:
        over = is_over()
        sighting.look(await poll(sighting.last))
        await asyncio.sleep(POLL_S)
    return sighting


def postgres_poll(connection: asyncpg.Connection, table: str = "tidemark.events") -> Poll:
    async def poll(last: int) -> list[int]:
        rows = await connection.fetch(
            f"SELECT ingress_sequence FROM {table}"
            " WHERE ingress_sequence > $1 ORDER BY ingress_sequence",
            last,
        )
        return [row[0] for row in rows]

    return poll


def sqlite_poll(connection: sqlite3.Connection) -> Poll:
    async def poll(last: int) -> list[int]:
        rows = connection.execute(
            "SELECT ingress_sequence FROM events"
            " WHERE ingress_sequence > ? ORDER BY ingress_sequence",
            (last,),
        )
        return [row[0] for row in rows]

    return poll


async def main(url: str) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    if url.startswith(SQLITE_SCHEME):
        path = Path(url.removeprefix(SQLITE_SCHEME))
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            sighting = await watch(sqlite_poll(file), told.done)
    else:
        session = await asyncpg.connect(url)
        try:
            sighting = await watch(postgres_poll(session), told.done)
        finally:
            await session.close()
    sys.stdout.write(json.dumps(msgspec.to_builtins(sighting)) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
