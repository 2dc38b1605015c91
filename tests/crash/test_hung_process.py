"""A process that hangs while it holds the sequencer's lock: the others go on without it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import pytest

from tests.crash.audit import assert_complete, assert_sound
from tests.crash.conftest import MakeServer
from tests.crash.senders import Publishers, traffic
from tests.crash.variants import HANGS_BETWEEN_STATEMENTS, HANGS_INSIDE_A_COPY, IMPATIENT

GOES_ON_WITHIN_S = 15.0


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 30
    while os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is None:
        assert time.monotonic() < deadline, "the process did not hang"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "hangs", [HANGS_BETWEEN_STATEMENTS, HANGS_INSIDE_A_COPY], ids=["idle", "copying"]
)
async def test_others_go_on_while_one_hangs_with_the_lock_and_it_joins_them_when_it_wakes(
    postgres_url: str, hangs: str, server_on: MakeServer
) -> None:
    other = server_on(postgres_url, variant=IMPATIENT).start()
    hung = server_on(postgres_url, variant=hangs).start()
    urls = [other.base_url, hung.base_url]
    async with Publishers(traffic(random.Random(1), senders=6), urls, roaming=False) as publishers:
        await asyncio.to_thread(wait_until_stopped, hung.pid)
        # More than can have been under way: whoever is answered now is answered by the other one.
        await publishers.answers(50, timeout_s=GOES_ON_WITHIN_S)
        await assert_sound(postgres_url, publishers)
        os.kill(hung.pid, signal.SIGCONT)
        await publishers.wind_down()
        await assert_complete(postgres_url, publishers)
    assert hung.is_running
