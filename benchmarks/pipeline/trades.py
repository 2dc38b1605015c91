"""Ledgers of trades: many symbols, commits of a hundred, one event in a hundred late."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Final

import msgspec

from benchmarks.pipeline.workload import (
    COMMIT_EVENTS,
    COMMIT_US,
    LATE_SHARE,
    LATE_US,
    SECOND_US,
    START_US,
)
from tidemark.ingress.drafts import Draft, Submission
from tidemark.ledger.port import HistoryCommit
from tidemark.timestamps import format_timestamp

SYMBOLS: Final = 10_000


class Trade(msgspec.Struct, frozen=True):
    number: int
    received_at: int
    at: int
    symbol: str
    quantity: int


def trades(count: int) -> Iterator[Trade]:
    """One event in a hundred is days late, the others come within a second."""
    for begin in range(0, count, COMMIT_EVENTS):
        received_at = START_US + begin // COMMIT_EVENTS * COMMIT_US
        source = random.Random(begin)
        for number in range(begin, begin + COMMIT_EVENTS):
            at = received_at - source.randrange(SECOND_US)
            if source.random() < LATE_SHARE:
                at -= LATE_US
            symbol = f"s-{source.randrange(SYMBOLS)}"
            yield Trade(number, received_at, at, symbol, source.randrange(1, 1_000))


def commits(count: int) -> Iterator[HistoryCommit]:
    drafts: list[Draft] = []
    for trade in trades(count):
        key = str(trade.number)
        at = format_timestamp(trade.at)
        drafts.append(
            Draft(
                tenant_id="tenant",
                stream="trades",
                idempotency_key=key,
                content_hash=hashlib.sha256(key.encode()).digest(),
                occurred_at=None,
                data=f'{{"at":"{at}","quantity":"{trade.quantity}","symbol":"{trade.symbol}"}}',
            )
        )
        if len(drafts) == COMMIT_EVENTS:
            yield HistoryCommit(trade.received_at, Submission("benchmark", drafts))
            drafts = []
