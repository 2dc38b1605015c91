"""What the process that leads knows of triggers, told to all others.

Only one process evaluates triggers, and any may be asked how they are. So the one that leads says
it in the store of triggers, and says it again even if nothing changes: silence means that nobody
leads, or that whoever does hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidemark.clock import MICROS_PER_SECOND, Clock
from tidemark.errors import TidemarkError
from tidemark.live.errors import TriggersUnavailable
from tidemark.live.triggers.port import LeaderReport, TriggerStore

LOOK_EVERY_S: Final = 1.0
TELL_AGAIN_US: Final = 10 * MICROS_PER_SECOND
SILENT_AFTER_US: Final = 30 * MICROS_PER_SECOND


class LeaderReports:
    """`own` is what is wrong as far as this process knows; it is told while this process leads."""

    def __init__(
        self, triggers: TriggerStore, clock: Clock, own: Callable[[], TidemarkError | None]
    ) -> None:
        self.heard: TidemarkError | None = None
        self._triggers = triggers
        self._clock = clock
        self._own = own
        self._heard_of_us: int | None = None
        self._heard_at_us = 0

    async def tell(self) -> None:
        """To be run by the process that leads, until it does no more."""
        told, told_at_us = "", None
        while True:
            trouble = self._own()
            said = "" if trouble is None else trouble.message
            now_us = self._clock.elapsed_us()
            if told_at_us is None or said != told or now_us - told_at_us >= TELL_AGAIN_US:
                try:
                    await self._triggers.tell(LeaderReport(self._clock.wall_us(), trouble))
                    told, told_at_us = said, now_us
                except TriggersUnavailable:
                    # Whoever asks cannot read it either, and says that.
                    told_at_us = None
            await asyncio.sleep(LOOK_EVERY_S)

    async def listen(self) -> None:
        """To be run by every process: keeps what was `heard`."""
        while True:
            # What the last leader said before all were stopped is of no interest to the next one.
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self.heard = self.judged(await self._triggers.told())
            except TriggersUnavailable as error:
                self.heard = error

    def judged(self, report: LeaderReport | None) -> TidemarkError | None:
        """What is wrong by the last report there is.

        Its age is measured here, since the clock of whoever told may be another one.
        """
        told_at_us = 0 if report is None else report.told_at
        now_us = self._clock.elapsed_us()
        if told_at_us != self._heard_of_us:
            self._heard_of_us, self._heard_at_us = told_at_us, now_us
        silent_us = now_us - self._heard_at_us
        if silent_us > SILENT_AFTER_US:
            return TidemarkError(
                "no process evaluates triggers: nothing was heard of one for"
                f" {silent_us // MICROS_PER_SECOND} s",
                hint="One that hangs keeps all others from it; the servers' logs say which led.",
            )
        return None if report is None else report.trouble
