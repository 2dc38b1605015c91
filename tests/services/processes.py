"""What runs on this machine, for tests that kill processes and must know that they are gone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PROC = Path("/proc")


def children_of(parent: int) -> list[int]:
    """The direct children of a process."""
    return [pid for pid, (ppid, _) in _table().items() if ppid == parent]


def is_running(pid: int) -> bool:
    """Whether a process still does anything; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    entry = _table().get(pid)
    return entry is not None and entry[1] not in ("Z", "X")


def resident_bytes(pid: int) -> int:
    """How much memory a process has."""
    statm = PROC / str(pid) / "statm"
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    return int(said.stdout) * 1024


def processor_seconds(pid: int) -> float:
    """How long a process has been at work."""
    stat = PROC / str(pid) / "stat"
    if stat.exists():
        user, system = stat.read_text(errors="replace").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    said = subprocess.run(
        ["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True
    )
    seconds = 0.0
    for part in said.stdout.strip().replace("-", ":").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds


def _table() -> dict[int, tuple[int, str]]:
    """Process → (parent, state)."""
    if (PROC / "self" / "stat").exists():
        return _table_from_proc()
    said = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in said.stdout.splitlines())
    return {int(pid): (int(ppid), state[:1]) for pid, ppid, state in rows}


def _table_from_proc() -> dict[int, tuple[int, str]]:
    table = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            # The name stands in parentheses and may hold any character, so count from its end.
            state, parent = stat.rpartition(")")[2].split()[:2]
            table[int(entry.name)] = (int(parent), state)
    return table
