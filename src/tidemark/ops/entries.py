"""Two readings in the same order held side by side, so that neither has to be in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def side_by_side(
    left: AsyncIterator[T], right: AsyncIterator[T], key: Callable[[T], Any]
) -> AsyncIterator[tuple[T | None, T | None]]:
    """Entries of the same key together; alone what the other side does not have."""
    ours, theirs = await anext(left, None), await anext(right, None)
    while ours is not None or theirs is not None:
        if theirs is None or (ours is not None and key(ours) < key(theirs)):
            yield ours, None
            ours = await anext(left, None)
        elif ours is None or key(theirs) < key(ours):
            yield None, theirs
            theirs = await anext(right, None)
        else:
            yield ours, theirs
            ours, theirs = await anext(left, None), await anext(right, None)
