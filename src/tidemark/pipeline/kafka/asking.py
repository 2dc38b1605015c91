"""What the ledger is asked while Kafka is read."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from tidemark.ledger.port import CommitRow, LedgerStore
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.ahead import CommitReader
from tidemark.mirror.messages import CommitRecord

T = TypeVar("T")


class AskedLedger:
    """A ledger that lives in a loop, asked from any other thread.

    Raises `LedgerUnavailable` while it is away.
    """

    def __init__(self, ledger: LedgerStore, loop: asyncio.AbstractEventLoop) -> None:
        self._ledger = ledger
        self._loop = loop

    @property
    def ledger_id(self) -> str:
        return self._ledger.ledger_id

    def commits_after(self, received_at: int, limit: int) -> Sequence[CommitRow]:
        return self._wait(self._ledger.read_commits(received_at, limit))

    def events_of(self, commit: CommitRecord) -> SpeltEvents:
        """All of a commit's, as they are mirrored. It must be one of the ledger's."""
        reader = CommitReader(self._ledger, few_first=True)
        read = self._wait(reader.after(commit.received_at_us - 1))
        return read.spelt().spelling.events().upto(commit.last_sequence)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
