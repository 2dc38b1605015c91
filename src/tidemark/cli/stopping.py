"""Being told to stop, which is not forgotten.

A signal becomes an exception wherever the program is just then. Where that is Python called from C,
as it is in many a module while it is loaded, the exception may be swallowed there, and nobody would
know that somebody asked. So it is also remembered, and sent again where it is sure to be heard.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from tidemark.cli.outcome import Terminated

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_told: list[int] = []


def stop_on(signals: Iterable[signal.Signals], exception: Callable[[], BaseException]) -> None:
    """Let each of these signals raise the exception in the main thread."""

    def stop(signum: int, frame: FrameType | None) -> None:
        _told.append(signum)
        raise exception()

    for number in signals:
        signal.signal(number, stop)
    sys.unraisablehook = partial(_leave_out_what_is_sent_again, sys.unraisablehook)


def told_again() -> bool:
    """Whether this program was told to stop. If it was, it is told again now."""
    if _told:
        os.kill(os.getpid(), _told[-1])
    return bool(_told)


def hear_no_more() -> None:
    """What comes now, comes to a program that is leaving anyway."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _leave_out_what_is_sent_again(
    tell: Callable[[UnraisableHookArgs], object], swallowed: UnraisableHookArgs
) -> None:
    if not _told or not isinstance(swallowed.exc_value, Terminated | KeyboardInterrupt):
        tell(swallowed)
