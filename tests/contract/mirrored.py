"""A ledger and the topics that it is mirrored to, for tests of the mirror."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from tests.contract.events import START, draft
from tests.contract.stores import Ledger, LedgerHome, all_commits, all_events, append
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld, as_mirrored, as_read
from tidemark.ingress.drafts import Draft
from tidemark.ledger.port import CommitRow, CopyState
from tidemark.mirror.ahead import CommitReader
from tidemark.mirror.chunks import Chunk
from tidemark.mirror.places import Place, place_in
from tidemark.pipeline.kafka.comparing import compare_topics
from tidemark.pipeline.landing.comparing import Compared

STREAMS = ("usage", "trades")


async def ledger_and_world(home: LedgerHome, directory: Path) -> tuple[Ledger, MirrorWorld]:
    """A new ledger, and topics of its own on the broker that the tests share."""
    return await home.open(), MirrorWorld(directory, home.url, shared_broker())


def some(source: random.Random, name: str, count: int) -> list[Draft]:
    """Events of two streams, some of runs, with times in no order."""
    return [
        draft(
            f"{name}-{n}",
            stream=(stream := source.choice(STREAMS)),
            metric="calls" if stream == "usage" else None,
            quantity=str(source.randrange(100)) if stream == "usage" else None,
            data='{"a":"\\u00e4 \\"x\\"","b":1.10}' if source.random() < 0.5 else None,
            causality_key=source.choice([None, "run-1", "Lauf ä"]),
            occurred_at=START + source.randrange(10**9),
        )
        for n in range(count)
    ]


async def fill(ledger: Ledger, name: str, sizes: list[int]) -> None:
    source = random.Random(name)
    for number, size in enumerate(sizes):
        if size:
            await append(ledger, *some(source, f"{name}-{number}", size))
        else:
            await ledger.tick(0)


async def assert_mirrored(world: MirrorWorld, ledger: Ledger) -> None:
    expected = as_mirrored(await all_commits(ledger), await all_events(ledger))
    assert as_read(await asyncio.to_thread(world.read)) == expected


async def all_places(ledger: Ledger) -> list[Place]:
    """Where each event of the ledger is, as the ledger knows it."""
    found = []
    for sequence in range(1, (await ledger.head()).last_sequence + 1):
        placed = await ledger.places_of(sequence)
        assert placed is not None, sequence
        found.append(place_in(placed, sequence))
    return found


async def rewind(home: LedgerHome, last: CommitRow) -> None:
    """The ledger ends with this commit again, as on a server that did not get what came after."""
    for table in ("events", "commits"):
        await allow_changes(home, table)
    await home.sql(f"DELETE FROM events WHERE ingress_sequence > {last.last_sequence}")
    await home.sql(f"DELETE FROM commits WHERE received_at > {last.received_at}")
    chain = f"x'{last.chain.hex()}'" if home.kind == "sqlite" else f"'\\x{last.chain.hex()}'"
    await home.sql(
        f"UPDATE ledger SET last_sequence = {last.last_sequence},"
        f" received_at = {last.received_at}, chain = {chain}"
    )


async def allow_changes(home: LedgerHome, table: str) -> None:
    """From now on somebody may change what is in a table of the ledger."""
    if home.kind == "sqlite":
        for what in ("update", "delete"):
            await home.sql(f"DROP TRIGGER {table}_no_{what}")
    else:
        await home.sql(f"DROP TRIGGER {table}_append_only ON {table}")


async def told_of(ledger: Ledger, is_so: Callable[[CopyState], bool]) -> CopyState:
    """What the mirror says of itself, as soon as it says this."""
    async with asyncio.timeout(90):
        while True:
            told = (await ledger.copies()).get("mirror")
            if told is not None and is_so(told):
                return told
            await asyncio.sleep(0.05)


async def compared(world: MirrorWorld, ledger: Ledger) -> Compared:
    loop = asyncio.get_running_loop()

    reader = CommitReader(ledger)

    def next_chunk(received_at: int) -> Chunk:
        work = reader.after(received_at)
        return asyncio.run_coroutine_threadsafe(work, loop).result().chunk({})

    placed_upto = await ledger.placed_upto()
    found = await asyncio.to_thread(compare_topics, world.config, next_chunk, placed_upto)
    assert found is not None
    return found
