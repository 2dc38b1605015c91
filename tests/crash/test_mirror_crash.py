"""A mirror that is killed at any point leaves no event out and none there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from tests.contract.events import draft
from tests.contract.mirrored import all_places
from tests.contract.stores import LedgerHome, all_commits, all_events, append
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld, as_mirrored, as_read
from tests.services.nursery import run

MIRROR_POINTS: Final = (
    "mirror.begun",
    "mirror.events_sent",
    "mirror.before_commit",
    "mirror.committed",
    "mirror.placed",
)
SETTLED_WITHIN_S: Final = 20.0


def mirror(world: MirrorWorld, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TIDEMARK_")}
    environment |= {"TIDEMARK_CONFIG": str(world.path)}
    if crash_at is not None:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    command = ["-m", "tidemark", "mirror", "--until-caught-up"]
    return run(command, cwd=world.path.parent, env=environment)


def read_soon(world: MirrorWorld) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Kafka ends a transaction that is committed in one partition after the other."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while True:
        try:
            return world.read()
        except SystemExit:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


async def test_a_mirror_killed_at_every_point_of_a_transaction_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    home = LedgerHome(f"sqlite:///{tmp_path / 'ledger.db'}")
    world = MirrorWorld(tmp_path, home.url, shared_broker())
    ledger = await home.open()
    try:
        for point in MIRROR_POINTS:
            for number in range(3):
                name = f"{point}-{number}"
                await append(ledger, *(draft(f"{name}-{n}", name) for n in range(7)))
            done = await asyncio.to_thread(mirror, world, point)
            assert done.returncode == -signal.SIGKILL, done.stdout
            # What can be read is whole, however far it goes.
            found = as_read(await asyncio.to_thread(read_soon, world)) if world.topics() else []
            expected = as_mirrored(await all_commits(ledger), await all_events(ledger))
            assert found == expected[: len(found)], point
        done = await asyncio.to_thread(mirror, world)
        assert done.returncode == 0, done.stdout
        assert as_read(await asyncio.to_thread(world.read)) == as_mirrored(
            await all_commits(ledger), await all_events(ledger)
        )
        places = await all_places(ledger)
        assert len({*places}) == len(places)
    finally:
        await home.close()
