"""Where a batch ends and how it is shared out: always at a commit, always within bounds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from tidemark.errors import ConfigError
from tidemark.pipeline.source.database import LedgerDatabase, Owner, StreamOfTenant, blocks_of
from tidemark.pipeline.source.offsets import Offset

# A task takes some ten milliseconds to start, in which it could have read thousands of events.
MIN_ROWS_PER_PARTITION: Final = 20_000
FIRST_PAGE: Final = 256
LAST_PAGE: Final = 16_384


@dataclass(frozen=True)
class Selection:
    """Which events of a range are wanted: those of owners, those of streams, or all."""

    owners: tuple[Owner, ...] | None = None
    streams: tuple[StreamOfTenant, ...] | None = None

    def __post_init__(self) -> None:
        if self.owners is not None and self.streams is not None:
            raise ConfigError(
                "both owners and streams are given", hint="Give one of them.", field="owners"
            )

    @property
    def everything(self) -> bool:
        return self.owners is None and self.streams is None


class LedgerPartition(InputPartition):
    """The events in `(after.ingress_sequence, upto.ingress_sequence]` and the commits in
    `(after.received_at, upto.received_at]`. Neither end need be the end of a commit."""

    def __init__(self, after: Offset, upto: Offset, selection: Selection) -> None:
        self.after = after
        self.upto = upto
        self.selection = selection


def batch_end(database: LedgerDatabase, start: Offset, upto: Offset, max_rows: int) -> Offset:
    """The last commit with which there are no more than `max_rows` rows, but one at least.

    An event is a row and so is a tick, or a long silence would be a batch without bound.
    """
    end = start
    ticks = 0
    page = FIRST_PAGE
    while end < upto:
        marks = database.marks(end.received_at, upto.received_at, page)
        for received_at, first_sequence, last_sequence in marks:
            ticks += last_sequence < first_sequence
            if end != start and last_sequence - start.ingress_sequence + ticks > max_rows:
                return end
            end = Offset(received_at, last_sequence)
        if len(marks) < page:
            break
        page = min(2 * page, LAST_PAGE)
    return end


def shared_out(
    database: LedgerDatabase, start: Offset, end: Offset, selection: Selection, partitions: int
) -> list[LedgerPartition]:
    """Parts of about the same size, in order."""
    first, last = start.ingress_sequence, end.ingress_sequence
    if selection.owners is not None:
        # Found by index, block by block: more parts than blocks would search a block twice.
        count = min(partitions, len(blocks_of(first, last))) if last > first else 1
    else:
        count = min(partitions, (last - first) // MIN_ROWS_PER_PARTITION)
    count = max(count, 1)
    ends = [first + (last - first) * part // count for part in range(1, count)]
    bounds = [start, *(Offset(database.time_of(at), at) for at in ends), end]
    return [LedgerPartition(after, upto, selection) for after, upto in pairwise(bounds)]


def named_range(database: LedgerDatabase, after: int, upto: int | None) -> tuple[Offset, Offset]:
    """The range between two commits that are given by their times; 0 is before the first."""
    start = Offset(0, 0) if after == 0 else database.at(after)
    end = database.head() if upto is None else database.at(upto) if upto else Offset(0, 0)
    for offset, time in ((start, after), (end, upto)):
        if offset is None:
            # The message names what was asked for: no commit reaches this sequence.
            database.require(Offset(time or 0, sys.maxsize))
    assert start is not None
    assert end is not None
    return start, max(start, end)


def as_owners(value: Sequence[Sequence[str]]) -> tuple[Owner, ...]:
    return tuple((tenant, metric, customer) for tenant, metric, customer in value)


def as_streams(value: Sequence[Sequence[str]]) -> tuple[StreamOfTenant, ...]:
    return tuple((stream, tenant) for stream, tenant in value)
