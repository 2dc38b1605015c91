"""What every place is that events are landed in: blocks, each there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from tidemark.pipeline.landing.blocks import Block, Schedule


class Landed(msgspec.Struct, frozen=True):
    """A block as the place says it is; the hash only where one is kept with it."""

    block: Block
    last_sequence: int
    content_hash: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.last_sequence == self.block.last


class OpenBlock(Protocol):
    """A block that is being read: its events up to `landed.last_sequence` stay what they are."""

    landed: Landed

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its events as they stand there."""

    def last_row(self) -> tuple[Any, ...] | None:
        """What the last of its events says."""


class LandingTarget(Protocol):
    """The blocks of one ledger in one place.

    All but `held` and `attached` is for who is within one of the two. Everything may raise
    `LandingUnavailable`, and `LandingError` where what is there cannot be a block of this ledger.
    """

    name: str
    """As the configuration calls it."""
    place: str
    """Where it is, for people; without a password."""
    schedule: Schedule

    def held(self) -> AbstractContextManager[None]:
        """For writing: nobody else may, and what a crash has left is removed.

        Raises `LandingRunning`, and `LandingError` if what is there is of another ledger or has
        other blocks.
        """

    def attached(self) -> AbstractContextManager[None]:
        """For reading. Raises `LandingError` as `held` does."""

    def name_of(self, block: Block) -> str:
        """What people know the block by there."""

    def blocks(self) -> list[Landed]:
        """All there are, in order. Raises `LandingError` if one is missing or is no block."""

    def write(self, block: Block, batches: Iterable[pa.RecordBatch], last_sequence: int) -> None:
        """Put a block in its place, durably. `batches` are its events up to a sequence."""

    def opened(self, block: Block) -> AbstractContextManager[OpenBlock]:
        """A block to read. Raises `LandingError` for what is no block, then or while it is read."""
