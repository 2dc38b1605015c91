"""Subscribers that lose their connection at any time and resume by PROGRESS."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from websockets.exceptions import WebSocketException

from tests.crash.live_past import TYPES, Expected, Key, Past, Row, Where, key_of, shown
from tests.crash.live_world import PASSING
from tests.reference.filters import wanted
from tests.services.graphql_socket import GraphqlSocket, connected
from tests.services.tidemark_server import TidemarkServer

AGAIN_S: Final = 0.05
SUBSCRIPTION: Final = (
    "subscription ($where: positionsExpression, $after: String) "
    "{ positions(where: $where, after: $after, progress: true) "
    "{ operation data { account symbol side quantity } ts_timestamp } }"
)


class Astray(Exception):
    """What a subscriber was told cannot be true; the message is the evidence."""


class Follower:
    """Folds what it is told, as of each PROGRESS; what came after the last one is told again.

    `run` goes on until cancelled and raises `Astray` when the rows are not those of the past.
    """

    def __init__(
        self, past: Past, where: Where, servers: Sequence[TidemarkServer], choose: random.Random
    ) -> None:
        self.where = where
        self.rows: dict[Key, dict[str, Any]] = {}
        self.progress: int | None = None
        self.heard: Counter[str] = Counter()
        self.moody = True
        self._pending: dict[Key, dict[str, Any]] = {}
        self._expected = Expected(past, where)
        self._servers = servers
        self._choose = random.Random(choose.random())

    def lets_through(self, row: Row) -> bool:
        return wanted(TYPES, self.where, row)

    async def run(self) -> None:
        while True:
            patience_s = self._choose.uniform(0.1, 5) if self.moody else None
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._listen(self._choose.choice(self._servers))
            self.heard["disconnections"] += 1
            await asyncio.sleep(AGAIN_S)

    async def _listen(self, server: TidemarkServer) -> None:
        async with connected(f"{server.websocket_url}/graphql") as socket:
            variables: dict[str, Any] = {"where": self.where}
            if self.progress is None:
                self.heard["snapshots"] += 1
            else:
                variables["after"] = str(self.progress)
                self.heard["resumes"] += 1
            await socket.ask("1", SUBSCRIPTION, **variables)
            self.begin()
            while (update := await self._next(socket)) is not None:
                self.take(update)

    async def _next(self, socket: GraphqlSocket) -> dict[str, Any] | None:
        while True:
            message = await socket.receive()
            match message["type"]:
                case "next":
                    update: dict[str, Any] = message["payload"]["data"]["positions"]
                    return update
                case "ping":
                    await socket.send({"type": "pong"})
                case "error":
                    code = message["payload"][0]["extensions"]["code"]
                    if code not in PASSING:
                        raise Astray(f"refused: {message}")
                    self.heard["refusals"] += 1
                    return None

    def begin(self) -> None:
        """A new connection: nothing after the last PROGRESS counts."""
        self._pending = dict(self.rows)

    def take(self, update: Mapping[str, Any]) -> None:
        """What a subscription says next."""
        timestamp = int(update["ts_timestamp"])
        if self.progress is not None and timestamp < self.progress:
            raise Astray(f"{update} came after {self.progress}")
        if update["operation"] == "PROGRESS":
            self._reached(timestamp)
        elif timestamp == self.progress:
            raise Astray(f"{update} came again, after {self.progress}")
        else:
            self._fold(update)

    def _fold(self, update: Mapping[str, Any]) -> None:
        operation, key = update["operation"], key_of(update["data"])
        known = self._pending.pop(key, None)
        if (known is None) != (operation == "INSERT"):
            raise Astray(f"{self.where}: {update} after {self.progress}, with {known}")
        if operation != "DELETE":
            self._pending[key] = shown(update["data"])
        self.heard["changes"] += 1

    def _reached(self, timestamp: int) -> None:
        self.progress = timestamp
        self.rows = dict(self._pending)
        self.heard["checks"] += 1
        expected = self._expected.at(timestamp)
        if self.rows != expected:
            raise Astray(f"{self.where} at {timestamp}: {self.rows} and not {expected}")
