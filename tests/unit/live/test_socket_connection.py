"""One connection over a socket that is not there: what takes time, and what waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.live.signed_tokens import NOW_S, StillClock, claims, config, issuer, signed
from tidemark.config import Config
from tidemark.errors import TidemarkError
from tidemark.live.access import Gatekeeper
from tidemark.live.errors import SlowClient
from tidemark.live.sockets.connection import Connection, ConnectionLimits
from tidemark.live.sockets.subscription import Subscription
from tidemark.web.messages import Disconnected
from tidemark.web.sockets import shortened_reason
from tidemark.web.wire import WIRE, text_frame


class FakeSocket:
    """Both ends of a websocket: what is said to the server, and what it has written."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {"extensions": {WIRE: self}}
        self.headers: dict[bytes, bytes] = {}
        self.request_id = "socket"
        self.written: list[bytes] = []
        self.ended: tuple[int, str] | None = None
        self.is_congested = False
        self._call: Callable[[], None] = lambda: None
        self._incoming: asyncio.Queue[str | None] = asyncio.Queue()

    def says(self, **message: Any) -> None:
        self._incoming.put_nowait(json.dumps(message))

    def reads_on(self) -> None:
        self.is_congested = False
        self._call()

    async def receive(self) -> str:
        message = await self._incoming.get()
        if message is None:
            raise Disconnected
        return message

    def on_writable(self, call: Callable[[], None]) -> None:
        self._call = call

    def write(self, frames: bytes) -> None:
        self.written.append(frames)

    def end(self, code: int, reason: str) -> None:
        if self.ended is None:
            self.ended = (code, reason)
            self._incoming.put_nowait(None)


def connection(
    socket: FakeSocket,
    settings: Config | None = None,
    clock: StillClock | None = None,
    **limits: Any,
) -> Connection:
    clock = clock or StillClock()
    return Connection(
        cast(Any, socket),
        Gatekeeper(settings or Config(), clock),
        cast(Any, None),
        cast(Any, None),
        clock,
        ConnectionLimits(**limits),
    )


async def ended(serving: Connection) -> None:
    async with asyncio.timeout(10):
        try:
            await serving.serve()
        except Disconnected:
            return


async def test_one_who_does_not_begin_in_time_is_closed_with_4408() -> None:
    socket = FakeSocket()
    # It is there, and that does not help.
    socket.says(type="ping")
    await ended(connection(socket, init_within_s=0.02))
    assert socket.ended == (4408, "Connection initialisation timeout")


async def test_one_who_has_begun_has_all_the_time_there_is() -> None:
    socket = FakeSocket()
    socket.says(type="connection_init")
    serving = asyncio.create_task(ended(connection(socket, init_within_s=0.02)))
    await asyncio.sleep(0.1)
    assert socket.ended is None
    socket.end(1000, "")
    await serving
    assert socket.written == [text_frame(b'{"type":"connection_ack"}')]


async def test_a_token_that_expires_closes_the_connection_with_4403() -> None:
    socket, clock = FakeSocket(), StillClock()
    clock.wall += 59_950_000
    token = signed(claims(exp=NOW_S + 60))
    socket.says(type="connection_init", payload={"Authorization": f"Bearer {token}"})
    await ended(connection(socket, config(issuer()), clock))
    assert socket.ended == (4403, "Forbidden: the token has expired")
    assert socket.written == [text_frame(b'{"type":"connection_ack"}')]


async def test_a_token_may_be_good_for_longer_than_any_clock() -> None:
    socket = FakeSocket()
    token = signed(claims(exp=250_000_000_000))
    socket.says(type="connection_init", payload={"authToken": token})
    serving = asyncio.create_task(ended(connection(socket, config(issuer()))))
    await asyncio.sleep(0.05)
    assert socket.ended is None
    socket.end(1000, "")
    await serving


@pytest.mark.parametrize("payload", [None, {"authToken": "no token"}, {"Authorization": "Basic x"}])
async def test_one_who_is_not_known_is_closed_with_4403(payload: Any) -> None:
    socket = FakeSocket()
    socket.says(type="connection_init", payload=payload)
    await ended(connection(socket, config(issuer())))
    assert socket.ended is not None
    assert socket.ended[0] == 4403
    assert socket.ended[1].startswith("Forbidden: ")


async def test_what_is_sent_in_one_turn_is_written_at_once() -> None:
    socket = FakeSocket()
    serving = connection(socket)
    for number in range(10):
        serving.push(b"%d" % number)
    assert socket.written == []
    await asyncio.sleep(0)
    assert socket.written == [b"0123456789"]


