"""Long work shown stage after stage, with the rate of each."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.cli.progress import Progress
from tidemark.clock import MICROS_PER_SECOND, Clock


class Stages:
    """`names` has for each stage what is done in it, and what is counted."""

    def __init__(
        self, progress: Progress, clock: Clock, names: Mapping[str, tuple[str, str]]
    ) -> None:
        self._progress = progress
        self._clock = clock
        self._names = names
        self._stage = ""
        self._began_us = 0

    def take(self, stage: str, done: int, total: int | None) -> None:
        label, noun = self._names[stage]
        now_us = self._clock.elapsed_us()
        if stage != self._stage:
            self._stage, self._began_us = stage, now_us
            self._progress.begin(label, total)
        seconds = (now_us - self._began_us) / MICROS_PER_SECOND
        rate = f", {done / seconds:,.0f}/s" if seconds and done else ""
        of = "" if total is None else f" of {total:,}"
        self._progress.update(done, f"{done:,}{of} {noun}{rate}")
