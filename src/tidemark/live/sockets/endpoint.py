"""All websockets of GraphQL in this process: how they begin, and how they end together."""

from __future__ import annotations

import asyncio
import contextlib

from tidemark.clock import Clock
from tidemark.live.access import Gatekeeper
from tidemark.live.graphql.service import GraphqlService
from tidemark.live.hub import Hub
from tidemark.live.sockets.connection import Connection, ConnectionLimits
from tidemark.live.sockets.messages import GOING_AWAY, SUBPROTOCOL, WRONG_SUBPROTOCOL
from tidemark.web.sockets import WebSocket


class GraphqlSockets:
    """Its `handle` is the handler of a route."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        service: GraphqlService,
        hub: Hub,
        clock: Clock,
        *,
        limits: ConnectionLimits,
        drain_s: float,
    ) -> None:
        self._gatekeeper = gatekeeper
        self._service = service
        self._hub = hub
        self._clock = clock
        self._limits = limits
        self._drain_s = drain_s
        self._connections: set[Connection] = set()
        self._stopping = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def handle(self, socket: WebSocket) -> None:
        if SUBPROTOCOL not in socket.scope["subprotocols"]:
            await socket.accept()
            await socket.close(WRONG_SUBPROTOCOL, "Subprotocol not acceptable")
            return
        await socket.accept(SUBPROTOCOL)
        if self._stopping:
            await socket.close(GOING_AWAY, "The server is stopping; connect again")
            return
        connection = Connection(
            socket, self._gatekeeper, self._service, self._hub, self._clock, self._limits
        )
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def close(self) -> None:
        """Let clients have what waits for them, for a while, then send all of them away."""
        self._stopping = True
        connections = list(self._connections)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await asyncio.gather(
                    *(connection.drained() for connection in connections), return_exceptions=True
                )
        for connection in connections:
            connection.go_away()
