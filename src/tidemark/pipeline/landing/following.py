"""From the ledger into a place of blocks, as the ledger grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from tidemark.pipeline.landing.blocks import Block
from tidemark.pipeline.landing.rows import landed, rows_of
from tidemark.pipeline.landing.target import LandingTarget
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.source.database import KnownPlaces, LedgerDatabase, events_missing

_ROWS_AT_ONCE: Final = 32_768
_NO_PLACES: Final = KnownPlaces((), 0)


class _NotMirrored(Exception):
    """It is not known where events are in Kafka, and will be."""


class Lander:
    """Lands what a ledger has. Made once the target is held, and for each connection anew.

    Raises `LedgerRewound` if the ledger is not the one that was landed: it has fewer events, or
    another one in the place of the last.
    """

    def __init__(
        self, target: LandingTarget, database: LedgerDatabase, *, after_mirror: bool = False
    ) -> None:
        """With `after_mirror` an event is landed once it is known where it is in Kafka."""
        self._target = target
        self._database = database
        self._after_mirror = after_mirror
        blocks = target.blocks()
        self.last_sequence = blocks[-1].last_sequence if blocks else 0
        if blocks:
            self._require_same(blocks[-1].block)

    def catch_up(
        self,
        *,
        only_whole: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Lands up to the end of the ledger; with `only_whole`, not a block that may still grow.

        `on_progress` is told the last sequence landed and the last there is.
        """
        upto = self.head()
        if self._after_mirror:
            upto = min(upto, max(self.last_sequence, self.mirrored_upto()))
        for block in self._target.schedule.blocks(self.last_sequence, upto):
            last = min(block.last, upto)
            if stopped() or (only_whole and last < block.last):
                return
            events = events_of(
                self._database, block, last, with_places=True, once_mirrored=self._after_mirror
            )
            try:
                self._target.write(block, events, last)
            except _NotMirrored:
                # All is mirrored anew since it was looked how far the mirror is.
                return
            self.last_sequence = last
            on_progress(last, upto)

    def mirrored_upto(self) -> int:
        """The last event of which it is known where the mirror has put it."""
        return self._database.mirrored_upto()

    def head(self) -> int:
        """The last event there is."""
        head = self._database.head().ingress_sequence
        if head < self.last_sequence:
            raise _rewound(
                f"{self._target.place} holds {self.last_sequence:,} events, and the ledger ends"
                f" at {head:,}"
            )
        return head

    def _require_same(self, block: Block) -> None:
        """What a ledger holds after it was restored is of a later time, so its last event tells."""
        self.head()
        last = self.last_sequence
        with self._target.opened(block) as file:
            found = file.last_row()
        [expected] = rows_of(landed(self._database.events(last - 1, last, None)))
        if found != expected:
            raise _rewound(
                f"the last event in {self._target.place}, {last:,}, is another one in this ledger"
            )


def events_of(
    database: LedgerDatabase,
    block: Block,
    last: int,
    *,
    with_places: bool = False,
    once_mirrored: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The events of a block up to a sequence, as they are landed."""
    position = block.first - 1
    while position < last:
        reach = min(position + _ROWS_AT_ONCE, last)
        places = database.places(position, reach) if with_places else _NO_PLACES
        # An event up to there that has no place gets none any more: its topic has forgotten it.
        if with_places and once_mirrored and places.upto < reach:
            raise _NotMirrored
        batch = landed(database.events(position, reach, None), places.placed)
        if batch.num_rows != reach - position:
            raise events_missing(position + 1, reach)
        yield batch
        position = reach


def _rewound(message: str) -> LedgerRewound:
    return LedgerRewound(
        message,
        hint="The ledger was restored from an old backup. Restore the newer one, or move what"
        " is landed there away to have all blocks landed anew.",
    )
