"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from tests.services.postgres import PostgresServer

POSTGRES_SETTINGS: Final = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "jit",
)
FLUSHES: Final = 100
PAGE_BYTES: Final = 8192


class Machine(msgspec.Struct, frozen=True):
    """The machine and the database, and how busy it was with other things when the run began."""

    measured_at: str
    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    disk: str
    flush_ms: float
    load_average: float
    postgres: dict[str, str]


def describe_machine(postgres: PostgresServer) -> Machine:
    settings = {name: str(postgres.execute(f"SHOW {name}")[0][0]) for name in POSTGRES_SETTINGS}
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=pages / 2**30,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        disk=_filesystem(Path(tempfile.gettempdir())),
        flush_ms=_flush_ms(),
        load_average=os.getloadavg()[0],
        postgres=settings,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(path: Path) -> str:
    """The kind of file system under a path: on `tmpfs` a flush would cost nothing."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        if path.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _flush_ms() -> float:
    """The median time to write a page and have it on the disk."""
    took = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(FLUSHES):
            began = time.perf_counter()
            file.write(bytes(PAGE_BYTES))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took) * 1000