async def test_much_is_written_without_waiting_for_the_end_of_a_turn() -> None:
    socket = FakeSocket()
    serving = connection(socket)
    for _ in range(5):
        serving.push(bytes(30_000))
    assert [len(frames) for frames in socket.written] == [90_000]
    await asyncio.sleep(0)
    assert [len(frames) for frames in socket.written] == [90_000, 60_000]


async def test_one_who_takes_nothing_of_a_snapshot_has_been_patient_long_enough() -> None:
    socket = FakeSocket()
    serving = connection(socket, patience_s=0.02)
    await serving.room()
    socket.is_congested = True
    with pytest.raises(SlowClient):
        await serving.room()


class SlowHub:
    """Its subscribers stand where a test says, and then wait for a client that reads nothing."""

    def __init__(self, socket: FakeSocket, *stand: int) -> None:
        self._socket = socket
        self._stand = list(stand)

    @asynccontextmanager
    async def attached(
        self, view: str, wanted: Any, watcher: Subscription, after: int | None
    ) -> AsyncIterator[None]:
        watcher.since = self._stand.pop(0)
        if not self._stand:
            self._socket.is_congested = True
            await watcher.room()
        yield


class OneSubscription:
    """A service to which every operation is the same subscription."""

    def operation(self, *arguments: Any, **options: Any) -> Any:
        return SimpleNamespace(kind="subscription")

    def subscription(self, *arguments: Any) -> Any:
        return SimpleNamespace(projection=None, progress=False, view="v", filter=None, after=None)


@pytest.mark.parametrize(
    ("stand", "then"),
    [
        ([7], "resume after 7"),
        ([9, 7], "resume after 7"),
        ([7, 9], "resume after 7"),
        # One that has not its whole snapshot begins anew.
        ([0], "subscribe anew"),
        ([0, 9], "subscribe anew"),
        ([9, 0], "subscribe anew"),
    ],
)
async def test_one_who_is_sent_away_for_taking_nothing_is_told_where_to_resume(
    stand: list[int], then: str
) -> None:
    socket = FakeSocket()
    clock = StillClock()
    serving = Connection(
        cast(Any, socket),
        Gatekeeper(Config(), clock),
        cast(Any, OneSubscription()),
        cast(Any, SlowHub(socket, *stand)),
        clock,
        ConnectionLimits(patience_s=0.02),
    )
    socket.says(type="connection_init")
    for number in range(len(stand)):
        socket.says(type="subscribe", id=str(number), payload={"query": "subscription { v }"})
    task = asyncio.create_task(ended(serving))
    async with asyncio.timeout(10):
        while socket.ended is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    socket.reads_on()
    await task
    assert socket.ended == (1013, f"the client has taken nothing for 0.02 s; {then}")


async def test_room_comes_when_the_client_reads_on() -> None:
    socket = FakeSocket()
    serving = connection(socket, patience_s=10)
    socket.is_congested = True
    waiting = asyncio.create_task(serving.room())
    drained = asyncio.create_task(serving.drained())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert not drained.done()
    socket.reads_on()
    async with asyncio.timeout(5):
        await asyncio.gather(waiting, drained)


async def test_what_waits_is_drained_before_there_is_room_for_more() -> None:
    socket = FakeSocket()
    serving = connection(socket, patience_s=10)
    socket.is_congested = True
    waits = Waiting(serving)
    serving.wait_for_room(cast(Subscription, waits))
    waiting = asyncio.create_task(serving.room())
    await asyncio.sleep(0)
    waits.still_waits = True
    socket.reads_on()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waits.still_waits = False
    socket.reads_on()
    await waiting
    assert socket.written == [b"drained", b"drained"]


class Waiting:
    """A subscription that has more than there is room for, as long as a test wants."""

    def __init__(self, outlet: Connection) -> None:
        self._outlet = outlet
        self.still_waits = False

    def drain(self) -> None:
        self._outlet.push(b"drained")
        if self.still_waits:
            self._outlet.wait_for_room(cast(Subscription, self))


async def test_a_subscription_that_is_given_up_twice_is_told_nothing() -> None:
    socket = FakeSocket()
    serving = connection(socket)
    serving.give_up(cast(Subscription, object()), TidemarkError("no"))
    await asyncio.sleep(0)
    assert socket.written == []


def test_a_reason_is_cut_between_two_letters() -> None:
    assert shortened_reason("a" * 200) == "a" * 123
    assert shortened_reason("ü" * 200) == "ü" * 61
    assert shortened_reason("fits") == "fits"
