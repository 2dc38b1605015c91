"""Many requests, one transaction: what waits while a group is committed becomes the next group.

Nothing is delayed to make groups larger. The queue is bounded in events, so a store that is slow or
away turns into `queue_full` for senders, never into memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Protocol

from tidemark.errors import QueueFull, StorageRefused, TidemarkError
from tidemark.ingress.drafts import (
    CorrectionResolver,
    Entry,
    Outcome,
    Rejection,
    Submission,
)
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.refusals import refused_by_storage

log = logging.getLogger(__name__)

Waiting = tuple[Submission, "asyncio.Future[list[Outcome]]"]


class CommitObserver(Protocol):
    """Is told of each group: how many events it took into the ledger and how long that took."""

    def committed(self, accepted: int, last_sequence: int, seconds: float) -> None: ...

    def failed(self, error: TidemarkError) -> None: ...


class GroupCommitter:
    """An `EventSink` over a ledger store."""

    def __init__(
        self,
        store: LedgerStore,
        resolve: CorrectionResolver,
        observer: CommitObserver,
        *,
        max_group_events: int,
        max_queued_events: int,
    ) -> None:
        self._store = store
        self._resolve = resolve
        self._observer = observer
        self._max_group_events = max_group_events
        self._max_queued_events = max_queued_events
        self._waiting: deque[Waiting] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self.queued_events = 0

    def start(self) -> None:
        """Begin to commit; one task per connection that the store can write on."""
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self._store.writers)]

    def check_room(self) -> None:
        """Refuse before a request is decoded what would be refused after it."""
        if self._closing or self.queued_events >= self._max_queued_events:
            raise self._full()

    async def append(self, submission: Submission) -> list[Outcome]:
        """Durable when this returns. Cancelling the caller does not take the events back."""
        count = len(submission.entries)
        if self._closing or self.queued_events + count > self._max_queued_events:
            raise self._full()
        result: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self.queued_events += count
        self._waiting.append((submission, result))
        self._arrived.set()
        return await result

    def _full(self) -> QueueFull:
        waiting = f"{self.queued_events} events are waiting for the ledger"
        return QueueFull(
            "the process is shutting down" if self._closing else waiting,
            hint="Wait as Retry-After says, then send the same request again.",
        )

    async def close(self) -> None:
        """Commit what was taken, then stop."""
        self._closing = True
        self._arrived.set()
        await asyncio.gather(*self._tasks)

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            group = self._take_group()
            try:
                await self._commit(group)
            finally:
                self.queued_events -= sum(len(submission.entries) for submission, _ in group)

    def _take_group(self) -> list[Waiting]:
        group: list[Waiting] = []
        events = 0
        while self._waiting:
            count = len(self._waiting[0][0].entries)
            if group and events + count > self._max_group_events:
                break
            events += count
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: list[Waiting]) -> None:
        try:
            await self._append(group)
        except TidemarkError as error:
            self._observer.failed(error)
            for _, result in group:
                _fail(result, error)
        except Exception as error:
            # A bug. It fails this group, but must not leave all later ones without an answer.
            log.exception("a group of events could not be committed")
            for _, result in group:
                _fail(result, error)
        except BaseException as error:
            for _, result in group:
                _fail(result, error)
            raise

    async def _append(self, group: list[Waiting]) -> None:
        started = time.perf_counter()
        try:
            outcomes = await self._store.append_group(
                [submission for submission, _ in group], self._resolve
            )
        except StorageRefused as refused:
            if len(group) > 1:
                await self._commit_apart(group)
                return
            self._observer.failed(refused)
            outcomes = [await self._append_what_is_taken(group[0][0], refused)]
        self._observe(outcomes, time.perf_counter() - started)
        for (_, result), of_request in zip(group, outcomes, strict=True):
            if not result.done():
                result.set_result(of_request)

    async def _commit_apart(self, group: list[Waiting]) -> None:
        """One request that the database refuses must not fail the others of its group."""
        for waiting in group:
            await self._commit([waiting])

    async def _append_what_is_taken(
        self, submission: Submission, refused: StorageRefused
    ) -> list[Outcome]:
        """One event that the database refuses must not fail the others of its request."""
        try:
            refuses = await self._store.refuses(submission, self._resolve)
            entries = [
                _refused(entry, refused) if is_refused else entry
                for entry, is_refused in zip(submission.entries, refuses, strict=True)
            ]
            [outcomes] = await self._store.append_group(
                [Submission(submission.request_id, entries)], self._resolve
            )
        except StorageRefused as again:
            # Not even the reasons can be kept.
            rejections = [_refused(entry, again) for entry in submission.entries]
            return [Outcome("rejected", r.idempotency_key, rejection=r) for r in rejections]
        return outcomes

    def _observe(self, outcomes: list[list[Outcome]], seconds: float) -> None:
        accepted = [
            outcome.ingress_sequence or 0
            for of_request in outcomes
            for outcome in of_request
            if outcome.status == "accepted"
        ]
        self._observer.committed(len(accepted), accepted[-1] if accepted else 0, seconds)


def _fail(result: asyncio.Future[list[Outcome]], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def _refused(entry: Entry, refused: StorageRefused) -> Rejection:
    return entry if isinstance(entry, Rejection) else refused_by_storage(entry, refused)
