"""Subscribers that fold what they are sent, over a hub and a real store of views."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.contract.views_home import POSITIONS, Views
from tidemark.errors import TidemarkError
from tidemark.live.engine import BacklogLimits
from tidemark.live.filters import Filter
from tidemark.live.hub import Hub, HubLimits
from tidemark.live.sockets.subscription import Subscription

LIMITS = BacklogLimits(merge_above_items=3, close_above_items=1_000)
ALL_COLUMNS = tuple(column.name for column in POSITIONS.visible)
Row = dict[str, Any]


class Columns:
    """The projection of some columns, as plain JSON."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = frozenset(columns)
        self.key = ",".join(columns)

    def render(
        self,
        operation: str,
        members: Mapping[str, bytes] | None,
        fields: Sequence[str],
        timestamp: int,
    ) -> bytes:
        row = None
        if members is not None:
            shown = self.columns | set(POSITIONS.key)
            row = {n: json.loads(v) for n, v in members.items() if n in shown}
            assert set(fields) <= shown
        told = {"operation": operation, "row": row, "fields": list(fields), "at": timestamp}
        return json.dumps(told).encode()


class Client:
    """What a client knows, across all its connections. With `progress` it resumes by that."""

    def __init__(self, *, progress: bool, columns: Sequence[str] = ALL_COLUMNS) -> None:
        self.progress = progress
        self.columns = columns
        self.rows: dict[str, Row] = {}
        self.last_progress: int | None = None
        self.last_seen: int | None = None
        self._changed_at: dict[str, int] = {}
        # Whether the present connection can tell it what it knows already.
        self._may_repeat = False
        self._unsure = False

    @property
    def resume_after(self) -> int | None:
        if self.progress:
            return self.last_progress
        return None if self.last_seen is None else self.last_seen - 1

    def connects(self, after: int | None) -> None:
        if after is None:
            self.rows.clear()
            self._changed_at.clear()
            self.last_progress = self.last_seen = None
        # Up to its last PROGRESS it has everything; what it saw after that comes again.
        self._may_repeat = after is not None
        # It may have seen some of what comes now, and what came of that.
        self._unsure = after is not None

    def hears(self, told: Mapping[str, Any]) -> None:
        operation, timestamp = told["operation"], told["at"]
        if operation == "PROGRESS":
            assert self.last_progress is None or timestamp >= self.last_progress
            self.last_progress = timestamp
            # From here on it has all there is, and what comes is new to it.
            self._unsure = False
            return
        assert self.last_progress is None or timestamp > self.last_progress
        self.last_seen = timestamp
        row = told["row"]
        key = json.dumps([row[name] for name in POSITIONS.key])
        known = self._changed_at.get(key)
        if known is not None and timestamp <= known:
            assert self._may_repeat, f"{key} was told twice of {timestamp}"
            return
        self._changed_at[key] = timestamp
        if not self._unsure:
            assert (key in self.rows) == (operation != "INSERT"), (operation, key)
        if operation == "DELETE":
            self.rows.pop(key, None)
        else:
            assert set(told["fields"]) <= set(row)
            self.rows[key] = row


class Connection:
    """One connection of a client to a hub. It is the outlet of its subscription."""

    def __init__(self, client: Client, hub: Hub, wanted: Filter, *, fresh: bool = False) -> None:
        self.client = client
        self.is_congested = False
        self.failed: TidemarkError | None = None
        self.cut_off_at: int | None = None
        after = None if fresh else client.resume_after
        client.connects(after)
        self._subscription = Subscription(
            self, "1", Columns(client.columns), progress=client.progress, limits=LIMITS
        )
        self._joined = asyncio.Event()
        self._task = asyncio.create_task(self._stay(hub, wanted, after))

    async def joined(self) -> None:
        await asyncio.wait(
            [self._task, asyncio.create_task(self._joined.wait())],
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def _stay(self, hub: Hub, wanted: Filter, after: int | None) -> None:
        try:
            async with hub.attached(POSITIONS.name, wanted, self._subscription, after):
                self._joined.set()
                await asyncio.get_running_loop().create_future()
        except TidemarkError as error:
            self.failed = error

    async def leave(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def reads_on(self) -> None:
        self.is_congested = False
        self._subscription.drain()

    # What a subscription asks of its connection.

    def push(self, frames: bytes) -> None:
        for message in text_messages(frames):
            self.client.hears(json.loads(message)["payload"])

    def wait_for_room(self, subscription: Subscription) -> None:
        pass

    async def room(self) -> None:
        await asyncio.sleep(0)

    def fell_behind(self, resume_after: int) -> None:
        self.cut_off_at = resume_after

    def give_up(self, subscription: Subscription, error: TidemarkError) -> None:
        self.failed = error


def text_messages(frames: bytes) -> Iterator[bytes]:
    """The texts of whole frames that stand one after the other."""
    while frames:
        start, size = 2, frames[1]
        if size > 125:
            start += 2 if size == 126 else 8
            size = int.from_bytes(frames[2:start], "big")
        yield frames[start : start + size]
        frames = frames[start + size :]


def new_hub(store: Views) -> Hub:
    async def open_store() -> Views:
        return store

    return Hub({POSITIONS.name: POSITIONS}, open_store, poll_s=0, heartbeat_s=1, limits=HubLimits())
