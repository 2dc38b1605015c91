"""From the ledger into the directory of blocks, as the ledger grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from tidemark.pipeline.landing.blocks import Block
from tidemark.pipeline.landing.parquet import ParquetDirectory
from tidemark.pipeline.landing.rows import landed
from tidemark.pipeline.output.errors import LedgerRewound
from tidemark.pipeline.source.database import LedgerDatabase, events_missing

_ROWS_AT_ONCE: Final = 32_768


class Lander:
    """Lands what a ledger has. Made once the directory is held."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory
        self.last_sequence = directory.last_sequence()

    def catch_up(
        self,
        database: LedgerDatabase,
        *,
        only_whole: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Lands up to the end of the ledger; with `only_whole`, not a block that may still grow.

        `on_progress` is told the last sequence landed and the last there is. Raises `LedgerRewound`
        if there are fewer events than were landed.
        """
        upto = database.head().ingress_sequence
        if upto < self.last_sequence:
            raise LedgerRewound(
                f"{self._directory.path} holds {self.last_sequence:,} events, and the ledger ends"
                f" at {upto:,}",
                hint="The ledger was restored from an old backup. Restore the newer one, or move"
                " that directory away to have all blocks landed anew.",
            )
        for block in self._directory.schedule.blocks(self.last_sequence, upto):
            last = min(block.last, upto)
            if stopped() or (only_whole and last < block.last):
                return
            self._directory.write(block, events_of(database, block, last), last)
            self.last_sequence = last
            on_progress(last, upto)


def events_of(database: LedgerDatabase, block: Block, last: int) -> Iterator[pa.RecordBatch]:
    """The events of a block up to a sequence, as they are landed."""
    position = block.first - 1
    while position < last:
        reach = min(position + _ROWS_AT_ONCE, last)
        batch = landed(database.events(position, reach, None))
        if batch.num_rows != reach - position:
            raise events_missing(position + 1, reach)
        yield batch
        position = reach
