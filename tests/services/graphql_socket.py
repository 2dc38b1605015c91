"""A client of `graphql-transport-ws` that does nothing by itself, so a test can do anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

PROTOCOL: Final = Subprotocol("graphql-transport-ws")
WITHIN_S: Final = 20.0

Message: TypeAlias = dict[str, Any]

UPDATE: Final = "operation data { account symbol quantity } fields ts_timestamp"
ALL: Final = (
    "subscription ($where: positionsExpression, $after: String, $progress: Boolean) "
    f"{{ positions(where: $where, after: $after, progress: $progress) {{ {UPDATE} }} }}"
)


class GraphqlSocket:
    """One websocket. What the server says is to be received in order."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, message: object) -> None:
        """Text and bytes go out as they are, anything else as JSON."""
        plain = isinstance(message, str | bytes)
        await self.connection.send(message if plain else json.dumps(message))  # type: ignore[arg-type]

    async def receive(self) -> Message:
        async with asyncio.timeout(WITHIN_S):
            message: Message = json.loads(await self.connection.recv())
        return message

    async def init(self, payload: Mapping[str, Any] | None = None) -> None:
        await self.send({"type": "connection_init"} | ({"payload": payload} if payload else {}))
        assert await self.receive() == {"type": "connection_ack"}

    async def ask(self, operation_id: str, query: str, **variables: Any) -> None:
        payload = {"query": query, "variables": variables}
        await self.send({"type": "subscribe", "id": operation_id, "payload": payload})

    async def subscribe(self, operation_id: str = "1", **variables: Any) -> None:
        """To `positions`, all that a client needs to know; with PROGRESS unless told otherwise."""
        await self.ask(operation_id, ALL, **{"progress": True, **variables})

    async def update(self, operation_id: str = "1") -> Message:
        """The next update of a subscription, which must be what comes next."""
        message = await self.receive()
        assert message["type"] == "next", message
        assert message["id"] == operation_id, message
        update: Message = message["payload"]["data"]["positions"]
        return update

    async def updates_until(self, received_at: int, operation_id: str = "1") -> list[Message]:
        """All up to the PROGRESS of this time, which is left out."""
        updates = []
        while True:
            update = await self.update(operation_id)
            if update["operation"] != "PROGRESS":
                updates.append(update)
            elif int(update["ts_timestamp"]) >= received_at:
                return updates

    async def error(self, operation_id: str = "1") -> Message:
        """The first error of an operation that is refused next."""
        message = await self.receive()
        assert (message["type"], message["id"]) == ("error", operation_id), message
        error: Message = message["payload"][0]
        return error

    async def closed(self) -> tuple[int, str]:
        """Receives to the end; the code and the reason with which the server closed."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.receive()
        said = self.connection.protocol.close_rcvd
        assert said is not None, "the connection broke without a word"
        return said.code, said.reason


@contextlib.asynccontextmanager
async def opened(
    url: str, *, protocol: Subprotocol | None = PROTOCOL, slow: bool = False, **options: Any
) -> AsyncIterator[GraphqlSocket]:
    """A websocket to a server. A `slow` one takes next to nothing that is not received."""
    if slow:
        options |= {"sock": _with_small_buffer(url), "max_queue": 1}
    async with connect(
        url,
        subprotocols=[protocol] if protocol else None,
        ping_interval=None,
        max_size=None,
        open_timeout=WITHIN_S,
        **options,
    ) as connection:
        yield GraphqlSocket(connection)


@contextlib.asynccontextmanager
async def connected(
    url: str, payload: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[GraphqlSocket]:
    """The same, acknowledged."""
    async with opened(url, **options) as client:
        await client.init(payload)
        yield client


def _with_small_buffer(url: str) -> socket.socket:
    address = urlsplit(url)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect((address.hostname, address.port))
    plain.setblocking(False)
    return plain
