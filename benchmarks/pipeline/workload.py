"""Ledgers of usage events: many customers, commits of a hundred, one event in a hundred late."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from tidemark.ingress.drafts import Draft, Submission, no_corrections
from tidemark.ledger.port import HistoryCommit, LedgerStore

TENANTS: Final = 10
COMMIT_EVENTS: Final = 100
COMMITS_AT_ONCE: Final = 100
METRIC: Final = "api_calls"
# A Monday in the middle of a month.
START_US: Final = 1_762_776_000_000_000
COMMIT_US: Final = 100_000
SECOND_US: Final = 1_000_000
LATE_US: Final = 3 * 24 * 3_600 * SECOND_US
LATE_SHARE: Final = 0.01


async def append_commits(ledger: LedgerStore, commits: Iterable[HistoryCommit]) -> None:
    """Appends them, many in one transaction."""
    remaining = iter(commits)
    while waiting := list(islice(remaining, COMMITS_AT_ONCE)):
        await ledger.append_history(waiting, no_corrections)


class Workload(msgspec.Struct, frozen=True):
    """Events of so many customers; the same numbers give the same events."""

    customers: int = 10_000
    first_customer: int = 0
    seed: int = 1

    async def append(self, ledger: LedgerStore, first: int, count: int) -> None:
        """Appends the events `first` to `first + count`, which are whole commits."""
        await append_commits(ledger, self.commits(first, count))

    def commits(self, first: int, count: int) -> Iterator[HistoryCommit]:
        for begin in range(first, first + count, COMMIT_EVENTS):
            received_at = START_US + begin // COMMIT_EVENTS * COMMIT_US
            source = random.Random(self.seed * 1_000_003 + begin)
            drafts = [self._draft(source, begin + i, received_at) for i in range(COMMIT_EVENTS)]
            yield HistoryCommit(received_at, Submission("benchmark", drafts))

    def _draft(self, source: random.Random, number: int, received_at: int) -> Draft:
        customer = self.first_customer + source.randrange(self.customers)
        occurred_at = received_at - source.randrange(SECOND_US)
        if source.random() < LATE_SHARE:
            occurred_at -= LATE_US
        key = f"{self.first_customer}-{number}"
        return Draft(
            tenant_id=f"tenant-{customer % TENANTS}",
            stream="usage",
            idempotency_key=key,
            content_hash=hashlib.sha256(key.encode()).digest(),
            occurred_at=occurred_at,
            metric=METRIC,
            customer_ref=f"customer-{customer}",
            quantity=str(source.randrange(1, 1_000)),
            data='{"region":"eu"}',
        )
