"""One event loop in a thread of its own, in which stores live while others work beside it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import uvloop

T = TypeVar("T")


class _Store(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Store)


class StoreLoop:
    """While it lasts, any other thread may wait for what runs in it."""

    def __init__(self) -> None:
        # What is read from PostgreSQL passes through it in thousands of small pieces.
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="stores", daemon=True)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @contextlib.contextmanager
    def beside(self, work: Coroutine[Any, Any, None]) -> Iterator[None]:
        """While it lasts, this runs too."""
        begun = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            yield
        finally:
            begun.cancel()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@contextlib.contextmanager
def closing(stores: StoreLoop, opening: Coroutine[Any, Any, S]) -> Iterator[S]:
    """A store, while it is needed."""
    store = stores.wait(opening)
    try:
        yield store
    finally:
        stores.wait(store.close())
