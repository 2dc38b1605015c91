"""Long work in a thread of its own, so that a signal is heard at any moment of it.

What talks to Spark cannot be interrupted in the middle of a word: it is told to stop, is given some
seconds to do so in order, and is left behind if it does not. Java ends with this process anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from tidemark.cli.stopping import told_again

STOP_WITHIN_S: Final = 5.0
_POLL_S: Final = 0.5

T = TypeVar("T")


def run_beside(work: Callable[[threading.Event], T]) -> T:
    """What `work` returns or raises. It is given the event that tells it to stop.

    An interrupt is raised on when the work has stopped. One that was swallowed, before or here, is
    raised here.
    """
    told_again()
    stop, done = threading.Event(), threading.Event()
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="work", daemon=True).start()
    try:
        while not done.wait(_POLL_S):
            told_again()
    except BaseException:
        stop.set()
        done.wait(STOP_WITHIN_S)
        raise
    if failures:
        raise failures[0]
    return results[0]
