"""A stream written to files in the order of its time, with the watermarks between.

A directory has two sub-directories of *segments*, one for each batch that has something to say:

- `in_order/`: rows and watermarks. After a watermark, no row of its tenant (of any tenant, where it
  names none) has a time that the watermark has reached.
- `late/`: rows that came after a watermark had reached their time. They are no part of the order,
  so they are not among it, and they are not lost either.

Read in the order of their names, the segments hold the same however the ledger was cut into
batches. A segment is named by the first `received_at` that its batch can hold and by the last that
it does hold. It is durable before its batch is committed, so after a crash there may be segments of
a batch that never was: `recover` removes them, and they are written again.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.pipeline.files import (
    UNFINISHED_SUFFIX,
    OrderedOutputError,
    refusals_told,
    replace_durably,
    sync_directory,
)
from tidemark.pipeline.time.buffer import PartFiles
from tidemark.pipeline.time.reorder import LATE, RECORDS_SCHEMA, ROW, WATERMARK
from tidemark.pipeline.time.stage import segment_number

Format: TypeAlias = Literal["jsonl", "parquet"]

IN_ORDER: Final = "in_order"
_SEGMENT = re.compile(r"([0-9]{20})-([0-9]{20})\.(jsonl|parquet)").fullmatch
_TIMES: Final = ("ts", "watermark", "received_at", "released_at")
_OFFSET_BYTES: Final = 8
_MOMENT: Final = pa.timestamp("us", tz="UTC")

# Lines are made where they can be made all at once. `data` is JSON already; numbers of 64 bits are
# strings, and times are written as everywhere else.
_LINES: Final = f"""
SELECT CASE WHEN kind = '{WATERMARK}'
  THEN concat(
    '{{"kind":"watermark","stream":', to_json(stream),
    ',"tenantId":', coalesce(to_json(tenant_id), 'null'),
    ',"watermark":"', strftime(make_timestamp(watermark), '%Y-%m-%dT%H:%M:%S.%fZ'),
    '","receivedAt":"', strftime(make_timestamp(released_at), '%Y-%m-%dT%H:%M:%S.%fZ'), '"}}\n')
  ELSE concat(
    '{{"kind":"', kind, '","stream":', to_json(stream), ',"tenantId":', to_json(tenant_id),
    ',"ts":"', strftime(make_timestamp(ts), '%Y-%m-%dT%H:%M:%S.%fZ'),
    '","ingressSequence":"', ingress_sequence,
    '","receivedAt":"', strftime(make_timestamp(received_at), '%Y-%m-%dT%H:%M:%S.%fZ'),
    CASE WHEN kind = '{ROW}' THEN concat(
      '","releasedAt":"', strftime(make_timestamp(released_at), '%Y-%m-%dT%H:%M:%S.%fZ')) END,
    '","idempotencyKey":', to_json(idempotency_key), ',"data":', coalesce(data, 'null'), '}}\n')
  END AS line
FROM records
"""


class _Segment(NamedTuple):
    path: Path
    number: int
    last_received_at: int
    format: str


class OrderedOutput:
    """The files of one stream. `recover` comes first; then each batch is written, in order."""

    def __init__(self, path: Path, format: Format) -> None:
        self._path = path
        self._format = format
        self._directories = {ROW: path / IN_ORDER, LATE: path / LATE}
        self._buffer_directory = path / "buffer"
        self._last_written: int | None = None

    @property
    def buffer(self) -> PartFiles:
        """Where the events of the stream are kept while they wait."""
        return PartFiles(self._buffer_directory)

    def recover(self, frontier_received_at: int | None) -> None:
        """Remove what batches have written that were not committed.

        `frontier_received_at` is that of the last commit of the ledger that is; None if none is.
        `OrderedOutputError` if what is then left is not what was committed, or has another format.
        """
        first = segment_number(frontier_received_at)
        for directory in (*self._directories.values(), self._buffer_directory):
            with refusals_told(directory):
                names = os.listdir(directory) if directory.is_dir() else []
                removed = [name for name in names if self._is_left_over(directory / name, first)]
                for name in removed:
                    (directory / name).unlink()
                if removed:
                    sync_directory(directory)
        self._last_written = None

    def write(self, start_received_at: int | None, records: pa.Table) -> None:
        """Write the records of a batch that starts after a commit (None: at the beginning).

        They are durable when this returns. A batch may be written again, or another one from the
        same start: what was written from there on is replaced.
        """
        number = segment_number(start_received_at)
        if self._last_written is not None and number <= self._last_written:
            self.recover(start_received_at)
        is_late = pc.equal(records.column("kind"), LATE)
        for kind, part in (
            (ROW, records.filter(pc.invert(is_late))),
            (LATE, records.filter(is_late)),
        ):
            if part.num_rows:
                last = pc.max(part.column("released_at")).as_py()
                name = f"{number:020d}-{last:020d}.{self._format}"
                self._write_segment(self._directories[kind] / name, part)
        self._last_written = number

    def _write_segment(self, path: Path, records: pa.Table) -> None:
        with replace_durably(path) as file:
            if self._format == "parquet":
                pq.write_table(_with_moments(records), file, compression="zstd")
                return
            for chunk in json_lines(records).chunks:
                file.write(_joined(chunk))

    def _is_left_over(self, path: Path, first: int) -> bool:
        segment = _segment(path)
        if segment is None:
            return path.name.endswith(UNFINISHED_SUFFIX)
        if segment.number >= first:
            return True
        if segment.format != self._format:
            raise OrderedOutputError(
                f"{self._path} holds {segment.format} files, and {self._format} is wanted",
                hint="Choose another path, or empty the directory and rebuild from the ledger.",
            )
        if segment.last_received_at >= first:
            raise OrderedOutputError(
                f"{segment.path} holds what is committed and what is not: the views end at "
                f"{first - 1}",
                hint="The views or these files were restored from a backup. Empty the directory "
                "and rebuild from the ledger.",
            )
        return False


def json_lines(records: pa.Table) -> pa.ChunkedArray:
    """Each record as a line of JSON, with its line feed."""
    connection = _connection()
    connection.register("records", records)
    try:
        return connection.sql(_LINES).to_arrow_table().column("line")
    finally:
        connection.unregister("records")


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    # With one thread the rows of a result are in the order of those it is made from.
    return duckdb.connect(":memory:", config={"threads": 1, "arrow_large_buffer_size": True})


def _joined(texts: pa.LargeStringArray) -> pa.Buffer:
    """The texts of an array one after the other, which is how it holds them already."""
    offsets, values = texts.buffers()[1:]
    start, end = (
        int.from_bytes(offsets[place * _OFFSET_BYTES : (place + 1) * _OFFSET_BYTES], sys.byteorder)
        for place in (texts.offset, texts.offset + len(texts))
    )
    return values[start:end]


def _with_moments(records: pa.Table) -> pa.Table:
    """The same with times as times."""
    fields = [
        pa.field(field.name, _MOMENT) if field.name in _TIMES else field for field in RECORDS_SCHEMA
    ]
    return records.cast(pa.schema(fields))


def _segment(path: Path) -> _Segment | None:
    match = _SEGMENT(path.name)
    return None if match is None else _Segment(path, int(match[1]), int(match[2]), match[3])
