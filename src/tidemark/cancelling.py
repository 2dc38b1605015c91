"""A task that is cancelled ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancellation_kept() -> Iterator[None]:
    """Whatever a driver raises in a task that is cancelled, the task is cancelled by it.

    asyncpg rolls back when it is cancelled, and raises that the session is gone if it is by then:
    the cancellation is forgotten. Whoever tries again after such an error would do so for ever,
    and whoever waits for the end of the task too.
    """
    try:
        yield
    except Exception as error:
        if _is_cancelled():
            raise asyncio.CancelledError from error
        raise


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # No loop runs here.
        return False
    return task is not None and task.cancelling() > 0
