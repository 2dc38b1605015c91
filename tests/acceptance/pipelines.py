"""A ledger and a configuration for tests that run the pipeline as a user does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.acceptance.cli_runs import tidemark
from tests.services.processes import children_of

CONFIG: Final = """
state_dir: state
http: {port: 0}
streams:
  usage: {kind: usage}
  trades:
    identity: [trade_id]
    fields: {trade_id: string, account: string, quantity: decimal, price: decimal}
meters:
  api_calls: {aggregate: sum, period: month, lateness: 1h}
  users: {metric: logins, aggregate: unique, period: month}
views:
  trades:
    stream: trades
    key: [trade_id]
    calculated: {notional: quantity * price}
    deleteWhen: quantity = 0
"""
DAY_COUNT: Final = 3
TOO_MUCH: Final = "9" * 19


def write_config(home: Path, text: str = CONFIG) -> Path:
    path = home / "tidemark.yaml"
    path.write_text(text)
    return path


def history(*, days: Sequence[int] = range(1, DAY_COUNT + 1), customers: int = 3) -> list[Any]:
    """Some days of everything that a pipeline has to do with: late events, corrections, deletes."""
    lines: list[Any] = []
    for day in days:
        at = f"2026-03-{day:02d}T12:00:00"
        for number in range(customers):
            usage = {"tenantId": "acme", "customerRef": f"c-{number}", "receivedAt": f"{at}.1Z"}
            calls = {"metric": "api_calls", "quantity": "1.5"}
            lines.append({**usage, **calls, "ts": f"{at}Z", "idempotencyKey": f"k-{day}-{number}"})
            lines.append({**usage, **calls, "ts": f"2026-03-{day:02d}T06:00:00Z"})
            lines.append({**usage, "metric": "logins", "quantity": number % 2, "ts": f"{at}Z"})
        trade = {"trade_id": f"t-{day}", "account": "A", "quantity": "10", "price": "1.25"}
        event = {"stream": "trades", "tenantId": "acme", "receivedAt": f"{at}.2Z"}
        lines.append({**event, "data": trade, "occurredAt": f"{at}Z"})
        # Its product has more digits than a decimal can hold.
        poison = {**trade, "trade_id": f"p-{day}", "quantity": TOO_MUCH, "price": TOO_MUCH}
        lines.append({**event, "data": poison, "occurredAt": f"{at}Z"})
        lines.append({**usage, **calls, "ts": "2026-03-01T01:00:00Z", "receivedAt": f"{at}.3Z"})
    first, last = min(days), max(days)
    at = f"2026-03-{last:02d}T13:00:00Z"
    correction = {"tenantId": "acme", "receivedAt": at}
    # Keys of our own where times are equal: a derived one sorts differently in each ledger.
    void = {"control": "void", "target": f"k-{first}-0", "idempotencyKey": "void"}
    lines.append({**correction, **void, "reason": "twice"})
    gone = {"trade_id": f"t-{first}", "account": "A", "quantity": "0", "price": "1"}
    event = {"stream": "trades", "tenantId": "acme", "receivedAt": at, "occurredAt": at}
    lines.append({**event, "data": gone, "idempotencyKey": "gone"})
    return lines


def fill_ledger(home: Path, lines: Sequence[Any]) -> None:
    """As `tidemark import` does: the same ledger on every run."""
    path = home / "history.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = tidemark("import", path, cwd=home)
    assert ran.code == 0, ran.out + ran.err


def java_of(pid: int) -> list[int]:
    """The Java processes that a process has started."""
    return [child for child in children_of(pid) if _is_java(child)]


def _is_java(pid: int) -> bool:
    try:
        return b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
