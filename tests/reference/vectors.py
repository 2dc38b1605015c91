"""The shared vector files, read into the shapes of the reference."""

from __future__ import annotations

from typing import Any

from tests.reference.definitions import Meter
from tests.reference.eventtime import EventTime
from tests.reference.history import Commit, Content, Event
from tests.reference.instants import parse_instant
from tests.reference.periods import HOUR_US

# The meters of the vectors know no close, so any increasing times will do.
FIRST_RECEIVED_AT = parse_instant("2025-11-15T00:00:00Z")


def meter_case(case: dict[str, Any]) -> tuple[list[Commit], Meter]:
    """The ledger and the meter of a case of meters.json."""
    commits: list[Commit] = []
    known: dict[str, Event] = {}
    seq = 0
    for number, entries in enumerate(case["commits"]):
        received_at = FIRST_RECEIVED_AT + number
        events: list[Event] = []
        for entry in entries:
            seq += 1
            event = _usage_event(entry, seq, received_at)
            if event["control"] is not None:
                original = known[entry["target"]]
                event["metric"] = original["metric"]
                event["customer_ref"] = original["customer_ref"]
            known[event["key"]] = event
            events.append(event)
        commits.append((received_at, events))
    metrics = {event["metric"] for event in known.values()}
    (metric,) = metrics
    meter = Meter(
        name="vector",
        metric=str(metric),
        period=case["period"],
        lateness_us=case["lateness_hours"] * HOUR_US,
    )
    return commits, meter


def eventtime_case(case: dict[str, Any]) -> tuple[list[Commit], EventTime]:
    """The ledger and the settings of a case of eventtime.json, for stream "s" and tenant "t1".

    Where the case has an `end`, the ledger has one commit more that ends the stream.
    """
    received = list(case.get("received", range(len(case["commits"]))))
    entries: list[list[dict[str, Any]]] = [list(commit) for commit in case["commits"]]
    if case["end"] is not None:
        entries.append([{"id": "end", "control": "end"}])
        received.append(received[-1] + 1)
    commits: list[Commit] = []
    seq = 0
    for received_at, commit in zip(received, entries, strict=True):
        events: list[Event] = []
        for entry in commit:
            seq += 1
            events.append(_stream_event(entry, seq, received_at))
        commits.append((received_at, events))
    settings = EventTime(
        late_tolerance=case["lateTolerance"],
        future_bound=case.get("future_bound"),
        idle_after=case.get("idle_after"),
    )
    return commits, settings


def _usage_event(entry: dict[str, Any], seq: int, received_at: int) -> Event:
    control = entry.get("control")
    amended = entry.get("event")
    return Event(
        seq=seq,
        key=entry.get("id", f"#{seq}"),
        tenant_id=entry["tenantId"],
        stream="usage",
        metric=entry.get("metric"),
        customer_ref=entry.get("customerRef"),
        resource_id=entry.get("resourceId"),
        quantity=entry.get("quantity"),
        ts=received_at if control else parse_instant(entry["ts"]),
        meta=entry.get("meta"),
        control=control,
        target=entry.get("target"),
        event=None
        if amended is None
        else Content(
            ts=parse_instant(amended["ts"]),
            quantity=amended["quantity"],
            meta=amended.get("meta"),
            resource_id=amended.get("resourceId"),
        ),
    )


def _stream_event(entry: dict[str, Any], seq: int, received_at: int) -> Event:
    return Event(
        seq=seq,
        key=entry["id"],
        tenant_id="t1",
        stream="s",
        metric=None,
        customer_ref=None,
        resource_id=None,
        quantity=None,
        ts=entry.get("ts", received_at),
        meta=None,
        control=entry.get("control"),
    )
