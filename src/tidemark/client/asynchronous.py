"""`AsyncClient`: for programs with an event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from tidemark.client import exits
from tidemark.client.aiohttp_transport import AiohttpTransport
from tidemark.client.answers import Answer
from tidemark.client.base import BaseClient, Event, flush_timeout
from tidemark.client.batches import split
from tidemark.client.blocking import send_all
from tidemark.client.buffer import Entry
from tidemark.client.delivery import (
    Conversation,
    Lane,
    Outcome,
    Pause,
    log_refusals,
    logger,
    not_answered,
)
from tidemark.client.reports import SendProgress
from tidemark.client.results import Result
from tidemark.client.retry import Patience
from tidemark.client.urllib3_transport import Urllib3Transport
from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import ClientError


class AsyncClient(BaseClient[asyncio.Future[Result]]):
    """Sends events and awaits their results, or buffers them and sends them in the background.

        async with AsyncClient("http://127.0.0.1:8787") as client:
            [result] = await client.send({"tenantId": "acme", "metric": "api_calls",
                                          "customerRef": "c1", "quantity": 1})

    A client belongs to the event loop in which it is first used. Leaving the `async with` block
    first delivers what is buffered. What a program leaves buffered when its loop ends is delivered
    when the interpreter does.
    """

    def _begin(self) -> None:
        super()._begin()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._transport: asyncio.Future[AiohttpTransport] | None = None
        self._has_lanes = False
        self._turn = asyncio.Lock()
        # Lanes wait for work; those who submit, flush or close wait for lanes to move on.
        self._work = asyncio.Event()
        self._moved = asyncio.Event()
        self._ended = asyncio.Event()

    async def send(self, events: Event | Iterable[Event]) -> list[Result]:
        """Deliver one event or many now, and give one result for each, in order.

        Raises `DeliveryFailed` if some could not be delivered (it holds them, and the results of
        the others), and `ClientError` with code `invalid_event`, before anything is sent, if one
        has no JSON form.
        """
        taken = self._take_all(events)
        self._check_open()
        progress = SendProgress(taken, [self._too_large(body) for body in taken])
        lane = Lane(self._settings.retry_policy, self._clock)
        started_us = self._clock.elapsed_us()
        for part in split(progress.sendable(), self._settings.limits):
            progress.add(await self._converse(lane.deliver(part, started_us)))
        return progress.results()

    async def submit(self, event: Event) -> asyncio.Future[Result]:
        """Put an event into the buffer, and wait for room there if it is full.

        The event's content is fixed when this returns; the future has the `Result` or raises
        `ClientError`. Cancelling the future does not take the event back.
        """
        body = self._take(event)
        self._bind()
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if (refused := self._too_large(body)) is not None:
            log_refusals([refused])
            future.set_result(refused)
            return future
        # First come, first served: else a busy task could keep another from ever finding room.
        async with self._turn:
            self._check_open()
            while not self._buffer.has_room(len(body)):
                await self._wait_moved(None)
                self._check_open()
            self._ensure_lanes()
            self._buffer.add(body, future, self._clock.elapsed_us())
        if self._buffer.is_worth_a_look():
            self._work.set()
            # A loop that only submits must let the lanes run, or it would only fill the buffer.
            await asyncio.sleep(0)
        return future

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is buffered without lingering, and wait until all of it is settled.

        Raises `DeliveryFailed` if any submitted event was not delivered since the last `flush`,
        and `ClientError` with code `flush_timeout` if the time is up before.
        """
        self._bind()
        through = self._hurry()
        if not await self._wait_settled(through, self._patience(timeout_s)):
            raise flush_timeout(timeout_s)
        self._raise_failures()

    async def close(self, timeout_s: float | None = None) -> None:
        """Deliver what is buffered, then let go of tasks and connections.

        Without `timeout_s` it waits as long as the server takes events, and up to `retry_for_s`
        (and one attempt) while it takes none. Raises `DeliveryFailed` if any submitted event was
        not delivered since the last `flush`. Closing again does nothing.
        """
        self._bind()
        self._is_closed = True
        try:
            through = self._hurry()
            self._moved.set()
            patience = self._patience(timeout_s, self._settings.patience_us)
            if not await self._wait_settled(through, patience):
                self._abandon()
        except BaseException:
            # Cancelled while closing: leave now, but not without telling each future.
            self._abandon()
            raise
        finally:
            exits.forget(self)
            self._ended.set()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._raise_failures()

    async def __aenter__(self) -> Self:
        self._bind()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except ClientError as failed:
            # The error that is under way says more than a failure to deliver would.
            logger.error("%s", failed.message)

    def finish_at_exit(self) -> None:
        """Deliver without a loop what the loop left behind. The same bytes cannot double."""
        left = [entry.body for entry in self._buffer.unclaimed()]
        progress = SendProgress(left, [None] * len(left))
        transport = Urllib3Transport(self._settings)
        try:
            send_all(progress, self._settings, transport)
        except ClientError as error:
            logger.error("%s", error.message)
        else:
            log_refusals(progress.results())
        finally:
            transport.close()

    def _bind(self) -> None:
        """Belong to the running loop; begin anew in a child that was forked."""
        if self._pid != os.getpid():
            # The parent's loop must not be touched from here, not even by the garbage collector.
            _inherited.append((self._loop, self._tasks, self._transport, self._buffer))
            self._begin()
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ClientError(
                "the client belongs to another event loop",
                hint="Make an AsyncClient for each loop.",
                code="wrong_loop",
            )

    def _ensure_lanes(self) -> None:
        if not self._has_lanes:
            self._has_lanes = True
            exits.expect(self)
            for index in range(self._settings.max_in_flight):
                self._start(self._run_lane(), f"tidemark-client-{index}")

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _run_lane(self) -> None:
        lane = Lane(self._settings.retry_policy, self._clock)
        while (batch := await self._next_batch()) is not None:
            bodies = [entry.body for entry in batch]
            try:
                outcomes = await self._converse(lane.deliver(bodies, batch[-1].taken_at_us))
            except Exception as error:
                logger.exception("the client failed")
                outcomes = [
                    not_answered(f"the client failed: {error!r}", "client_error") for _ in batch
                ]
            self._settle(batch, outcomes)

    async def _next_batch(self) -> list[Entry[asyncio.Future[Result]]] | None:
        """Wait for a batch that is due; None when there will be none any more."""
        while True:
            wait_us = self._buffer.wait_us(self._clock.elapsed_us())
            if wait_us == 0:
                return self._buffer.pop_batch()
            if wait_us is None and self._is_closed:
                return None
            self._work.clear()
            await _wait(self._work, wait_us)

    async def _converse(self, conversation: Conversation) -> list[Outcome]:
        """Do what a conversation asks for until it has its outcomes."""
        transport = await self._open_transport()
        answer: Answer | None = None
        while True:
            try:
                step = conversation.send(answer)
            except StopIteration as end:
                outcomes: list[Outcome] = end.value
                return outcomes
            if isinstance(step, Pause):
                await asyncio.sleep(step.duration_us / MICROS_PER_SECOND)
                answer = None
            else:
                answer = await transport.post(step.body)

    async def _open_transport(self) -> AiohttpTransport:
        self._bind()
        if self._transport is None:
            self._transport = asyncio.get_running_loop().create_future()
            self._start(self._keep_transport(self._transport), "tidemark-client-connections")
        return await asyncio.shield(self._transport)

    async def _keep_transport(self, opened: asyncio.Future[AiohttpTransport]) -> None:
        # A task of its own, so that connections are closed also where nobody closes the client:
        # a loop that ends cancels its tasks.
        try:
            async with AiohttpTransport(self._settings) as transport:
                opened.set_result(transport)
                await self._ended.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    def _settle(
        self, batch: Sequence[Entry[asyncio.Future[Result]]], outcomes: Sequence[Outcome]
    ) -> None:
        claimed = self._claim(batch, outcomes)
        log_refusals([outcome for _, outcome in claimed])
        for entry, outcome in claimed:
            if entry.future.done():
                continue
            if isinstance(outcome, Result):
                entry.future.set_result(outcome)
            else:
                entry.future.set_exception(outcome)
                # `flush` and `close` tell of it, so asyncio need not complain if nobody looks.
                entry.future.exception()
        self._buffer.settle(entry for entry, _ in claimed)
        self._moved.set()

    def _abandon(self) -> None:
        """Settle everything as not delivered, and end the tasks."""
        given_up = self._buffer.unclaimed()
        self._buffer.clear_queue()
        self._settle(
            given_up, [not_answered("closed before the server answered") for _ in given_up]
        )
        for task in self._tasks:
            task.cancel()

    def _hurry(self) -> int:
        self._buffer.hurry()
        self._work.set()
        return self._buffer.last_number

    async def _wait_settled(self, through: int, patience: Patience) -> bool:
        while not self._buffer.is_settled_through(through):
            remaining_us = patience.remaining_us(self._clock.elapsed_us(), self._progress_us)
            if remaining_us == 0:
                return False
            await self._wait_moved(remaining_us)
        return True

    async def _wait_moved(self, timeout_us: int | None) -> None:
        self._moved.clear()
        await _wait(self._moved, timeout_us)

    def _raise_failures(self) -> None:
        failed = self._failures.told()
        if failed is not None:
            raise failed


async def _wait(event: asyncio.Event, timeout_us: int | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(None if timeout_us is None else timeout_us / MICROS_PER_SECOND):
            await event.wait()


# What a forked child must neither use nor finalise.
_inherited: list[object] = []
