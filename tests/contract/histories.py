"""Histories for the tests of the import, and a run of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.contract.events import HOUR, SECOND, START
from tests.contract.stores import Ledger, all_commits, all_events
from tidemark.config.model import Config
from tidemark.event_files import EventLine
from tidemark.ingress.decoder import Decoder
from tidemark.ledger.importer import ImportReport, Progress, import_history
from tidemark.ledger.port import CommitRow, EventRow, LedgerStore
from tidemark.timestamps import format_timestamp

SALT: Final = "pepper"
# When the imports of the tests are run: after every history.
NOW: Final = START + 1000 * HOUR
CONFIG: Final = Config.model_validate(
    {
        "streams": {
            "usage": {"kind": "usage"},
            "notes": {"fields": {"text": "string"}},
        }
    }
)

Event = dict[str, Any]


def at(seconds: float) -> str:
    """A time so many seconds after the tests begin."""
    return format_timestamp(START + round(seconds * SECOND))


def usage(
    key: str | None, received: float, *, occurred: float | None = None, **fields: Any
) -> Event:
    """A usage event; by default it occurred a second before it was received."""
    event = {
        "receivedAt": at(received),
        "tenantId": "acme",
        "metric": "api_calls",
        "customerRef": "c1",
        "ts": at(received - 1 if occurred is None else occurred),
        "quantity": 1,
        "idempotencyKey": key,
    }
    return event | fields


def note(key: str, received: float, text: str = "", **fields: Any) -> Event:
    """An event of a stream, without a time of its own unless one is given."""
    event = {
        "receivedAt": at(received),
        "stream": "notes",
        "tenantId": "acme",
        "idempotencyKey": key,
        "data": {"text": text},
    }
    return event | fields


def void(target: str, received: float, **fields: Any) -> Event:
    event = {"receivedAt": at(received), "control": "void", "tenantId": "acme", "target": target}
    return event | fields


def amend(target: str, received: float, quantity: int, **fields: Any) -> Event:
    changed = {"ts": at(received - 1), "quantity": quantity}
    return void(target, received, control="amend", event=changed, **fields)


def lines_of(history: Sequence[Event]) -> list[EventLine]:
    return [
        EventLine(number, json.dumps(event).encode(), None, "history.jsonl")
        for number, event in enumerate(history, 1)
    ]


async def run_import(
    ledger: Ledger | LedgerStore,
    history: Sequence[Event] | Iterable[EventLine],
    work_dir: Path,
    *,
    progress: list[Progress] | None = None,
    **options: Any,
) -> ImportReport:
    lines = history
    if isinstance(history, list) and history and isinstance(history[0], dict):
        lines = lines_of(history)
    return await import_history(
        ledger,
        Decoder(CONFIG, ledger.salt),
        lines,  # type: ignore[arg-type]
        work_dir=work_dir,
        now_us=options.pop("now_us", NOW),
        on_progress=(progress if progress is not None else []).append,
        **options,
    )


async def contents(ledger: Ledger) -> tuple[list[EventRow], list[CommitRow]]:
    return await all_events(ledger), await all_commits(ledger)
