"""A process that is killed while it commits leaves all of its batch or nothing of it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.contract.views_committer import FIRST, second
from tests.contract.views_home import POSITIONS, ViewsHome, everything, frontier
from tests.services.nursery import run

pytest_plugins = ("tests.contract.views_fixtures",)


async def killed_at(point: str, url: str) -> None:
    """The second batch is under way when the process dies."""
    arguments = ["-m", "tests.contract.views_committer", url]
    environment = os.environ | {"TIDEMARK_CRASH_AT": f"{point}:2"}
    killed = await asyncio.to_thread(run, arguments, env=environment)
    assert killed.returncode == -signal.SIGKILL, killed.stdout


@pytest.mark.parametrize("point", ["views.before_commit", "views.after_commit"])
async def test_a_batch_is_there_as_a_whole_or_not_at_all_after_a_kill(
    views_home: ViewsHome, point: str
) -> None:
    await killed_at(point, views_home.url)
    views = await views_home.open()
    found = await everything(views)
    arrived = point == "views.after_commit"
    assert await views.frontier() == frontier(2 if arrived else 1)
    assert await views.commit(FIRST) is False
    assert await views.commit(second()) is not arrived
    whole = await everything(views)
    assert (found == whole) is arrived
    # The same two batches in peace.
    await views_home.empty()
    await views.declare([POSITIONS])
    assert await views.commit(FIRST)
    assert (await everything(views) == found) is not arrived
    assert await views.commit(second())
    assert await everything(views) == whole
