"""`Client`: for programs with threads."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from tidemark.client import exits
from tidemark.client.answers import Answer
from tidemark.client.base import BaseClient, Event, flush_timeout
from tidemark.client.batches import split
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
from tidemark.client.settings import Settings
from tidemark.client.urllib3_transport import Urllib3Transport
from tidemark.clock import MICROS_PER_SECOND
from tidemark.errors import ClientError

_JOIN_TIMEOUT_S = 1.0


class Client(BaseClient[Future[Result]]):
    """Sends events and waits for their results, or buffers them and sends them in the background.

        with Client("http://127.0.0.1:8787") as client:
            [result] = client.send({"tenantId": "acme", "metric": "api_calls",
                                    "customerRef": "c1", "quantity": 1})

    Threads may share one client. Leaving the `with` block, or the interpreter, first delivers what
    is buffered. After a fork the child begins with an empty buffer; what was buffered before it is
    the parent's to deliver, and so are the futures for it.
    """

    def _begin(self) -> None:
        super()._begin()
        self._lock = threading.Lock()
        # Lanes wait for work; those who submit, flush or close wait for lanes to move on.
        self._work = threading.Condition(self._lock)
        self._moved = threading.Condition(self._lock)
        self._abandoned = threading.Event()
        self._lanes: list[threading.Thread] = []
        self._transport = Urllib3Transport(self._settings)
        _clients.add(self)

    def send(self, events: Event | Iterable[Event]) -> list[Result]:
        """Deliver one event or many now, and give one result for each, in order.

        Raises `DeliveryFailed` if some could not be delivered (it holds them, and the results of
        the others), and `ClientError` with code `invalid_event`, before anything is sent, if one
        has no JSON form.
        """
        taken = self._take_all(events)
        self._check_open()
        progress = SendProgress(taken, [self._too_large(body) for body in taken])
        send_all(progress, self._settings, self._transport)
        return progress.results()

    def submit(self, event: Event) -> Future[Result]:
        """Put an event into the buffer, and wait for room there if it is full.

        The event's content is fixed when this returns; the future has the `Result` or raises
        `ClientError`. It cannot be cancelled. Its callbacks run on the thread that sends, so they
        must be short.
        """
        body = self._take(event)
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        if (refused := self._too_large(body)) is not None:
            log_refusals([refused])
            future.set_result(refused)
            return future
        with self._lock:
            self._check_open()
            while not self._buffer.has_room(len(body)):
                self._forbid_in_lane("submit to a full buffer")
                self._moved.wait()
                self._check_open()
            self._ensure_lanes()
            self._buffer.add(body, future, self._clock.elapsed_us())
            if self._buffer.is_worth_a_look():
                self._work.notify()
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is buffered without lingering, and wait until all of it is settled.

        Raises `DeliveryFailed` if any submitted event was not delivered since the last `flush`,
        and `ClientError` with code `flush_timeout` if the time is up before.
        """
        self._forbid_in_lane("flush")
        with self._lock:
            through = self._hurry()
            is_settled = self._wait_settled(through, self._patience(timeout_s))
        if not is_settled:
            raise flush_timeout(timeout_s)
        self._raise_failures()

    def close(self, timeout_s: float | None = None) -> None:
        """Deliver what is buffered, then let go of threads and connections.

        Without `timeout_s` it waits as long as the server takes events, and up to `retry_for_s`
        (and one attempt) while it takes none. Raises `DeliveryFailed` if any submitted event was
        not delivered since the last `flush`. Closing again does nothing.
        """
        self._forbid_in_lane("close")
        try:
            with self._lock:
                self._is_closed = True
                through = self._hurry()
                self._moved.notify_all()
                patience = self._patience(timeout_s, self._settings.patience_us)
                is_settled = self._wait_settled(through, patience)
            if not is_settled:
                self._abandon()
        except BaseException:
            # A second Ctrl-C: leave now, but not without telling each future.
            self._abandon()
            raise
        finally:
            exits.forget(self)
            # A lane whose request was given up ends when the request does; it has nothing to say.
            for lane in [] if self._abandoned.is_set() else self._lanes:
                lane.join(_JOIN_TIMEOUT_S)
            self._transport.close()
        self._raise_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            # The error that is under way says more than a failure to deliver would.
            self.finish_at_exit()

    def finish_at_exit(self) -> None:
        """Close, and leave to the log what could not be delivered."""
        try:
            self.close()
        except ClientError as error:
            logger.error("%s", error.message)

    def _ensure_lanes(self) -> None:
        """Start the threads with the first event: a client that only sends needs none."""
        if self._lanes:
            return
        exits.expect(self)
        for index in range(self._settings.max_in_flight):
            # Daemons, so that the interpreter gets to its exit handlers, which close this client.
            lane = threading.Thread(
                target=self._run_lane, name=f"tidemark-client-{index}", daemon=True
            )
            lane.start()
            self._lanes.append(lane)

    def _run_lane(self) -> None:
        lane = Lane(self._settings.retry_policy, self._clock)
        while (batch := self._next_batch()) is not None:
            bodies = [entry.body for entry in batch]
            conversation = lane.deliver(bodies, batch[-1].taken_at_us)
            try:
                outcomes = converse(conversation, self._transport.post, self._sleep)
            except _Abandoned:
                return
            except Exception as error:
                logger.exception("the client failed")
                outcomes = [
                    not_answered(f"the client failed: {error!r}", "client_error") for _ in batch
                ]
            self._settle(batch, outcomes)

    def _next_batch(self) -> list[Entry[Future[Result]]] | None:
        """Wait for a batch that is due; None when there will be none any more."""
        with self._lock:
            while True:
                wait_us = self._buffer.wait_us(self._clock.elapsed_us())
                if wait_us == 0:
                    return self._buffer.pop_batch()
                if wait_us is None and self._is_closed:
                    return None
                self._work.wait(None if wait_us is None else wait_us / MICROS_PER_SECOND)

    def _settle(self, batch: Sequence[Entry[Future[Result]]], outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            claimed = self._claim(batch, outcomes)
            self._moved.notify_all()
        log_refusals([outcome for _, outcome in claimed])
        # Not under the lock: the callbacks of a future may use the client.
        for entry, outcome in claimed:
            if isinstance(outcome, Result):
                entry.future.set_result(outcome)
            else:
                entry.future.set_exception(outcome)
        with self._lock:
            self._buffer.settle(entry for entry, _ in claimed)
            self._moved.notify_all()

    def _abandon(self) -> None:
        """Settle everything as not delivered, and end the pauses of the lanes."""
        self._abandoned.set()
        with self._lock:
            given_up = self._buffer.unclaimed()
            self._buffer.clear_queue()
            self._work.notify_all()
        self._settle(
            given_up, [not_answered("closed before the server answered") for _ in given_up]
        )

    def _hurry(self) -> int:
        self._buffer.hurry()
        self._work.notify_all()
        return self._buffer.last_number

    def _wait_settled(self, through: int, patience: Patience) -> bool:
        """Wait, with the lock held, until everything up to a submission is settled."""
        while not self._buffer.is_settled_through(through):
            remaining_us = patience.remaining_us(self._clock.elapsed_us(), self._progress_us)
            if remaining_us == 0:
                return False
            self._moved.wait(None if remaining_us is None else remaining_us / MICROS_PER_SECOND)
        return True

    def _raise_failures(self) -> None:
        with self._lock:
            failed = self._failures.told()
        if failed is not None:
            raise failed

    def _forbid_in_lane(self, what: str) -> None:
        if threading.current_thread() in self._lanes:
            raise ClientError(
                f"a callback of a future may not {what}: it runs on the thread that it waits for",
                hint="Hand the work to another thread.",
                code="would_deadlock",
            )

    def _sleep(self, seconds: float) -> None:
        if self._abandoned.wait(seconds):
            raise _Abandoned


class _Abandoned(Exception):
    """The batch on its way was given up by `close`."""


def send_all(progress: SendProgress, settings: Settings, transport: Urllib3Transport) -> None:
    """Send, request by request, what a `send` has open; raise `DeliveryFailed` if one fails."""
    lane = Lane(settings.retry_policy, settings.clock)
    started_us = settings.clock.elapsed_us()
    for part in split(progress.sendable(), settings.limits):
        progress.add(converse(lane.deliver(part, started_us), transport.post, time.sleep))


def converse(
    conversation: Conversation,
    post: Callable[[bytes], Answer],
    sleep: Callable[[float], object],
) -> list[Outcome]:
    """Do what a conversation asks for until it has its outcomes."""
    answer: Answer | None = None
    while True:
        try:
            step = conversation.send(answer)
        except StopIteration as end:
            outcomes: list[Outcome] = end.value
            return outcomes
        if isinstance(step, Pause):
            sleep(step.duration_us / MICROS_PER_SECOND)
            answer = None
        else:
            answer = post(step.body)


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    # The child has no lanes, may have inherited a lock that is held, and shares its parent's
    # sockets. None of it is of use.
    for client in list(_clients):
        client._begin()


os.register_at_fork(after_in_child=_begin_anew_after_fork)
