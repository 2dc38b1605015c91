"""The optional numbers across ledgers, from a dedicated PostgreSQL.

They are taken inside the ledger's own lock and can only be wasted, never given twice. When the
sequence database is away the events of that time have none: ingest does not wait for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import asyncpg

from tidemark.clock import MICROS_PER_SECOND, Clock

RETRY_AFTER_US = 2 * MICROS_PER_SECOND
# Who only asks believes for so long that what was well still is.
CHECK_AFTER_US = 2 * MICROS_PER_SECOND

_PREPARE = (
    "CREATE TABLE IF NOT EXISTS tidemark_global_sequence"
    " (singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton), last bigint NOT NULL);"
    " INSERT INTO tidemark_global_sequence (last) VALUES (0) ON CONFLICT DO NOTHING"
)
_TAKE = "UPDATE tidemark_global_sequence SET last = last + $1 RETURNING last"
# A number that a crash of the server took back would be given again.
_SESSION_SETTINGS = {"synchronous_commit": "on"}
# Two ledgers that start at once must not both create the table.
_PREPARE_LOCK = 0x676C6F62


class GlobalNumbers(Protocol):
    """Gives the first of `count` consecutive numbers, or None when there are none to be had."""

    @property
    def state(self) -> tuple[str, str]: ...

    async def take(self, count: int) -> int | None: ...

    async def check(self) -> None:
        """Sees to it that `state` is of now, and takes nothing."""

    async def close(self) -> None: ...


class NoGlobalNumbers:
    """No sequence database is configured."""

    state = ("disabled", "sequence.url is not set")

    async def take(self, count: int) -> int | None:
        return None

    async def check(self) -> None:
        return None

    async def close(self) -> None:
        return None


class PostgresGlobalNumbers:
    """One row in a dedicated database, shared by any number of ledgers."""

    def __init__(self, url: str, clock: Clock, *, timeout_us: int) -> None:
        self._url = url
        self._clock = clock
        self._timeout_s = timeout_us / MICROS_PER_SECOND
        self._connection: Any = None
        self._turn = asyncio.Lock()
        self._retry_at_us = 0
        self._given_at_us: int | None = None
        self._failure: str | None = None

    @property
    def state(self) -> tuple[str, str]:
        """`ready` or `degraded`, with the reason: what health shows."""
        if self._failure is not None:
            return "degraded", f"new events have no global_sequence: {self._failure}"
        return "ready", ""

    async def take(self, count: int) -> int | None:
        async with self._turn:
            # Nobody who has waited here finds out again what the one before has found out.
            if self._failure is not None and self._clock.elapsed_us() < self._retry_at_us:
                return None
            return await self._take(count)

    async def check(self) -> None:
        # Who has the turn finds out too; and whoever stores events does not wait for two.
        if not self._turn.locked() and not self._is_known:
            await self.take(0)

    @property
    def _is_known(self) -> bool:
        """Whether numbers were given a moment ago."""
        if self._failure is not None or self._given_at_us is None:
            return False
        return self._clock.elapsed_us() - self._given_at_us < CHECK_AFTER_US

    async def _take(self, count: int) -> int | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                last = await self._connection.fetchval(_TAKE, count)
        except asyncio.CancelledError:
            # Whoever only asked has waited for long enough, perhaps no longer than the timeout.
            self._failed("no answer in time")
            raise
        except Exception as error:
            # Whatever it is: without a number an event is still an event.
            self._failed(f"{type(error).__name__}: {error}".rstrip(": "))
            return None
        self._failure = None
        self._given_at_us = self._clock.elapsed_us()
        return int(last) - count + 1

    async def close(self) -> None:
        self._drop()

    async def _connect(self) -> Any:
        connection = await asyncpg.connect(
            self._url, timeout=self._timeout_s, server_settings=_SESSION_SETTINGS
        )
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _PREPARE_LOCK)
                await connection.execute(_PREPARE)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _failed(self, reason: str) -> None:
        self._failure = reason
        self._retry_at_us = self._clock.elapsed_us() + RETRY_AFTER_US
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
