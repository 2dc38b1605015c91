"""A limit: COPY of the same rows into the same table, with nothing around it.

One connection, a thousand rows a COPY, each COPY a transaction of its own. No lock, no look at what
is there already, no validation, no HTTP: what is left is what PostgreSQL and the disk need.
"""

from __future__ import annotations

import gc
import time
from decimal import Decimal
from typing import Final

import asyncpg
import uvloop

from benchmarks.ingest.workload import body
from tests.services.postgres import PostgresServer
from tidemark.clock import SystemClock
from tidemark.config.model import Config, StreamConfig
from tidemark.ingress.decoder import Decoder
from tidemark.ingress.drafts import Submission
from tidemark.ledger.migrations import migrations
from tidemark.ledger.rows import EVENT_INSERT_COLUMNS, event_rows
from tidemark.ledger.sequencer import GENESIS_CHAIN, Head, digests_of, place

BATCH: Final = 1000

Rows = list[tuple[object, ...]]


class RawCopy:
    """Rows exactly as the API would write them, ready to be copied into a new table."""

    def __init__(self, postgres: PostgresServer, rows: int) -> None:
        self._postgres = postgres
        self._batches = _batches(rows)

    def rows_per_s(self) -> float:
        """Copies everything into the empty table of a new database."""
        url = self._postgres.create_database()
        try:
            return uvloop.run(self._copy(url))
        finally:
            self._postgres.drop_database(url)

    async def _copy(self, url: str) -> float:
        connection = await asyncpg.connect(url)
        try:
            for migration in migrations("postgres"):
                await connection.execute(migration.sql)
            # The API's processes do not carry these rows, so collecting them must not count.
            gc.collect()
            gc.freeze()
            began = time.perf_counter()
            for batch in self._batches:
                await connection.copy_records_to_table(
                    "events", records=batch, columns=EVENT_INSERT_COLUMNS
                )
            return len(self._batches) * BATCH / (time.perf_counter() - began)
        finally:
            gc.unfreeze()
            await connection.close()


def _batches(rows: int) -> list[Rows]:
    clock = SystemClock()
    decoder = Decoder(Config(streams={"usage": StreamConfig(kind="usage")}), "benchmark")
    head = Head(0, 0, GENESIS_CHAIN)
    batches: list[Rows] = []
    for first in range(0, rows, BATCH):
        entries = decoder.decode_body(None, body(first, BATCH), now_us=clock.wall_us())
        submission = Submission("benchmark", entries)
        placement = place([submission], [digests_of(submission)], {}, head, clock.wall_us())
        head = placement.head
        batches.append(list(event_rows([placement], None, Decimal)))
    return batches
