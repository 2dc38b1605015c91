"""The ledger's database, but for events that are landed: those are read from their blocks.

A long replay reads every event once, in order, which is what the files are made for; the database
is left to those who need it. Commits are the ledger's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.pipeline.landing.blocks import Block, Schedule
from tidemark.pipeline.landing.errors import LandingError
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.source.database import (
    LedgerDatabase,
    Owner,
    StreamOfTenant,
)
from tidemark.pipeline.source.schema import EVENT_COLUMNS, Columns, arrow_type


class LandedBlocks(msgspec.Struct, frozen=True):
    """Whole blocks of a ledger: all its events up to `upto`. Travels as an option of the source."""

    path: str
    block_events: int
    upto: int

    @classmethod
    def in_directory(cls, directory: ParquetDirectory) -> LandedBlocks | None:
        """Those that are whole; None if there are none."""
        whole = [landed.block for landed in directory.blocks() if landed.is_whole]
        if not whole:
            return None
        return cls(str(directory.path), directory.schedule.block_events, whole[-1].last)

    def as_option(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_option(cls, text: str) -> LandedBlocks:
        return msgspec.json.decode(text, type=cls)


class DatabaseWithBlocks(LedgerDatabase):
    """A connection for one thread, as the one that it is made of."""

    def __init__(self, database: LedgerDatabase, blocks: LandedBlocks) -> None:
        self._database = database
        self._blocks = blocks
        self._schedule = Schedule(blocks.block_events)
        # Chunks are asked for in order, and a block is several of them.
        self._block: tuple[Block, pa.Table] | None = None

    def events(self, after: int, upto: int, streams: Sequence[StreamOfTenant] | None) -> Columns:
        edge = self._blocks.upto
        if streams is not None or after >= edge:
            return self._database.events(after, upto, streams)
        landed = self._landed(after, min(upto, edge))
        if upto <= edge:
            return landed
        rest = self._database.events(edge, upto, None)
        return {name: pa.concat_arrays([landed[name], rest[name]]) for name in EVENT_COLUMNS}

    def events_of(
        self, after: int, upto: int, owners: Sequence[Owner], rows: int
    ) -> Iterator[tuple[Columns, Any]]:
        return self._database.events_of(after, upto, owners, rows)

    def close(self) -> None:
        self._database.close()

    def _landed(self, after: int, upto: int) -> Columns:
        parts = []
        for block in self._schedule.blocks(after, upto):
            first, last = max(block.first, after + 1), min(block.last, upto)
            parts.append(self._read(block).slice(first - block.first, last - first + 1))
        events = pa.concat_tables(parts)
        return {
            name: events.column(name).combine_chunks().cast(arrow_type(name))
            for name in EVENT_COLUMNS
        }

    def _read(self, block: Block) -> pa.Table:
        if self._block is None or self._block[0] != block:
            path = Path(self._blocks.path) / block.name
            try:
                table = pq.read_table(path)
            except (OSError, pa.ArrowException) as error:
                raise _unusable(path, "cannot be read") from error
            if table.num_rows != block.last - block.first + 1:
                raise _unusable(path, f"holds {table.num_rows:,} events")
            self._block = (block, table)
        return self._block[1]

    def _fetch(self, sql: str, *values: object) -> list[Any]:
        return self._database._fetch(sql, *values)


def _unusable(path: Path, why: str) -> LandingError:
    return LandingError(
        f"{path} is no whole block: it {why}",
        hint="`tidemark verify --deep` says what is wrong. Move the landed files away to have"
        " all blocks landed anew, or set landing.parquet.enabled to false to read the ledger.",
        field="landing.parquet",
    )
