"""Disks that are really full: a small file system where one can be mounted, and everywhere a limit
on the size of files that the kernel holds processes to.

Either way the write itself fails, in the process under test, in the middle of whatever it does.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.services.processes import is_running

KIB: Final = 1024
MIB: Final = 1024 * KIB
STEP: Final = 32 * KIB


class SmallDisk(ABC):
    """A directory on which room can run out."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def fill(self, writers: Iterable[int], leave: int) -> None:
        """From now on there is room for `leave` bytes more, for these processes at least."""

    @abstractmethod
    def free(self, writers: Iterable[int]) -> None:
        """There is room again."""


class SmallFileSystem(SmallDisk):
    """A file system of a few MiB; what fills it is a file that nobody needs."""

    def fill(self, writers: Iterable[int], leave: int) -> None:
        # In steps, because the processes under test write at the same time.
        with self._ballast.open("wb") as ballast, contextlib.suppress(OSError):
            while self._room() > leave:
                ballast.write(bytes(STEP))
                ballast.flush()

    def free(self, writers: Iterable[int]) -> None:
        self._ballast.unlink()

    def _room(self) -> int:
        state = os.statvfs(self.directory)
        return state.f_bavail * state.f_frsize

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"


class FileSizeLimit(SmallDisk):
    """No file may grow further than the largest one is now, and a little."""

    def fill(self, writers: Iterable[int], leave: int) -> None:
        largest = max(path.stat().st_size for path in self._files())
        self._limit(writers, largest + leave)

    def free(self, writers: Iterable[int]) -> None:
        self._limit(writers, resource.RLIM_INFINITY)

    def _files(self) -> Iterator[Path]:
        return (path for path in self.directory.rglob("*") if path.is_file())

    def _limit(self, writers: Iterable[int], size: int) -> None:
        for pid in writers:
            # A process that has ended meanwhile writes nothing.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                _limit_file_size(pid, size)


def _limit_file_size(pid: int, size: int) -> None:
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        soft = hard if size == resource.RLIM_INFINITY else size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    except PermissionError:
        # Root in a container may not limit what another user runs, but that user may.
        soft_text = "unlimited" if size == resource.RLIM_INFINITY else str(size)
        owner = Path(f"/proc/{pid}").stat()
        limited = subprocess.run(
            ["prlimit", f"--pid={pid}", f"--fsize={soft_text}:"],
            check=False,
            capture_output=True,
            user=owner.st_uid,
            group=owner.st_gid,
        )
        if limited.returncode != 0 and is_running(pid):
            raise


def kinds_of_small_disk() -> list[str]:
    """Those that can be had here: never none."""
    return ["file-size-limit", *(["file-system"] if _may_mount() else [])]


@contextlib.contextmanager
def small_disk(kind: str, size: int) -> Iterator[SmallDisk]:
    """A disk for one test. `size` matters to a file system only."""
    with tempfile.TemporaryDirectory(prefix="tidemark-disk-") as place:
        directory = Path(place)
        directory.chmod(0o755)
        if kind == "file-size-limit":
            yield FileSizeLimit(directory)
            return
        _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", place)
        try:
            yield SmallFileSystem(directory)
        finally:
            _run("umount", "--lazy", place)


def _may_mount() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="tidemark-disk-") as place:
        try:
            _run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place)
        except (OSError, subprocess.CalledProcessError):
            return False
        _run("umount", place)
        return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
