"""Keeps a part running that is meant to run for as long as the process does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidemark.errors import TidemarkError

log = logging.getLogger(__name__)

RESTART_AFTER_S: Final = 2.0
STEADY_AFTER_S: Final = 5.0


class KeptRunning:
    """Runs a part until cancelled, and begins it anew when an error of our own making ends it.

    `trouble` is that error for others to see, until the part has run for a while again.
    """

    def __init__(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        self.trouble: TidemarkError | None = None
        self._name = name
        self._part = part

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            steady = loop.call_later(STEADY_AFTER_S, self._is_well)
            try:
                await self._part()
            except Exception as error:
                cause = _first_cause(error)
                log.exception(
                    "%s ended by %r and begin again in %g s", self._name, cause, RESTART_AFTER_S
                )
                self.trouble = TidemarkError(
                    f"{self._name} ended by an unexpected error ({type(cause).__name__}) and begin"
                    " again",
                    hint="The server's log has the details.",
                )
            finally:
                steady.cancel()
            await asyncio.sleep(RESTART_AFTER_S)

    def _is_well(self) -> None:
        self.trouble = None


def _first_cause(error: Exception) -> Exception:
    """What is in the group that a task group makes of the errors of its tasks."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
