"""The consumer that docs/reference/kafka.md gives to everyone stops at what is not as promised."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.contract.events import draft
from tests.contract.mirrored import assert_mirrored, fill, ledger_and_world
from tests.contract.planted_messages import (
    EVENTS,
    Change,
    in_reverse,
    numbered_on,
    plant,
    with_another_hash,
    with_another_header,
    with_another_key,
)
from tests.contract.stores import LedgerHome, append


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_reverse, "out of order"),
        (with_another_key, "header or key do not fit the value"),
        (with_another_header, "header or key do not fit the value"),
        (numbered_on, "not the events of commit 8"),
        (with_another_hash, "not the history of commit 8"),
    ],
)
async def test_it_stops_at_messages_that_are_not_those_of_the_ledger(
    change: Change,
    said: str,
    sqlite_home: LedgerHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, change, is_summed=True)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(EVENTS)))
    await world.mirror()
    with pytest.raises(SystemExit, match=said):
        await asyncio.to_thread(world.read)


async def test_it_stops_at_a_message_that_was_altered_on_its_way(
    sqlite_home: LedgerHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, with_another_hash, is_summed=False)
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await append(ledger, *(draft(f"{n}") for n in range(EVENTS)))
    await world.mirror()
    with pytest.raises(SystemExit, match="altered: commit 8"):
        await asyncio.to_thread(world.read)


async def test_it_stops_at_a_message_that_is_gone(sqlite_home: LedgerHome, tmp_path: Path) -> None:
    ledger, world = await ledger_and_world(sqlite_home, tmp_path)
    await fill(ledger, "events", [9, 0, 3])
    await world.mirror()
    await assert_mirrored(world, ledger)
    usage = f"{world.prefix}usage"
    await asyncio.to_thread(world.remove_messages, usage)
    with pytest.raises(SystemExit, match=rf"missing: \('{usage}', \d, \d\) of commit 9"):
        await asyncio.to_thread(world.read)
