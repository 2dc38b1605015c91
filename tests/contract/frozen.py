"""A PostgreSQL that hangs: it is there, it takes connections, and it never answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.services.postgres import PostgresServer
from tests.services.processes import children_of


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Every process of the server stands still inside this block."""
    [(directory,)] = server.execute("SHOW data_directory")
    first = int((Path(directory) / "postmaster.pid").read_text().split()[0])
    os.kill(first, signal.SIGSTOP)
    family = [first, *children_of(first)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
