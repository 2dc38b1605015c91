"""The directory of blocks: one Parquet file each, there whole or not at all.

The block that is still growing is written anew under its name, so a reader finds either what it was
or what it is. `_landing.json` says which ledger the events are of and how large a block is: other
blocks in the same directory would hold the same events twice.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.crash import crash_point
from tidemark.pipeline.files import (
    UNFINISHED_SUFFIX,
    Refusals,
    make_directory,
    refusals_told,
    replace_durably,
)
from tidemark.pipeline.landing.blocks import Block, Schedule
from tidemark.pipeline.landing.errors import (
    LandingError,
    LandingRefused,
    LandingRunning,
    LandingUnavailable,
)
from tidemark.pipeline.landing.rows import LANDED_SCHEMA, ContentHash, rows_of
from tidemark.pipeline.landing.target import Landed, OpenBlock

# Spark and others pass over what begins like this when they read a directory.
MANIFEST: Final = "_landing.json"
_LOCK: Final = "_landing.lock"
_LAST: Final = b"tidemark.last_sequence"
_HASH: Final = b"tidemark.content_hash"


_REFUSALS: Final = Refusals(LandingRefused, LandingUnavailable)


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """What a directory is of."""

    ledger_id: str
    block_events: int
    format: int = 1


class _OpenFile:
    """A block that is being read."""

    def __init__(self, block: Block, file: pq.ParquetFile, path: Path) -> None:
        self._file = file
        metadata = file.metadata.metadata or {}
        last, content_hash = (
            metadata.get(name, b"").decode("ascii", "replace") for name in (_LAST, _HASH)
        )
        if not re.fullmatch("[0-9]{1,19}", last):
            raise _mismatch(f"{path} is no block: it does not say how far it goes")
        if not file.schema_arrow.remove_metadata().equals(LANDED_SCHEMA):
            raise _mismatch(f"{path} is no block: it has other columns")
        self.landed = Landed(block, int(last), content_hash)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its events as they stand in the file."""
        for batch in self._file.iter_batches():
            # What is no text would be found out only when it is looked at.
            batch.validate(full=True)
            yield batch

    def last_row(self) -> tuple[Any, ...] | None:
        """What the last of its events says."""
        if not self._file.num_row_groups:
            return None
        *_, row = (None, *rows_of(self._file.read_row_group(self._file.num_row_groups - 1)))
        return row


class ParquetDirectory:
    """The blocks of one ledger."""

    name = "parquet"

    def __init__(self, path: Path, schedule: Schedule, ledger_id: str) -> None:
        self.path = path
        self.place = str(path)
        self.schedule = schedule
        self._manifest = Manifest(ledger_id, schedule.block_events)

    @contextmanager
    def held(self) -> Iterator[None]:
        """For writing: nobody else may, and what a crash has left is removed.

        Raises `LandingError` if the directory is of another ledger or has other blocks.
        """
        with refusals_told(self.path, _REFUSALS):
            make_directory(self.path)
            lock = (self.path / _LOCK).open("wb")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LandingRunning(
                    f"events are landed in {self.path} already",
                    hint="`tidemark up` does so too. Stop that process first.",
                ) from error
            self._require_same()
            if not (self.path / MANIFEST).exists():
                with replace_durably(self.path / MANIFEST, _REFUSALS) as file:
                    file.write(msgspec.json.format(msgspec.json.encode(self._manifest)) + b"\n")
            with refusals_told(self.path, _REFUSALS):
                for left in self.path.glob(f"*{UNFINISHED_SUFFIX}"):
                    left.unlink()
            yield

    @contextmanager
    def attached(self) -> Iterator[None]:
        """For reading, also while another process writes."""
        self._require_same()
        yield

    def name_of(self, block: Block) -> str:
        return block.name

    def blocks(self) -> list[Landed]:
        """All there are, in order. Raises `LandingError` if one is missing or is no block."""
        found: list[Landed] = []
        for name in self._names():
            block = Block.of_name(name)
            if block is None:
                continue
            expected = self.schedule.block_of(found[-1].block.last + 1 if found else 1)
            if block != expected:
                raise _mismatch(f"{self.path} has {name} where {expected.name} should be")
            if found and not found[-1].is_whole:
                raise _mismatch(f"{self.path}: {found[-1].block.name} is not whole, and not last")
            with self.opened(block) as file:
                found.append(file.landed)
        return found

    def write(self, block: Block, batches: Iterable[pa.RecordBatch], last_sequence: int) -> None:
        """Put a block in its place, durably. `batches` are its events up to a sequence."""
        hashed = ContentHash()
        with replace_durably(self.path / block.name, _REFUSALS) as file:
            with pq.ParquetWriter(file, LANDED_SCHEMA, compression="zstd") as writer:
                for batch in batches:
                    hashed.add(batch)
                    writer.write_batch(batch)
                crash_point("landing.block_begun")
                writer.add_key_value_metadata(
                    {_LAST: str(last_sequence).encode(), _HASH: hashed.hexdigest().encode()}
                )
            crash_point("landing.block_written")
        crash_point("landing.block_landed")

    @contextmanager
    def opened(self, block: Block) -> Iterator[OpenBlock]:
        """A block to read. It stays what it is while it is open, also if another takes its place.

        Raises `LandingError` for what is no block, then or while it is read.
        """
        path = self.path / block.name
        try:
            with pq.ParquetFile(path) as file:
                yield _OpenFile(block, file, path)
        except (OSError, pa.ArrowException) as error:
            raise _mismatch(f"{path} cannot be read: {_first_line(error)}") from error

    def _require_same(self) -> None:
        path = self.path / MANIFEST
        if not path.exists():
            if any(Block.of_name(name) for name in self._names()):
                raise _mismatch(f"{self.path} holds blocks and no {MANIFEST}")
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise _mismatch(f"{path} cannot be read: {_first_line(error)}") from error
        if found.ledger_id != self._manifest.ledger_id:
            raise _mismatch(
                f"{self.path} holds events of the ledger {found.ledger_id}, and this is"
                f" {self._manifest.ledger_id}"
            )
        if found != self._manifest:
            raise _mismatch(
                f"{self.path} has blocks of {found.block_events:,} events, and"
                f" {self._manifest.block_events:,} are configured"
            )

    def _names(self) -> list[str]:
        with refusals_told(self.path, _REFUSALS):
            return sorted(os.listdir(self.path)) if self.path.is_dir() else []


def _mismatch(message: str) -> LandingError:
    return LandingError(
        message,
        hint="Move that directory away, or set landing.parquet.path to another one; all blocks are"
        " then landed anew from the ledger.",
        field="landing.parquet",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
