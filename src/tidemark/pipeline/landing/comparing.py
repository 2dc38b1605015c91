"""The directory held against the ledger: count, order and content of every block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import Any

import msgspec
import pyarrow as pa

from tidemark.pipeline.landing.blocks import Block
from tidemark.pipeline.landing.following import events_of
from tidemark.pipeline.landing.parquet import Landed, LandingError, ParquetDirectory
from tidemark.pipeline.landing.rows import ContentHash, rows_of, said_names
from tidemark.pipeline.source.database import LedgerDatabase


class BlockDifference(msgspec.Struct, frozen=True, rename="camel"):
    """The first thing in which a block is not what the ledger holds."""

    block: str
    message: str
    sequence: str | None = None
    column: str | None = None
    ledger: Any = None
    landed: Any = None


class Compared(msgspec.Struct, frozen=True, rename="camel"):
    """What was found, up to the last event that is landed."""

    blocks: int
    events: int
    last_sequence: int
    difference: BlockDifference | None = None


def compare_blocks(
    directory: ParquetDirectory,
    database: LedgerDatabase,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Compared | None:
    """None if it was stopped. Reads every block and all of the ledger that is landed."""
    directory.require_same()
    try:
        blocks = directory.blocks()
    except LandingError as error:
        return Compared(0, 0, 0, BlockDifference("", error.message))
    last = blocks[-1].last_sequence if blocks else 0
    head = database.head().ingress_sequence
    if last > head:
        found = BlockDifference(
            blocks[-1].block.name,
            f"it reaches sequence {last:,}, and the ledger ends at {head:,}",
        )
        return Compared(len(blocks), last, last, found)
    events = 0
    for number, each in enumerate(blocks, start=1):
        if stopped():
            return None
        difference = _difference(directory, database, each)
        if difference is not None:
            return Compared(number, events, last, difference)
        events = each.last_sequence
        on_progress(events, last)
    return Compared(len(blocks), events, last)


def _difference(
    directory: ParquetDirectory, database: LedgerDatabase, found: Landed
) -> BlockDifference | None:
    name = found.block.name
    expected, actual = ContentHash(), ContentHash()
    try:
        for batch in directory.read(found.block):
            actual.add(batch)
    except LandingError as error:
        return BlockDifference(name, error.message)
    for batch in _of_ledger(database, found):
        expected.add(batch)
    if expected.hexdigest() == actual.hexdigest() == found.content_hash:
        return None
    if expected.hexdigest() == actual.hexdigest():
        return BlockDifference(name, "its events are right, and the hash in the file is not")
    return _first_difference(
        name, _of_ledger(database, found), directory.read(found.block)
    ) or BlockDifference(name, "its events changed while they were compared")


def _of_ledger(database: LedgerDatabase, found: Landed) -> Iterable[pa.RecordBatch]:
    return events_of(database, Block(*found.block), found.last_sequence)


def _first_difference(
    name: str, ledger: Iterable[pa.RecordBatch], landed: Iterable[pa.RecordBatch]
) -> BlockDifference | None:
    for ours, theirs in zip_longest(_rows(ledger), _rows(landed)):
        if ours == theirs:
            continue
        if theirs is None:
            return BlockDifference(name, "an event is missing", str(ours[0]))
        if ours is None:
            return BlockDifference(name, "an event should not be there", str(theirs[0]))
        place = next(n for n, pair in enumerate(zip(ours, theirs, strict=True)) if len({*pair}) > 1)
        return BlockDifference(
            name,
            "an event differs",
            sequence=str(ours[0]),
            column=said_names()[place],
            ledger=_shown(ours[place]),
            landed=_shown(theirs[place]),
        )
    return None


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterable[tuple[Any, ...]]:
    return chain.from_iterable(map(rows_of, batches))


def _shown(value: Any) -> Any:
    """Numbers of 64 bits are strings in JSON."""
    return str(value) if isinstance(value, int) else value
