"""Meters of whose usage the HTTP API is asked, and what its tests say and read."""

from __future__ import annotations

import itertools
from typing import Any, Final

from tests.integration.filled_views import FilledViews, MeterRow, counters
from tests.integration.http_client import Api, usage
from tests.services.http_calls import Answer

USAGE, ADJUSTMENTS, ERRORS = "/v1/usage", "/v1/adjustments", "/admin/pipeline-errors"

CONFIG: Final = """
streams:
  usage:
    kind: usage
    fields:
      region: {type: string, required: false}
meters:
  bytes_day: {metric: bytes, period: day, timezone: America/New_York, closeAfter: 1d}
  bytes_month: {metric: bytes}
  seats: {aggregate: max, group_by: [region]}
"""
JANUARY, FEBRUARY = "2025-01-01T00:00:00Z", "2025-02-01T00:00:00Z"

_customers = itertools.count(1)


def commit(api: Api, views: FilledViews, *rows: MeterRow, **more: Any) -> int:
    """Take the views to an event that is sent for it."""
    api.accept(usage(api.tenant, customerRef=f"filler-{next(_customers)}"))
    return views.commit(*rows, **more)


def row(
    api: Api, meter: str, customer: str, start: str, amount: str = "1", **more: Any
) -> MeterRow:
    groups = more.pop("groups", ())
    return MeterRow(meter, api.tenant, customer, start, counters(amount, **more), groups)


def entries(answer: Answer, name: str = "usage") -> list[dict[str, Any]]:
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json[name]
    return found


def late(api: Api, sequence: int, **fields: Any) -> dict[str, Any]:
    return {
        "ingress_sequence": sequence,
        "view": "bytes_month",
        "tenant_id": api.tenant,
        "metric": "bytes",
        "customer_ref": "x",
        "period_start": JANUARY,
        "amount": "1.50",
        "idempotency_key": f"key-{sequence}",
        **fields,
    }
