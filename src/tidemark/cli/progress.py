"""What long work shows while it goes on: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Protocol

from tidemark.cli.output import is_live, printable, write_note
from tidemark.clock import MICROS_PER_SECOND, Clock

_LINE_EVERY_US = 5 * MICROS_PER_SECOND
_LOGGER = "tidemark"


class Progress(Protocol):
    """Told how far the work is. A bar is to be told often, lines only of what is worth one."""

    is_bar: bool

    def begin(self, label: str, total: int | None) -> None:
        """Another piece of work begins. Without a total nobody knows how much is to come."""

    def update(self, done: int, text: str) -> None:
        """So much of the total is done; the text says it in words."""

    def note(self, text: str) -> None:
        """Say something that stays."""


@contextlib.contextmanager
def show_progress(clock: Clock) -> Iterator[Progress]:
    """Show the progress of work on stderr.

    What any part of Tidemark logs meanwhile, such as that a server is away, is shown too.
    """
    shown = _bar() if is_live(sys.stderr) else contextlib.nullcontext(_Lines(clock))
    with shown as progress, _logged(progress):
        yield progress


class _Lines:
    is_bar = False

    def __init__(self, clock: Clock) -> None:
        self._label = ""
        self._clock = clock
        self._told_us = clock.elapsed_us()

    def begin(self, label: str, total: int | None) -> None:
        self._label = label

    def update(self, done: int, text: str) -> None:
        now_us = self._clock.elapsed_us()
        if now_us - self._told_us >= _LINE_EVERY_US:
            self._told_us = now_us
            write_note(f"{self._label}: {text}")

    def note(self, text: str) -> None:
        write_note(text)


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", markup=False),
    )
    console = Console(stderr=True, highlight=False)
    with RichProgress(*columns, console=console, transient=True) as rich:
        task = rich.add_task("", total=None, text="")

        class Bar:
            is_bar = True

            def begin(self, label: str, total: int | None) -> None:
                rich.reset(task, description=label, total=total, text="")

            def update(self, done: int, text: str) -> None:
                rich.update(task, completed=done, text=printable(text))

            def note(self, text: str) -> None:
                rich.console.print(printable(text), markup=False, soft_wrap=True)

        yield Bar()


@contextlib.contextmanager
def _logged(progress: Progress) -> Iterator[None]:
    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            progress.note(record.getMessage())

    logger, handler = logging.getLogger(_LOGGER), Shown()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
