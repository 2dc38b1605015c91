"""Files that are there whole or not at all, also after a loss of power."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tidemark.errors import TidemarkError

# A file under this name is being written, or was when its process died.
UNFINISHED_SUFFIX: Final = ".unfinished"
# What the system refuses now and may grant later.
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})


class OrderedOutputError(TidemarkError):
    """The files of an ordered output cannot be written, or are not those that were."""

    code = "ordered_output"


class OrderedOutputUnavailable(OrderedOutputError):
    """The disk is full or does not answer. Trying again later may help."""

    code = "ordered_output_unavailable"


class Refusals(NamedTuple):
    """The errors by which it is told that the system refuses something: for good, and for now."""

    for_good: type[TidemarkError]
    for_now: type[TidemarkError]


OF_ORDERED_OUTPUT: Final = Refusals(OrderedOutputError, OrderedOutputUnavailable)


@contextmanager
def refusals_told(path: Path, told: Refusals = OF_ORDERED_OUTPUT) -> Iterator[None]:
    """Says of what the system refuses which path it was, and what to do."""
    try:
        yield
    except OSError as error:
        passes = error.errno in _PASSING
        raise (told.for_now if passes else told.for_good)(
            f"{path} cannot be written: {error.strerror or error}",
            hint="See that the directory can be written to and that the disk has room.",
        ) from error


@contextmanager
def replace_durably(path: Path, told: Refusals = OF_ORDERED_OUTPUT) -> Iterator[BinaryIO]:
    """A file to write to that stands at `path` once the block is left, and is durable then."""
    # Hidden from those who read whole directories.
    unfinished = path.with_name(f".{path.name}{UNFINISHED_SUFFIX}")
    with refusals_told(path, told):
        make_directory(path.parent)
        with open(unfinished, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
