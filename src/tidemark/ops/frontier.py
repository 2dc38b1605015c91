"""How far the pipeline has come: who waits for it, and how far behind the ledger it is."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import RequestError
from tidemark.ledger.port import LedgerStore
from tidemark.ledger.sequencer import Head
from tidemark.ops.lag import Lags
from tidemark.ops.opened_views import RETRY_AFTER_S, OpenedViews
from tidemark.pipeline.output.batch import Frontier

# However many wait, the views are asked no more often than this.
LOOK_EVERY_S: Final = 0.05


class Progress(msgspec.Struct, frozen=True):
    """Where the views stand, and what of the ledger is not in them.

    `lag_seconds` is how long the oldest commit that is not in the views has waited.
    """

    frontier: Frontier | None
    lag_events: int
    lag_seconds: float

    @property
    def sequence(self) -> int:
        return sequence_of_frontier(self.frontier)


class FrontierWatch:
    """Looks at the frontier, for everyone who asks at once."""

    def __init__(self, views: OpenedViews, ledger: LedgerStore, clock: Clock) -> None:
        self._views = views
        self._ledger = ledger
        self._clock = clock
        self._lags = Lags(ledger, clock)
        self._seen: Frontier | None = None
        self._moved_us: int | None = None
        self._look: asyncio.Task[Frontier | None] | None = None
        self._next_look_us = 0
        self._ended = False

    def end_waiting(self) -> None:
        """Let nobody wait any longer."""
        self._ended = True

    async def close(self) -> None:
        """Ask the views no more, so that they can be closed."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def look(self) -> Frontier | None:
        """The frontier; one question to the store is the answer for all who ask meanwhile."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._ask())
            # Whoever asked may have gone by the time it fails.
            self._look.add_done_callback(lambda look: look.cancelled() or look.exception())
        return await asyncio.shield(self._look)

    async def wait_for(self, sequence: int, timeout_us: int) -> None:
        """Return when the views hold everything up to `sequence`.

        Raises `not_yet_folded` when that takes too long, and `unknown_sequence` at once if no event
        has it: nothing says that one ever will.
        """
        deadline_us = self._clock.elapsed_us() + timeout_us
        reached = sequence_of_frontier(await self.look())
        if reached >= sequence:
            return
        last_sequence = (await self._ledger.head()).last_sequence
        if sequence > last_sequence:
            raise RequestError(
                f"no event has the sequence {sequence}: the last one has {last_sequence}",
                status=404,
                code="unknown_sequence",
                field="minSequence",
                hint="Send an ingressSequence that this ledger has answered with.",
            )
        while reached < sequence:
            if self._ended or self._clock.elapsed_us() >= deadline_us:
                raise RequestError(
                    f"the views do not hold sequence {sequence} yet: they are at {reached}",
                    status=504,
                    code="not_yet_folded",
                    field="minSequence",
                    hint="Ask again, or leave minSequence out to see what is there. If the frontier"
                    " stands still, see whether the pipeline runs.",
                    retry_after_s=RETRY_AFTER_S,
                )
            reached = sequence_of_frontier(await self.look())

    @property
    def unmoved_us(self) -> int:
        """For how long the frontier is known to have been where it is."""
        return 0 if self._moved_us is None else self._clock.elapsed_us() - self._moved_us

    async def progress(self) -> Progress:
        """Where the views stand against the ledger."""
        frontier = await self.look()
        return await self.behind(frontier, await self._ledger.head())

    async def behind(self, frontier: Frontier | None, head: Head) -> Progress:
        """What a head of the ledger, read after this frontier, is ahead of it."""
        after = 0 if frontier is None else frontier.received_at
        lag = await self._lags.of_commits(head, sequence_of_frontier(frontier), after)
        return Progress(frontier, lag.events, lag.seconds)

    async def _ask(self) -> Frontier | None:
        early_us = self._next_look_us - self._clock.elapsed_us()
        if early_us > 0:
            await asyncio.sleep(early_us / MICROS_PER_SECOND)
        frontier = await (await self._views.store()).frontier()
        now_us = self._clock.elapsed_us()
        if self._moved_us is None or frontier != self._seen:
            self._seen, self._moved_us = frontier, now_us
        self._next_look_us = now_us + int(LOOK_EVERY_S * MICROS_PER_SECOND)
        return frontier


def sequence_of_frontier(frontier: Frontier | None) -> int:
    """The last sequence in the views, 0 before the first."""
    return 0 if frontier is None else frontier.ingress_sequence
