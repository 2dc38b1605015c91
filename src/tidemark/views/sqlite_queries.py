"""Ends queries that nobody waits for any more, or that take too long."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidemark.views import querying
from tidemark.views.querying import too_slow

# SQLite asks whether to go on after as many steps of its machine, some milliseconds. Each time it
# has to wait until Python lets it, so it must not be often.
STEPS_BETWEEN_LOOKS: Final = 100_000


class RunningQueries:
    """The queries of a store."""

    def __init__(self) -> None:
        self._closing = threading.Event()

    def new(self) -> RunningQuery:
        return RunningQuery(self._closing)

    def end_all(self) -> None:
        """Ends those that run, and those that are begun later."""
        self._closing.set()


class RunningQuery:
    """One query; it is run by one thread and ended by another."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._ended = False

    def end(self) -> None:
        """Nobody wants the answer any more."""
        self._ended = True

    @contextmanager
    def limited(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Statements in the block are interrupted in time. Raises `QueryTooSlow`."""
        deadline = time.monotonic() + querying.QUERY_WITHIN_S

        def must_end() -> bool:
            return self._ended or self._closing.is_set() or time.monotonic() > deadline

        connection.set_progress_handler(must_end, STEPS_BETWEEN_LOOKS)
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT and time.monotonic() > deadline:
                raise too_slow() from error
            raise
        finally:
            connection.set_progress_handler(None, 0)
