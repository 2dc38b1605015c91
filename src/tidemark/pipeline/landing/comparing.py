"""What is landed held against the ledger: count, order and content of every block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.landing.errors import LandingError
from tidemark.pipeline.landing.following import events_of
from tidemark.pipeline.landing.rows import MIRRORED, SAID, ContentHash, rows_of
from tidemark.pipeline.landing.target import LandingTarget, OpenBlock
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
    """How many blocks of a place were looked at, how many events are right from the first on, and
    the first thing that is not. `gone` is how many of the events are not there any more and may be
    gone: of Kafka with mirror.allow_short_retention. `elsewhere` is how many that are landed name
    another place in Kafka than where they are now, as after all was mirrored anew."""

    target: str
    blocks: int
    events: int
    difference: BlockDifference | None = None
    gone: int = 0
    elsewhere: int = 0


def compare_blocks(
    target: LandingTarget,
    database: LedgerDatabase,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Compared | None:
    """None if it was stopped. Reads every block and all of the ledger that is landed."""
    with target.attached():
        return _compared(target, database, on_progress, stopped)


def _compared(
    target: LandingTarget,
    database: LedgerDatabase,
    on_progress: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> Compared | None:
    try:
        blocks = [found.block for found in target.blocks()]
    except LandingError as error:
        return Compared(target.name, 0, 0, BlockDifference("", error.message))
    head = database.head().ingress_sequence
    events = elsewhere = 0
    for number, block in enumerate(blocks, start=1):
        if stopped():
            return None
        name = target.name_of(block)
        try:
            with target.opened(block) as found:
                checked = _checked(name, found, database)
                reached = found.landed.last_sequence
        except LandingError as error:
            checked, reached = BlockDifference(name, error.message), events
        if isinstance(checked, BlockDifference):
            return Compared(target.name, number, events, checked, elsewhere=elsewhere)
        events, elsewhere = reached, elsewhere + checked
        on_progress(events, max(head, events))
    return Compared(target.name, len(blocks), events, elsewhere=elsewhere)


def _checked(name: str, opened: OpenBlock, database: LedgerDatabase) -> BlockDifference | int:
    """The first thing in which a block differs, or how many of its events name another place."""
    found = opened.landed
    # Asked for again: the block may have been landed since.
    head = database.head().ingress_sequence
    if found.last_sequence > head:
        return BlockDifference(
            name, f"it reaches sequence {found.last_sequence:,}, and the ledger ends at {head:,}"
        )
    expected, actual = ContentHash(), ContentHash()
    named, known = _Places(), _Places()
    for batch in opened.batches():
        actual.add(batch)
        named.add(batch)
    for batch in events_of(database, found.block, found.last_sequence, with_places=True):
        expected.add(batch)
        known.add(batch)
    if expected.hexdigest() != actual.hexdigest():
        ledger = events_of(database, found.block, found.last_sequence)
        difference = _first_difference(name, ledger, opened.batches())
        assert difference is not None, "events have another hash, so one of them differs"
        return difference
    if found.content_hash not in (None, actual.hexdigest()):
        return BlockDifference(name, "its events are right, and the hash in the file is not")
    return named.other_than(known)


class _Places:
    """Where events are in Kafka, in their order."""

    def __init__(self) -> None:
        self._columns: dict[str, list[pa.Array]] = {name: [] for name in MIRRORED}

    def add(self, batch: pa.RecordBatch) -> None:
        for name, arrays in self._columns.items():
            arrays.append(batch.column(name))

    def other_than(self, others: _Places) -> int:
        """How many have a place, and not that of the others."""
        partitions, offsets = (
            tuple(pa.chunked_array(places._columns[name], kind) for places in (self, others))
            for name, kind in MIRRORED.items()
        )
        is_other = pc.or_(pc.not_equal(*partitions), pc.not_equal(*offsets))
        has_one = pc.greater_equal(offsets[0], 0)
        return pc.sum(pc.and_(has_one, is_other)).as_py() or 0


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
            column=SAID[place],
            ledger=_shown(ours[place]),
            landed=_shown(theirs[place]),
        )
    return None


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterable[tuple[Any, ...]]:
    return chain.from_iterable(map(rows_of, batches))


def _shown(value: Any) -> Any:
    """Numbers of 64 bits are strings in JSON."""
    return str(value) if isinstance(value, int) else value
