"""What is in Kafka held against the ledger, by `verify --deep` and by the consumer of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.events import draft
from tests.contract.mirrored import compared, fill, ledger_and_world
from tests.contract.stores import LedgerHome, append
from tests.services.mirroring import alter_message
from tidemark.mirror import ahead
from tidemark.pipeline.landing.comparing import Compared


async def test_what_is_in_kafka_is_proven_from_the_ledger(
    home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_EVENTS", 10)
    ledger, world = await ledger_and_world(home, tmp_path)
    await fill(ledger, "events", [3, 0, 9, 1, 20, 0])
    await world.mirror()
    assert await compared(world, ledger) == Compared("kafka", 6, 33)
    # What is not mirrored yet is no difference.
    await fill(ledger, "more", [2])
    assert await compared(world, ledger) == Compared("kafka", 6, 33)
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    for events in (33, 0):
        # Behind all that was mirrored, and before more of it.
        found = await compared(world, ledger)
        assert found.difference is not None
        assert found.difference.message == "the mirror has not written this message"
        assert found.difference.block.startswith(f"{world.prefix}usage[")
        assert found.events >= events
        await fill(ledger, f"after-{events}", [30])
        await world.mirror()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value.replace(b'"tenantId":"acme"', b'"tenantId":"zeta"'), "differs"),
        (lambda value: value[:-1] + b',"more":1}', "differs"),
    ],
)
async def test_a_message_that_differs_is_named(
    change: Callable[[bytes], bytes],
    said: str,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alter_message(monkeypatch, 5, change)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(8)))
    await world.mirror()
    found = await compared(world, ledger)
    assert found.difference is not None
    assert (found.difference.sequence, found.difference.block) == ("5", "usage")
    assert said in found.difference.message


async def test_the_consumer_of_the_page_finds_what_is_wrong(
    sqlite_home: LedgerHome, tmp_path: Path
) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [3])
    await world.mirror()
    await asyncio.to_thread(world.write, "usage", b"{}", key=b"x")
    with pytest.raises(SystemExit, match="not written by the mirror"):
        await asyncio.to_thread(world.read)
