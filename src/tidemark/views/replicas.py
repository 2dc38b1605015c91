"""Second sets of views beside the live ones: those of a replay, each under a name of its own, and
those of a verification.

Where the live ones are a file, a second set is one in the state directory; on PostgreSQL it is a
schema of the same database.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from tidemark.pipeline.output.errors import InvalidView, ViewsUnavailable
from tidemark.views.opening import FILE_NAME, views_at, views_place
from tidemark.views.port import ViewsStore
from tidemark.views.postgres import PostgresViews
from tidemark.views.sqlite import SqliteViews

if TYPE_CHECKING:
    from tidemark.config import Config

DIRECTORY: Final = "replays"
_SCHEMA_PREFIX: Final = "tidemark_replay_"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CONNECT_TIMEOUT_S: Final = 10.0


class ViewsBeside:
    """Views in a file of their own, or in a `schema` of their own of a database."""

    def __init__(self, place: Path | str, schema: str) -> None:
        self.place = place
        self.schema = schema

    async def open(self) -> ViewsStore:
        """Make them, or go on with what is there."""
        if isinstance(self.place, str):
            return await PostgresViews.open(self.place, schema=self.schema)
        return await SqliteViews.open(self.place)

    def opener(self) -> Callable[[], Coroutine[Any, Any, ViewsStore]]:
        """Opens them in another process, once they are made."""
        return partial(views_at, self.place, self.schema)

    async def drop(self) -> None:
        """Drops the schema; who made the directory of a file removes it."""
        if isinstance(self.place, str):
            async with _connected(self.place) as connection:
                await connection.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")


class Replica(ViewsBeside):
    """Those of a replay. Their directory is there for Spark too, whatever store they are in."""

    def __init__(self, config: Config, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidView(
                f"{name!r} cannot be the name of a replay",
                hint="Use up to 40 lower-case letters, digits and `_`, with a letter first.",
                field="as",
            )
        self.name = name
        self.directory = config.state_dir.absolute() / DIRECTORY / name
        live = views_place(config)
        place = live if isinstance(live, str) else self.directory / FILE_NAME
        super().__init__(place, f"{_SCHEMA_PREFIX}{name}")

    async def exists(self) -> bool:
        return self.name in await _names(self.place, self.directory.parent)

    async def drop(self) -> None:
        await super().drop()
        shutil.rmtree(self.directory, ignore_errors=True)


async def replicas(config: Config) -> list[Replica]:
    """All there are, by name."""
    live = views_place(config)
    names = await _names(live, config.state_dir.absolute() / DIRECTORY)
    return [Replica(config, name) for name in names]


async def _names(place: Path | str, directory: Path) -> list[str]:
    if isinstance(place, str):
        async with _connected(place) as connection:
            rows = await connection.fetch(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1) ORDER BY nspname",
                _SCHEMA_PREFIX,
            )
        return [row[0].removeprefix(_SCHEMA_PREFIX) for row in rows]
    found = await asyncio.to_thread(lambda: list(directory.glob(f"*/{FILE_NAME}")))
    return sorted(path.parent.name for path in found)


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    try:
        connection = await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S)
        try:
            yield connection
        finally:
            await connection.close(timeout=_CONNECT_TIMEOUT_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise ViewsUnavailable(
            "PostgreSQL could not be asked for views beside the live ones:"
            f" {type(error).__name__}: {error}",
            hint="Look at the database of the views, then retry.",
        ) from error
