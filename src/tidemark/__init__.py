"""Tidemark: every event has one identity, one place in order, one effect.

The packages are the stages an event passes, in the order in which it passes them. A module may
import from those before it, never from those after it.

    errors, clock, timestamps, cancelling, crash, decimals, canonical, event_files
                    what every stage stands on
    config          one YAML file, checked as a whole
    web             HTTP requests, responses, routes and who may call them
    ingress         HTTP bodies → validated events with an identity, and the answer to each
    ledger          the append-only events and commits, and the sequencer that gives them order
    mirror          every event in Kafka as well, once and in order
    pipeline        Spark: decode, event time, rollups, and what they write
    views           current rows and the change log of what is derived from events
    live            filtered views of rows as they change: GraphQL, triggers, webhooks
    ops             health, metrics, admin API
    app             puts the stages together
    cli, __main__   the command line

    client          for programs that send events; stands on errors, clock and timestamps alone

`Client`, `AsyncClient` and the errors are loaded when first used, so that `import tidemark` costs
nothing to those who need one of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.client import AsyncClient, Client
    from tidemark.errors import ClientError, ConfigError, LedgerError, TidemarkError

    __version__: str

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ConfigError",
    "LedgerError",
    "TidemarkError",
    "__version__",
]

_HOMES = {
    "AsyncClient": "tidemark.client",
    "Client": "tidemark.client",
    "ClientError": "tidemark.errors",
    "ConfigError": "tidemark.errors",
    "LedgerError": "tidemark.errors",
    "TidemarkError": "tidemark.errors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("tidemark")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
