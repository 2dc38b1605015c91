"""The views as a server reads them: opened when they can be, and asked for again until they can.

Ingest does not need the views, so a server starts without them and answers for them when they are
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.config import Config
from tidemark.errors import RequestError
from tidemark.pipeline.definitions import Definitions, has_work
from tidemark.pipeline.output.errors import ViewsError, ViewsUnavailable
from tidemark.views.opening import open_views
from tidemark.views.port import ViewsStore

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1


class OpenedViews:
    """The store of a configuration's views; none is opened where there is nothing to fold."""

    def __init__(self, config: Config) -> None:
        self.definitions = Definitions.of(config)
        self._config = config
        self._opening = asyncio.Lock()
        self._store: ViewsStore | None = None

    @property
    def has_any(self) -> bool:
        """Whether a pipeline has anything to keep there."""
        return has_work(self._config)

    async def try_open(self) -> None:
        """Open them if they can be reached; any other fault is raised."""
        if not self.has_any:
            return
        try:
            await self.store()
        except ViewsUnavailable as error:
            log.warning("the views cannot be read yet: %s", error.message)

    async def store(self) -> ViewsStore:
        """Raises `ViewsUnavailable` as long as they cannot be opened."""
        if self._store is None:
            async with self._opening:
                if self._store is None:
                    self._store = await open_views(self._config)
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


@contextmanager
def as_refusals() -> Iterator[None]:
    """Turns what the views raise into the answer to a request."""
    try:
        yield
    except ViewsError as error:
        raise RequestError(
            error.message,
            status=503,
            code=error.code,
            hint=error.hint,
            field=error.field,
            retry_after_s=RETRY_AFTER_S if isinstance(error, ViewsUnavailable) else None,
        ) from error
