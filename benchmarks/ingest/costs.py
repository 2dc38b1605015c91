"""What one event costs in the CPU, step by step, in this process and without any server.

The best of many repeats is reported: noise only ever adds.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import msgspec

from benchmarks.ingest.workload import body
from tidemark.clock import SystemClock
from tidemark.config.model import Config, StreamConfig
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Draft, Submission
from tidemark.ingress.endpoint import answer
from tidemark.ingress.identity import Identity
from tidemark.ledger.rows import event_rows
from tidemark.ledger.sequencer import GENESIS_CHAIN, Head, digests_of, place

EVENTS: Final = 1000
REPEATS: Final = 9
CALLS: Final = 4
SALT: Final = "benchmark"


class Cost(msgspec.Struct, frozen=True):
    """A step and what it takes for one event."""

    step: str
    us: float


def measure_costs() -> list[Cost]:
    clock = SystemClock()
    now_us = clock.wall_us()
    identity = Identity(SALT)
    decoder = Decoder(Config(streams={"usage": StreamConfig(kind="usage")}), SALT)
    content = body(0, EVENTS)
    entries = decoder.decode_body(None, content, now_us=now_us)
    assert all(isinstance(entry, Draft) for entry in entries), "every event is a good one"
    submission = Submission("benchmark", entries)
    digests = digests_of(submission)
    head = Head(0, 0, GENESIS_CHAIN)
    placement = place([submission], [digests], {}, head, now_us)
    key_of = identity.usage_key
    timestamp = "2025-01-01T00:00:00.123456Z"

    def derive_keys() -> None:
        for _ in range(EVENTS):
            key_of("tenant-1", "api_calls", "customer-00001", "server-1", timestamp)

    steps: dict[str, Callable[[], object]] = {
        "derive a key (part of the next)": derive_keys,
        "body to drafts": lambda: decoder.decode_body(None, content, now_us=now_us),
        "digest of tenant and key": lambda: digests_of(submission),
        "place in order": lambda: place([submission], [digests], {}, head, now_us),
        "draft to row": lambda: list(event_rows([placement], None, Decimal)),
        "outcomes to answer": lambda: msgspec.json.encode(
            answer("benchmark", placement.outcomes[0])
        ),
    }
    return [Cost(step, _best_us(work)) for step, work in steps.items()]


def _best_us(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=CALLS, repeat=REPEATS)) / CALLS / EVENTS * 1_000_000
