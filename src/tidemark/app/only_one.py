"""A lock by which a process has something for itself, and which goes with the process."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from tidemark.errors import ConfigError, TidemarkError
from tidemark.ledger.sqlite_connection import make_private_directory


@contextlib.contextmanager
def only_one(lock: Path, *, what: str, taken: TidemarkError) -> Iterator[None]:
    """Holds the lock of this name, whose directory is made; raises `taken` if another has it.

    `what` is who cannot write, for the message where the directory cannot be used.
    """
    try:
        make_private_directory(lock.parent)
        file = lock.open("wb")
    except OSError as error:
        raise ConfigError(
            f"{what} cannot write to {lock.parent}: {error.strerror}",
            hint="Set state_dir (TIDEMARK_STATE_DIR) to a directory this user may write to.",
            field="state_dir",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise taken from error
        yield
