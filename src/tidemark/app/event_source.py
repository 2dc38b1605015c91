"""What the pipeline reads from, as the configuration says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from tidemark.config import Config
from tidemark.ledger.port import LedgerStore
from tidemark.mirror.errors import client_needed
from tidemark.mirror.messages import mirrored_checksum
from tidemark.pipeline.reading import EventSource, FromLedger
from tidemark.pipeline.source.frames import ledger_address


def event_source(
    config: Config,
    ledger: LedgerStore,
    wait: Callable[[Coroutine[Any, Any, int | None]], int | None],
    stopping: threading.Event,
) -> EventSource:
    """`wait` is for what the ledger is asked, from any thread."""
    if config.pipeline.source == "ledger":
        return FromLedger(ledger_address(config))
    # Loaded here: what it takes is there only for those who use Kafka.
    with client_needed():
        from tidemark.pipeline.kafka.source import FromKafka

    def checksum_of(sequence: int) -> int | None:
        return wait(mirrored_checksum(ledger, sequence))

    return FromKafka(config, ledger.ledger_id, checksum_of, stopping)
