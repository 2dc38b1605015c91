"""The events of one stream that wait for their watermark, and the files that keep them.

What waits may be large: a tolerance of an hour is an hour of events. So it is not rewritten with
every batch, and is in no state that is. Each batch that leaves events waiting writes them as one
*part*, sorted by time and never changed again. Which events of a part still wait is not written
down: those that their lane's watermark has not reached and its last `end` has not released, and
both are in the state. A batch costs what it adds and what it releases: parts are cut off at their
front, and what lies behind the greatest watermark is not looked at.

Parts are joined as they come, a new one taking in those that are not larger than itself or that
wait by less than half. So there are few of them, they take up at most twice the room of what waits,
and an event is written again a number of times that grows with the logarithm of the buffer.

Parts are Arrow IPC files, read by mapping them into memory: what waits is in the page cache.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.files import (
    OrderedOutputError,
    refusals_told,
    replace_durably,
    sync_directory,
)
from tidemark.pipeline.time.reorder import TUPLES_SCHEMA

_PART: Final = "part"
TAKEN_SCHEMA: Final = TUPLES_SCHEMA.append(pa.field(_PART, pa.int64()))
_IN_ORDER: Final = [("ts", "ascending"), ("ingress_sequence", "ascending")]
_PART_FILE = re.compile(r"([0-9]{20})\.arrow").fullmatch


class PartStore(Protocol):
    """Where parts are kept, by number."""

    def numbers(self) -> set[int]: ...

    def read(self, number: int) -> pa.Table: ...

    def write(self, number: int, part: pa.Table) -> pa.Table:
        """Keep a part durably and give it back, perhaps from where it is kept."""

    def remove(self, numbers: Collection[int]) -> None: ...


class PartRef(msgspec.Struct, frozen=True):
    """A part as the state names it; `row_count` includes what does not wait any more."""

    number: int
    row_count: int


class _Part:
    """What waits of a part. `front` are events that were taken out and put back, because the
    watermark that passed them was that of another lane. Both are sorted by time."""

    def __init__(self, ref: PartRef, rest: pa.Table) -> None:
        self.ref = ref
        self.front = rest.slice(0, 0)
        self.rest = rest

    @property
    def waiting_count(self) -> int:
        return int(self.front.num_rows + self.rest.num_rows)

    def take(self, reached: int | None) -> pa.Table:
        """Take out what has at most this time; None takes out everything."""
        taken, self.front = _cut(self.front, reached)
        more, self.rest = _cut(self.rest, reached)
        return pa.concat_tables([taken, more])


class Buffer:
    """What waits in one stream, from batch to batch.

    For some commits `take` is called and then `settle`. If one of them fails, the buffer is to be
    made anew.
    """

    def __init__(self, store: PartStore, refs: Sequence[PartRef], lanes: pa.Table) -> None:
        """`refs` and `lanes` are those of the state. Parts that it does not name are removed: they
        were written by batches that were never committed, or their events have been released."""
        self._store = store
        store.remove(store.numbers() - {ref.number for ref in refs})
        self._parts = [_Part(ref, _waiting(store.read(ref.number), lanes)) for ref in refs]
        self._released: set[int] = set()

    @property
    def refs(self) -> list[PartRef]:
        return [part.ref for part in self._parts]

    @property
    def waiting_count(self) -> int:
        return sum(part.waiting_count for part in self._parts)

    def take(self, reached: int | None, *, everything: bool = False) -> pa.Table:
        """Take out what may be released when no watermark is beyond `reached`, or everything."""
        taken = []
        if everything or reached is not None:
            for place, part in enumerate(self._parts):
                rows = part.take(None if everything else reached)
                of_part = pa.repeat(pa.scalar(place, pa.int64()), rows.num_rows)
                taken.append(rows.append_column(_PART, of_part))
        return pa.concat_tables([TAKEN_SCHEMA.empty_table(), *taken])

    def forget_released(self) -> None:
        """Remove the parts that the state does without; to be called when that is committed."""
        self._store.remove(self._released)
        self._released = set()

    def settle(self, number: int, put_back: pa.Table, new: pa.Table) -> None:
        """Put back what was taken and not released, and add what is new, as part `number`."""
        for place in pc.unique(put_back.column(_PART)).to_pylist():
            part = self._parts[place]
            own = put_back.filter(pc.equal(put_back.column(_PART), place)).drop_columns([_PART])
            part.front = pa.concat_tables([own, part.front]).sort_by(_IN_ORDER)
        joined = [new] if new.num_rows else []
        row_count = new.num_rows
        kept: list[_Part] = []
        for part in reversed(self._parts):
            count = part.waiting_count
            if count and (count > row_count and 2 * count >= part.ref.row_count):
                kept.append(part)
                continue
            self._released.add(part.ref.number)
            joined += [part.front, part.rest]
            row_count += count
        kept.reverse()
        if row_count:
            table = pa.concat_tables(joined).sort_by(_IN_ORDER)
            table = self._store.write(number, table)
            kept.append(_Part(PartRef(number, row_count), table))
        self._parts = kept


class PartFiles:
    """Parts as files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def numbers(self) -> set[int]:
        if not self._directory.is_dir():
            return set()
        matches = (_PART_FILE(name) for name in os.listdir(self._directory))
        return {int(match[1]) for match in matches if match}

    def read(self, number: int) -> pa.Table:
        path = self._path(number)
        try:
            with pa.memory_map(str(path)) as source:
                return pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise OrderedOutputError(
                f"{path}, with events that wait to be written in order, cannot be read: {error}",
                hint="Restore the file, or empty its output's directory and rebuild from the "
                "ledger.",
            ) from error

    def write(self, number: int, part: pa.Table) -> pa.Table:
        with replace_durably(self._path(number)) as file, pa.ipc.new_file(file, part.schema) as out:
            out.write_table(part)
        return self.read(number)

    def remove(self, numbers: Collection[int]) -> None:
        with refusals_told(self._directory):
            for number in numbers:
                self._path(number).unlink(missing_ok=True)
            if numbers:
                sync_directory(self._directory)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:020d}.arrow"


def _cut(rows: pa.Table, reached: int | None) -> tuple[pa.Table, pa.Table]:
    """Rows that are sorted by time, up to and with a time and after it."""
    times = rows.column("ts")
    count = rows.num_rows
    if reached is not None:
        count = bisect.bisect_right(range(count), reached, key=lambda place: times[place].as_py())
    return rows.slice(0, count), rows.slice(count)


def _waiting(part: pa.Table, lanes: pa.Table) -> pa.Table:
    """The events of a part that their lanes have not released."""
    lane = pc.index_in(part.column("tenant_id"), value_set=lanes.column("tenant_id"))
    watermark, ended_at = (lanes.column(name).take(lane) for name in ("watermark", "ended_at"))
    is_ahead = pc.fill_null(pc.greater(part.column("ts"), watermark), True)
    is_after_end = pc.fill_null(pc.greater(part.column("received_at"), ended_at), True)
    return part.filter(pc.and_(is_ahead, is_after_end))
