"""Where tests keep their files: in memory, where the machine has room for that.

Tests kill processes and never the machine, so all that a disk adds is time, most of all to the
databases that they make and remove by the hundred. `TMPDIR` names another place, as ever.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.services.processes import is_running

MEMORY: Final = Path("/dev/shm")
PREFIX: Final = "tidemark-tests-"
GIB: Final = 1024**3
# More than a run of all tests takes at any time, and what its processes need beside it.
FILES_BYTES: Final = 4 * GIB
PROCESSES_BYTES: Final = 10 * GIB


def keep_in_memory() -> None:
    """From now on, where there is room, temporary files of this process and of those that it starts
    are in a directory in memory, until this process ends."""
    if "TMPDIR" in os.environ or not _has_room():
        return
    _remove_left_behind()
    place = MEMORY / f"{PREFIX}{os.getpid()}"
    place.mkdir()
    # Servers that run as others than root have directories of their own in it.
    place.chmod(0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    atexit.register(_remove, place, os.getpid())


def leave_behind() -> None:
    """For whoever wants to look at what has failed, until the next run begins."""
    atexit.unregister(_remove)


def _remove(place: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


def _has_room() -> bool:
    try:
        free_bytes = shutil.disk_usage(MEMORY).free
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    [available_kib] = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    available_bytes = available_kib * 1024
    return free_bytes >= FILES_BYTES and available_bytes >= FILES_BYTES + PROCESSES_BYTES


def _remove_left_behind() -> None:
    for place in MEMORY.glob(f"{PREFIX}*"):
        if not is_running(int(place.name.removeprefix(PREFIX))):
            shutil.rmtree(place, ignore_errors=True)
