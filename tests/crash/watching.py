"""Readers that watch a ledger grow and insist on 1, 2, 3, …"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import aiohttp

POLL_S: Final = 0.002


class OutOfOrder(Exception):
    """A reader saw a number before the one that comes before it."""


class Watch:
    """What one reader has seen so far."""

    def __init__(self) -> None:
        self.last = 0
        self.looks = 0

    def see(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            if sequence != self.last + 1:
                raise OutOfOrder(f"{sequence} was visible after {self.last}")
            self.last = sequence
        self.looks += 1

    async def reached(self, sequence: int) -> None:
        """Returns when it has seen this number."""
        await self._until(lambda: self.last >= sequence)

    async def looked(self, times: int) -> None:
        """Returns when it has looked so often."""
        await self._until(lambda: self.looks >= times)

    async def _until(self, is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 (what it waits for is in a database)
                await asyncio.sleep(POLL_S)


async def poll(connection: Any, table: str, watch: Watch) -> None:
    """Ask for `sequence > last` over and over, as any consumer of the table would."""
    query = (
        f"SELECT ingress_sequence FROM {table} WHERE ingress_sequence > $1"
        " ORDER BY ingress_sequence"
    )
    while True:
        watch.see(row[0] for row in await connection.fetch(query, watch.last))
        await asyncio.sleep(POLL_S)


async def follow_tail(websocket_url: str, watch: Watch) -> None:
    """Follow `/admin/events/tail` from the beginning."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{websocket_url}/admin/events/tail?after=0") as tail,
    ):
        async for message in tail:
            told = json.loads(message.data)
            if told["type"] == "event":
                watch.see([int(told["event"]["ingressSequence"])])
