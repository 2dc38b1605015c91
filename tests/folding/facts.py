"""Facts of a meter from a plain ledger, made without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.reference.definitions import Meter
from tests.reference.facts import group_value
from tests.reference.history import Commit, Event
from tests.reference.periods import period_of
from tidemark.pipeline.definitions import MeterDefinition

FACTS = pa.schema(
    [
        ("ingress_sequence", pa.int64()),
        ("received_at", pa.int64()),
        ("previous_received_at", pa.int64()),
        ("idempotency_key", pa.string()),
        ("target_key", pa.string()),
        ("tenant_id", pa.string()),
        ("customer_ref", pa.string()),
        ("kind", pa.string()),
        ("groups", pa.list_(pa.string())),
        ("period_start", pa.int64()),
        ("period_end", pa.int64()),
        ("ts", pa.int64()),
        ("value", pa.decimal128(28, 9)),
        ("reason", pa.string()),
    ]
)


def definition_of(meter: Meter) -> MeterDefinition:
    """The product's definition of the same meter."""
    return MeterDefinition(
        name=meter.name,
        metric=meter.metric,
        aggregate=meter.aggregate,
        period=meter.period,
        timezone=meter.zone,
        lateness_us=meter.lateness_us,
        close_after_us=meter.close_after_us,
        group_by=meter.group_by,
        where=None if meter.where is None else meter.where.text,
        value=meter.value.text,
    )


def facts_of(commits: Sequence[Commit], meter: Meter, *, whole: bool = False) -> pa.Table:
    """The facts of all commits; with `whole`, also the events that are none."""
    rows: list[tuple[Any, ...]] = []
    previous: int | None = None
    for received_at, events in commits:
        for event in events:
            if event["metric"] != meter.metric or event["control"] == "end":
                continue
            content = _content(event, meter)
            if content is None and event["control"] is None and not whole:
                continue
            rows.append(
                (
                    event["seq"],
                    received_at,
                    previous,
                    event["key"],
                    event.get("target"),
                    event["tenant_id"],
                    event["customer_ref"],
                    event["control"] or "fact",
                    *(content or ([], *(None,) * 4)),
                    event.get("reason"),
                )
            )
        previous = received_at
    columns = list(zip(*rows, strict=True)) or [()] * len(FACTS)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, FACTS, strict=True)], schema=FACTS
    )


def _content(event: Event, meter: Meter) -> tuple[Any, ...] | None:
    if event["control"] == "void":
        return None
    if event["control"] == "adjust":
        ts = event["period_start"]
        groups: list[str | None] = [None] * len(meter.group_by)
        value = event["quantity"]
    else:
        if event["control"] == "amend":
            event = {**event, **event["event"]}  # type: ignore[typeddict-item]
        if meter.where is not None and meter.where.holds(event) is not True:
            return None
        ts = event["ts"]
        groups = [group_value(event["meta"], name) for name in meter.group_by]
        value = meter.value.of(event)
    if value is None:
        return None
    start, end = period_of(ts, meter.period, meter.zone)
    return groups, start, end, ts, Decimal(value)
