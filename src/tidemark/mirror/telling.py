"""What the ledger is told of the mirror, for those who answer for it: how far it is, or why not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import LedgerUnavailable, TidemarkError
from tidemark.ledger.port import TELL_EVERY_US, CopyState, LedgerStore
from tidemark.mirror.errors import MirrorFenced, MirrorUnavailable

MIRROR: Final = "mirror"
SLOW_AFTER_US: Final = 5 * MICROS_PER_SECOND


class MirrorTeller:
    """Tells about once a second, also while the mirror waits for brokers that do not answer.

    Its coroutines run where the ledger lives, everything else in the thread of the mirror.
    """

    def __init__(self, ledger: LedgerStore, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._told_us: int | None = None
        self._step: tuple[str, int] | None = None
        # What is told last is what is so last.
        self._turn = asyncio.Lock()

    @property
    def is_due(self) -> bool:
        """Whether it is time to tell how far the mirror is."""
        told_us = self._told_us
        return told_us is None or self._clock.elapsed_us() - told_us >= TELL_EVERY_US

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Something that waits for the brokers, and is told of if it takes long."""
        self._step = what, self._clock.elapsed_us()
        try:
            yield
        finally:
            self._step = None

    async def reached(self, last_sequence: int, received_at: int) -> None:
        """All is well, and everything up to here is in Kafka."""
        async with self._turn:
            self._told_us = self._clock.elapsed_us()
            now_us = self._clock.wall_us()
            await self._ledger.tell_copy(CopyState(MIRROR, last_sequence, received_at, now_us))

    async def failed(self, error: TidemarkError) -> None:
        """What is wrong. How far the mirror was stays as it was said last."""
        async with self._turn:
            await self._tell_wrong(error)

    async def keep_telling(self) -> None:
        """For ever: which step takes long."""
        while True:
            await asyncio.sleep(TELL_EVERY_US / MICROS_PER_SECOND)
            async with self._turn:
                # Read once: it ends in another thread.
                if (step := self._step) is None:
                    continue
                what, began_us = step
                took_us = self._clock.elapsed_us() - began_us
                if took_us < SLOW_AFTER_US:
                    continue
                slow = MirrorUnavailable(
                    f"{what} has taken {took_us // MICROS_PER_SECOND} s so far",
                    hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by"
                    " itself.",
                    field="mirror.bootstrap_servers",
                )
                await self._tell_wrong(slow)

    async def _tell_wrong(self, error: TidemarkError) -> None:
        # Another mirror tells of itself.
        if isinstance(error, MirrorFenced | LedgerUnavailable):
            return
        # The mirror goes on whether this is heard or not.
        with contextlib.suppress(TidemarkError):
            said = (await self._ledger.copies()).get(MIRROR)
            last_sequence, received_at = (
                (0, 0) if said is None else (said.last_sequence, said.received_at)
            )
            now_us = self._clock.wall_us()
            state = CopyState(MIRROR, last_sequence, received_at, now_us, error)
            await self._ledger.tell_copy(state)
