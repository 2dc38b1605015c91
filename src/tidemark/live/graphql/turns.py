"""So many queries are answered at the same time; the others wait, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidemark.live.graphql.limits import QueryLimits
from tidemark.live.graphql.problems import refusal

RETRY_AFTER_S: Final = 1


class Turns:
    """Those of one process."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.at_once)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Raises `DocumentRefused` with status 503 if none comes in time."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.turn_within_s):
                await self._free.acquire()
        except TimeoutError:
            error = refusal(
                f"{limits.at_once} other queries are being answered",
                code="too_many_queries",
                hint="Try again in a while; a narrower `where` is answered sooner.",
                status=503,
            )
            error.retry_after_s = RETRY_AFTER_S
            raise error from None
        try:
            yield
        finally:
            self._free.release()
