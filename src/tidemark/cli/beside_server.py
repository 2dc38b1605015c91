"""How a command runs as a child of `tidemark up`: what it says stands in the log of both."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemark.cli.logs import log_to_stderr
from tidemark.cli.outcome import ExitCode, Terminated, exit_code_of
from tidemark.errors import TidemarkError

log = logging.getLogger(__name__)


def run_as_child(
    name: str, work: Callable[[], object], *, on_stop: Callable[[], None] = lambda: None
) -> int:
    """The exit code of work that goes on until it is stopped, or fails."""
    log_to_stderr()
    try:
        work()
    except (KeyboardInterrupt, Terminated):
        on_stop()
    except TidemarkError as error:
        field = f" ({error.field})" if error.field else ""
        log.error("%s stopped: %s%s. %s", name, error.message, field, error.hint)
        return exit_code_of(error)
    return ExitCode.OK
