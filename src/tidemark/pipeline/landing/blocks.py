"""Which events stand together: a fixed number of sequences, once and for all.

Nothing else decides what is in a block, so whoever lands it, and however often, lands the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

_NAME: Final = re.compile(r"events-([0-9]{20})-([0-9]{20})\.parquet").fullmatch


class Block(NamedTuple):
    """The events with sequences from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Names sort as the blocks do."""
        return f"events-{self.first:020}-{self.last:020}.parquet"

    @classmethod
    def of_name(cls, name: str) -> Self | None:
        """The block that a file is named by."""
        match = _NAME(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


class Schedule(NamedTuple):
    """Blocks of so many events, from sequence 1 on."""

    block_events: int

    def block_of(self, sequence: int) -> Block:
        number = (sequence - 1) // self.block_events
        return Block(number * self.block_events + 1, (number + 1) * self.block_events)

    def blocks(self, after: int, upto: int) -> Iterator[Block]:
        """The blocks that hold the sequences in `(after, upto]`, in order."""
        sequence = after + 1
        while sequence <= upto:
            block = self.block_of(sequence)
            yield block
            sequence = block.last + 1
