"""The ledger as a source of Spark: events and commits as Arrow, as a stream and at rest.

schema → offsets → database (sqlite, postgres) → planning → partitions → datasource → frames, which
is what the rest of the pipeline calls. `failures` brings home the error of a process that Spark
runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.pipeline.source.failures import failure_of
    from tidemark.pipeline.source.frames import ledger_address, ledger_rows, ledger_stream
    from tidemark.pipeline.source.offsets import BEGINNING, Offset

__all__ = [
    "BEGINNING",
    "Offset",
    "failure_of",
    "ledger_address",
    "ledger_rows",
    "ledger_stream",
]

_HOMES = {
    "BEGINNING": "offsets",
    "Offset": "offsets",
    "failure_of": "failures",
    "ledger_address": "frames",
    "ledger_rows": "frames",
    "ledger_stream": "frames",
}


def __getattr__(name: str) -> Any:
    # Each process that Spark runs imports this package before it does anything, and waits for what
    # it imports: so what only the driver needs is imported when it is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
