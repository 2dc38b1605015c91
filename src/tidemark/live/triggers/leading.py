"""One process at a time evaluates triggers and delivers their events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tidemark.live.errors import TriggersUnavailable
from tidemark.live.triggers.port import TriggerStore

log = logging.getLogger(__name__)

RETRY_S = 1.0


async def while_leading(triggers: TriggerStore, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work whenever this process leads, until cancelled.

    It is cancelled when the leadership is lost, and begun again when it is won back. What it raises
    is raised here, `TriggersUnavailable` excepted; once it returns, so does this.
    """
    while True:
        try:
            async with triggers.lead() as leadership:
                if await _done_before(asyncio.ensure_future(work()), leadership.lost):
                    return
            log.warning("this process no longer leads the triggers")
        except TriggersUnavailable as error:
            log.warning("triggers stand still: %s", error.message)
        await asyncio.sleep(RETRY_S)


async def _done_before(task: asyncio.Future[None], lost: asyncio.Event) -> bool:
    end: asyncio.Future[Any] = asyncio.create_task(lost.wait())
    both: tuple[asyncio.Future[Any], ...] = (task, end)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for one in both:
            one.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await one
