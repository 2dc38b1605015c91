"""A process that is killed while it evaluates triggers neither loses an event nor repeats one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.contract.triggers_home import TriggersHome, ids, new_trigger
from tests.contract.views_home import (
    POSITIONS,
    SQLITE_SCHEME,
    ViewsHome,
    at,
    batch,
    changes,
    position,
    writes,
)
from tests.services.nursery import run

pytest_plugins = ("tests.contract.triggers_fixtures",)

TRIGGER_POINTS: Final = ("trigger.stepped", "trigger.advanced")
COMMITS: Final = 6


async def evaluate(views_url: str, triggers_url: str, crash_at: str | None) -> int:
    environment = dict(os.environ)
    if crash_at is not None:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    arguments = ["-m", "tests.contract.trigger_evaluator", views_url, triggers_url]
    return (await asyncio.to_thread(run, arguments, env=environment)).returncode


@pytest.fixture
async def views_url(tmp_path: Path) -> str:
    """A row that rises and falls: one event at each commit."""
    home = ViewsHome(f"{SQLITE_SCHEME}{tmp_path / 'views.db'}")
    views = await home.open()
    await views.declare([POSITIONS])
    old = None
    for number in range(1, COMMITS + 1):
        new = position("a", rank=number % 2)
        await views.commit(
            batch(
                number - 1 or None,
                number,
                rows=[writes(new, commit=number)],
                changes=[changes((number, old, new))],
            )
        )
        old = new
    await home.close()
    return home.url


@pytest.mark.parametrize("point", TRIGGER_POINTS)
async def test_a_kill_anywhere_neither_loses_an_event_nor_repeats_one(
    views_url: str, triggers_home: TriggersHome, point: str
) -> None:
    triggers = await triggers_home.open()
    await triggers.add(new_trigger(match='{"rank":{"_eq":1}}', unmatch='{"rank":{"_eq":0}}'), 0, 0)
    killed = await evaluate(views_url, triggers_home.url, f"{point}:3")
    assert killed == -signal.SIGKILL
    done = 2 if point == "trigger.stepped" else 3
    assert (await triggers.get("hot")).position == at(done)
    before = (await triggers.deliveries("hot", limit=100)).deliveries[::-1]
    assert len(before) == done
    assert await evaluate(views_url, triggers_home.url, None) == 0
    events = (await triggers.deliveries("hot", limit=100)).deliveries[::-1]
    assert [one.received_at for one in events] == [at(n) for n in range(1, COMMITS + 1)]
    assert [one.event_type for one in events] == ["MATCH", "UNMATCH"] * (COMMITS // 2)
    # The bytes are made once.
    assert events[:done] == before
    assert len(set(ids(events))) == COMMITS
