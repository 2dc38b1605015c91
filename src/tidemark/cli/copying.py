"""How a command that copies the ledger elsewhere runs: for ever or until all is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tidemark.cli.long_work import run_beside
from tidemark.cli.outcome import Terminated
from tidemark.cli.progress import show_progress
from tidemark.clock import MICROS_PER_SECOND, SystemClock

Told = Callable[[str, int, int], None]
"""Told of a copy how far it is, and how far the ledger is."""

T = TypeVar("T")


def tell_nobody(copy: str, done: int, total: int) -> None:
    """For a copy beside a server, whose progress is seen in its metrics."""


def copy_and_show(
    doing: str, work: Callable[[Told, threading.Event], T | None], *, is_to_end: bool
) -> T | None:
    """What `work` returns, its progress shown meanwhile: None where it was stopped.

    Work that is to end by itself is not over when it is stopped: then the interrupt is raised on.
    """
    clock = SystemClock()
    # Where each copy was, and when: it may go on from what it had long before.
    first: dict[str, tuple[int, int]] = {}
    with show_progress(clock) as progress:
        progress.begin(doing, None)

        def told(copy: str, done: int, total: int) -> None:
            now_us = clock.elapsed_us()
            text = f"{copy}: sequence {done:,} of {total:,}"
            first_done, first_us = first.setdefault(copy, (done, now_us))
            if now_us > first_us:
                rate = (done - first_done) * MICROS_PER_SECOND / (now_us - first_us)
                text += f", {rate:,.0f} events/s"
            progress.update(done, text)

        try:
            return run_beside(lambda stop: work(told, stop))
        except (KeyboardInterrupt, Terminated):
            if is_to_end:
                raise
            return None
