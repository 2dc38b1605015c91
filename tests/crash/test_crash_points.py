"""SIGKILL at every named point: nothing acknowledged is lost, nothing is stored twice, no gap."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from pathlib import Path
from typing import Final

import pytest

import tidemark
from tests.contract.test_trigger_crash import TRIGGER_POINTS
from tests.contract.test_views_swapping import SWAP_POINTS
from tests.crash.audit import assert_complete, assert_sound, faults
from tests.crash.conftest import MakeServer
from tests.crash.pipelines import OTHER_POINTS, SOME_POINTS
from tests.crash.reading import SQLITE_SCHEME, read_history
from tests.crash.senders import Publishers, traffic
from tests.crash.test_import_crash import IMPORT_POINTS
from tests.crash.test_landing_crash import LANDING_POINTS
from tests.crash.test_mirror_crash import MIRROR_POINTS
from tests.crash.test_webhook_crash import WEBHOOK_POINTS
from tests.crash.variants import LAZY_COMMITS
from tests.services.tidemark_server import TidemarkServer
from tidemark.crash import POINTS

# At which passage the process dies: late enough that some requests were answered before.
SERVER_POINTS: Final = {
    "ingress.decoded": 9,
    "ledger.locked": 4,
    "ledger.events_written": 3,
    "ledger.before_commit": 4,
    "ledger.after_commit": 3,
    "ingress.before_response": 9,
}
MIGRATION_POINTS: Final = ("migrate.before_commit",)

# While these are passed, the sequencer's lock is held.
UNDER_THE_LOCK: Final = ("ledger.locked", "ledger.events_written", "ledger.before_commit")

DURABILITY_PAGE: Final = Path(__file__).parents[2] / "docs" / "concepts" / "durability.md"


async def died(server: TidemarkServer) -> None:
    code = await asyncio.to_thread(server.wait_for_exit)
    assert code == -signal.SIGKILL, server.log_tail()


async def started_unarmed(server: TidemarkServer) -> None:
    server.env.pop("TIDEMARK_CRASH_AT")
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("point", SERVER_POINTS)
async def test_a_process_killed_at_a_point_loses_and_repeats_nothing(
    ledger_url: str, point: str, server_on: MakeServer
) -> None:
    server = server_on(ledger_url, crash_at=f"{point}:{SERVER_POINTS[point]}").start()
    planned = traffic(random.Random(point), senders=6, requests=10)
    async with Publishers(planned, [server.base_url]) as publishers:
        await died(server)
        # By then they have read what was answered before.
        await publishers.disconnected(6)
        answered_before = publishers.answered_requests
        await started_unarmed(server)
        await publishers.finished()
        await assert_complete(ledger_url, publishers)
    assert answered_before > 0, "nothing was acknowledged before the crash"
    assert publishers.disconnections, "nobody noticed the crash"


async def test_a_process_killed_at_its_very_first_commit_leaves_a_ledger_that_can_begin(
    ledger_url: str, server_on: MakeServer
) -> None:
    server = server_on(ledger_url, crash_at="ledger.before_commit").start()
    planned = traffic(random.Random(1), senders=3, requests=3)
    async with Publishers(planned, [server.base_url]) as publishers:
        await died(server)
        assert (await read_history(ledger_url)).events == []
        await started_unarmed(server)
        await publishers.finished()
        await assert_complete(ledger_url, publishers)


async def test_a_process_killed_just_after_the_commit_has_stored_what_it_did_not_acknowledge(
    ledger_url: str, server_on: MakeServer
) -> None:
    server = server_on(ledger_url, crash_at="ledger.after_commit").start()
    planned = traffic(random.Random(2), senders=1, requests=1, overlap=0)
    async with Publishers(planned, [server.base_url]) as publishers:
        await died(server)
        stored = await read_history(ledger_url)
        assert len(stored.commits) == 1
        assert publishers.acknowledgements == []
        await started_unarmed(server)
        await publishers.finished()
        assert {said.status for said in publishers.acknowledgements} == {"duplicate"}
        assert await assert_complete(ledger_url, publishers) == stored


@pytest.mark.parametrize("point", MIGRATION_POINTS)
async def test_a_process_killed_while_it_migrates_leaves_the_migration_to_the_next(
    ledger_url: str, point: str, server_on: MakeServer
) -> None:
    server = server_on(ledger_url, crash_at=point).start(wait=False)
    await died(server)
    await started_unarmed(server)
    planned = traffic(random.Random(3), senders=2, requests=3)
    async with Publishers(planned, [server.base_url]) as publishers:
        await publishers.finished()
        await assert_complete(ledger_url, publishers)


@pytest.mark.parametrize("point", UNDER_THE_LOCK)
async def test_when_one_process_dies_with_the_lock_in_its_hands_the_other_goes_on(
    postgres_url: str, point: str, server_on: MakeServer
) -> None:
    other = server_on(postgres_url).start()
    doomed = server_on(postgres_url, crash_at=f"{point}:5").start()
    planned = traffic(random.Random(point), senders=6, requests=15)
    async with Publishers(planned, [doomed.base_url, other.base_url]) as publishers:
        await died(doomed)
        await assert_sound(postgres_url, publishers)
        await publishers.finished()
        await assert_complete(postgres_url, publishers)
    assert other.is_running
    assert publishers.refusals.total() == 0, "the other process had no reason to refuse anything"


async def test_a_planted_server_that_acknowledges_before_the_commit_is_caught(
    tmp_path: Path, server_on: MakeServer
) -> None:
    ledger_url = f"{SQLITE_SCHEME}{tmp_path / 'ledger.db'}"
    armed = server_on(ledger_url, crash_at="ledger.after_commit:12", variant=LAZY_COMMITS)
    server = armed.start()
    planned = traffic(random.Random(4), senders=3, requests=20)
    async with Publishers(planned, [server.base_url]) as publishers:
        await died(server)
        found, _ = await faults(ledger_url, publishers)
    assert [line for line in found if line.startswith("lost: ")]


def test_every_point_is_exercised_and_nothing_else_is_called_a_point() -> None:
    exercised = {
        *SERVER_POINTS,
        *MIGRATION_POINTS,
        *IMPORT_POINTS,
        *SOME_POINTS,
        *OTHER_POINTS,
        *LANDING_POINTS,
        *MIRROR_POINTS,
        *SWAP_POINTS,
        *TRIGGER_POINTS,
        *WEBHOOK_POINTS,
    }
    assert exercised == set(POINTS)
    assert set(UNDER_THE_LOCK) <= set(POINTS)


def test_every_point_stands_in_the_code() -> None:
    sources = Path(tidemark.__file__).parent.rglob("*.py")
    called = {
        name
        for source in sources
        for name in re.findall(r'crash_point\("(.+?)"\)', source.read_text())
    }
    assert called == set(POINTS)


def test_every_point_is_documented() -> None:
    page = DURABILITY_PAGE.read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", page, re.MULTILINE))
    assert documented == set(POINTS)
