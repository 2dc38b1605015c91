"""What the pipeline reads from, as the configuration says."""

from __future__ import annotations

import asyncio
import threading

from tidemark.config import Config
from tidemark.ledger.port import LedgerStore
from tidemark.mirror.errors import client_needed
from tidemark.mirror.messages import CommitRecord
from tidemark.pipeline.reading import EventSource, FromLedger
from tidemark.pipeline.source.frames import ledger_address


def event_source(
    config: Config,
    ledger: LedgerStore,
    loop: asyncio.AbstractEventLoop,
    stopping: threading.Event,
) -> EventSource:
    """`loop` is where the ledger lives; it must run while this is read."""
    if config.pipeline.source == "ledger":
        return FromLedger(ledger_address(config))
    # Loaded here: what it takes is there only for those who use Kafka.
    with client_needed():
        from tidemark.pipeline.kafka.asking import AskedLedger
        from tidemark.pipeline.kafka.source import FromKafka

    return FromKafka(config, AskedLedger(ledger, loop), stopping)


def last_in_kafka(config: Config) -> CommitRecord | None:
    """How far those who read from Kafka can come, for now."""
    with client_needed():
        from tidemark.pipeline.kafka.resuming import last_mirrored

    return last_mirrored(config)
