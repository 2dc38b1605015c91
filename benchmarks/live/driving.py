"""Changes as fast as they are taken, or so many a second, and what comes of them at the clients."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from benchmarks.live.clients import Clients, Seen
from benchmarks.live.rig import Ended, Served

COMMITS_PER_S: Final = 100
ARRIVED_WITHIN_S: Final = 60.0
LOOK_EVERY_S: Final = 0.002

Commit: TypeAlias = Callable[[], Awaitable[int]]
"""Commits once more; how many messages that is to all clients together."""


async def until_all_listen(clients: Clients, commit: Commit, times: int) -> None:
    """Commits so many times, which is to reach everyone: who has had something has joined."""
    expected = (await clients.look()).messages
    for _ in range(times):
        expected += await commit()
    seen = await all_arrived(clients, expected)
    if not seen.fewest:
        raise RuntimeError("a client has not heard of anything")


async def as_fast_as_taken(
    served: Served, commit: Commit, outstanding: int, settle_s: float, seconds: float
) -> Ended:
    """Commits again whenever all but the last `outstanding` commits have come to all clients.

    The first seconds are not measured.
    """
    clients = served.clients
    before = (await clients.look()).messages
    due: deque[int] = deque()
    expected = came = before
    begun = None
    began = time.monotonic()
    while True:
        now = time.monotonic() - began
        if begun is None and now >= settle_s:
            begun = await served.begin()
        if begun is not None and now >= settle_s + seconds:
            break
        expected += await commit()
        due.append(expected)
        if len(due) > outstanding:
            least = due.popleft()
            while came < least:
                came = (await clients.look()).messages
                if came < least:
                    await asyncio.sleep(LOOK_EVERY_S)
                if time.monotonic() - began > settle_s + seconds + ARRIVED_WITHIN_S:
                    raise RuntimeError(f"{least - came} messages have not come")
    ended = await served.end(begun)
    await all_arrived(clients, expected)
    return ended


async def at_a_rate(served: Served, commit: Commit, settle_s: float, seconds: float) -> Ended:
    """Commits `COMMITS_PER_S` times a second, whatever comes of it; samples after the settling."""
    before = (await served.clients.look()).messages
    expected, number, begun = before, 0, None
    began = time.monotonic()
    while number < (settle_s + seconds) * COMMITS_PER_S:
        due = began + number / COMMITS_PER_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if begun is None and number >= settle_s * COMMITS_PER_S:
            await served.clients.sample()
            begun = await served.begin()
        expected += await commit()
        number += 1
    assert begun is not None
    ended = await served.end(begun)
    await all_arrived(served.clients, expected)
    return ended


async def all_arrived(clients: Clients, expected: int) -> Seen:
    """Waits for the last message. Exactly as many must come as were due."""
    deadline = time.monotonic() + ARRIVED_WITHIN_S
    while (seen := await clients.look()).messages < expected:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{expected - seen.messages} messages have not come")
        await asyncio.sleep(0.01)
    if seen.messages > expected:
        raise RuntimeError(f"{seen.messages - expected} messages too many have come")
    return seen
