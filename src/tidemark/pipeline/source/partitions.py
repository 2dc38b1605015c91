"""Reads one part of a range, chunk by chunk, in memory that does not depend on its size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.ledger.sequencer import GENESIS_CHAIN
from tidemark.pipeline.source.database import LedgerDatabase, events_missing, missing
from tidemark.pipeline.source.planning import LedgerPartition
from tidemark.pipeline.source.schema import CommitRow, commit_batch, event_batch

COMMITS_PER_PAGE: Final = 8_192
FIRST_CHUNK_ROWS: Final = 1_024
MAX_CHUNK_ROWS: Final = 32_768
CHUNK_BYTES: Final = 16 * 1024 * 1024
_GROWTH = 8


def read_partition(
    database: LedgerDatabase, partition: LedgerPartition
) -> Iterator[pa.RecordBatch]:
    """The events of the part, and its commits when everything is wanted."""
    if partition.selection.owners is not None:
        return _of_owners(database, partition)
    return _in_order(database, partition)


def _of_owners(database: LedgerDatabase, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
    after, upto = partition.after.ingress_sequence, partition.upto.ingress_sequence
    if after < upto:
        owners = partition.selection.owners or ()
        for columns, previous in database.events_of(after, upto, owners, MAX_CHUNK_ROWS):
            yield event_batch(columns, previous)


def _in_order(database: LedgerDatabase, partition: LedgerPartition) -> Iterator[pa.RecordBatch]:
    selection = partition.selection
    commits = _CommitWalk(database, partition.after.received_at, partition.upto.received_at)
    position, last = partition.after.ingress_sequence, partition.upto.ingress_sequence
    rows = FIRST_CHUNK_ROWS
    while position < last:
        reach = min(position + rows, last)
        columns = database.events(position, reach, selection.streams)
        received_at = columns["received_at"]
        if selection.everything and len(received_at) != reach - position:
            raise events_missing(position + 1, reach)
        if len(received_at):
            for commit_records in commits.upto(received_at[-1].as_py()):
                if selection.everything:
                    yield commit_records
            batch = event_batch(columns, commits.previous_of(received_at))
            yield batch
            # Events may be of any size: the next chunk is as large as the bytes of this one allow.
            rows = max(
                1, min(_GROWTH * rows, MAX_CHUNK_ROWS, CHUNK_BYTES * len(batch) // batch.nbytes)
            )
        position = reach
    if selection.everything:
        yield from commits.upto(partition.upto.received_at)


class _CommitWalk:
    """Goes through the commits of a range once, a page at a time, and remembers which commit with
    events came after which commit for as long as events of it may be asked for."""

    def __init__(self, database: LedgerDatabase, after: int, upto: int) -> None:
        self._database = database
        self._upto = upto
        self._position = after
        self._before: tuple[int | None, bytes] = (None, GENESIS_CHAIN)
        self._times: list[int] = []
        self._previous: list[int | None] = []
        # The first events of a part may be of a commit that began in the part before.
        if after:
            known = database.last_two(after)
            if not known:
                raise missing(f"a commit at {after}")
            begun, *before = known
            self._times.append(begun[0])
            self._previous.append(before[0][0] if before else None)
            self._before = (begun[0], begun[3])

    def upto(self, received_at: int) -> Iterator[pa.RecordBatch]:
        """The records of the commits up to this time, and perhaps of some after it."""
        while self._position < received_at:
            page = self._database.commits(self._position, self._upto, COMMITS_PER_PAGE)
            if not page:
                raise missing(f"a commit in which its events of {received_at} are")
            yield self._take(page)

    def _take(self, page: list[CommitRow]) -> pa.RecordBatch:
        records = commit_batch(page, *self._before)
        previous = self._before[0]
        for time, first_sequence, last_sequence, _ in page:
            if last_sequence >= first_sequence:
                self._times.append(time)
                self._previous.append(previous)
            previous = time
        self._position = page[-1][0]
        self._before = (page[-1][0], page[-1][3])
        return records

    def previous_of(self, received_at: pa.Array) -> pa.Array:
        """The times of the commits before these, which are in order. Forgets earlier ones."""
        first = bisect_left(self._times, received_at[0].as_py())
        del self._times[:first], self._previous[:first]
        count = bisect_right(self._times, received_at[-1].as_py())
        places = pc.index_in(received_at, value_set=pa.array(self._times[:count], pa.int64()))
        return pa.array(self._previous[:count], pa.int64()).take(places)
