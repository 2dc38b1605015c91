"""Small ledgers for windows written by hand, and what came of them in few words.

The stream has a time `t` in microseconds, a number `n` and a group `g`. Windows are ten long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from tests.reference import eventtime
from tests.reference.instants import parse_instant
from tests.reference.tables import Content, EventTime, Field, StreamCommit, StreamEvent
from tests.reference.window_definitions import Value, Window
from tests.reference.window_rows import ViewResult, WindowResult
from tests.reference.windows import WindowFold, fold_windows

STREAM: Final = "s"
FIELDS: Final = (
    Field("t", "bigint", required=False),
    Field("n", "decimal", required=False),
    Field("g", "string", required=False),
)
TIME: Final = EventTime("t", "unixtimestamp_us", lambda value: value if value >= 0 else None)
NO_TOLERANCE: Final = eventtime.EventTime()
N: Final = Value("n", lambda values: values["n"])

Fold = type[WindowFold]
# Number of the commit, what was done, start of the window and its value.
Logged = tuple[int, str, int, str | None]


def _event(key: str, control: Any, tenant_id: str) -> StreamEvent:
    return StreamEvent(
        seq=0,
        key=key,
        tenant_id=tenant_id,
        stream=STREAM,
        control=control,
        target=None,
        event=None,
        ts=None,
        data="{}",
    )


def data_of(t: int | None, n: str | None, g: str | None = None) -> str:
    return json.dumps({"t": t, "n": n, "g": g})


def sent(
    key: str, t: int | None, n: str | None = "1", g: str | None = None, tenant: str = "t1"
) -> StreamEvent:
    return {**_event(key, None, tenant), "data": data_of(t, n, g)}


def text(key: str, data: str) -> StreamEvent:
    """An event with any data."""
    return {**_event(key, None, "t1"), "data": data}


def amend(
    target: str, t: int | None, n: str | None = "1", g: str | None = None, key: str = "a"
) -> StreamEvent:
    content = Content(data=data_of(t, n, g), ts=None)
    return {**_event(key, "amend", "t1"), "target": target, "event": content}


def void(target: str, key: str = "v") -> StreamEvent:
    return {**_event(key, "void", "t1"), "target": target}


def end(key: str = "end", tenant: str = "t1") -> StreamEvent:
    return _event(key, "end", tenant)


def run(
    fold: Fold,
    *commits: Sequence[StreamEvent],
    received: Sequence[int] | None = None,
    settings: eventtime.EventTime = NO_TOLERANCE,
    **parts: Any,
) -> WindowResult:
    """What a window comes to over these commits, numbered in order."""
    return fold_windows(ledger(commits, received), window_of(**parts), settings, fold)


def ledger(
    commits: Sequence[Sequence[StreamEvent]], received: Sequence[int] | None = None
) -> list[StreamCommit]:
    """These commits, with their events numbered."""
    times = received if received is not None else range(1000, 1000 + len(commits))
    found: list[StreamCommit] = []
    seq = 0
    for received_at, events in zip(times, commits, strict=True):
        numbered = []
        for event in events:
            seq += 1
            numbered.append(StreamEvent(**{**event, "seq": seq}))
        found.append((received_at, numbered))
    return found


def window_of(**parts: Any) -> Window:
    declared = {"size_us": 10, "every_us": parts.get("size_us", 10), "value": N, "time": TIME}
    return Window("w", STREAM, FIELDS, **{**declared, **parts})


def rows_of(result: ViewResult) -> list[dict[str, Any]]:
    """In the order of their windows, groups and sequences."""
    rows = [json.loads(row.text) for row in result.rows.values()]
    for row in rows:
        row["start"] = parse_instant(row["window_start"])
    return sorted(
        rows,
        key=lambda row: (
            int(row.get("ingress_sequence", 0)),
            row.get("part", 0),
            row["start"],
            row["tenant_id"],
            str(row.get("g", "")),
        ),
    )


def values(result: ViewResult) -> dict[int, str]:
    """The value of each window; there must be one row for each."""
    rows = rows_of(result)
    assert len({row["start"] for row in rows}) == len(rows)
    return {row["start"]: row["value"] for row in rows}


def log(result: ViewResult, first: int = 1000) -> list[Logged]:
    """All changes in order; commits are numbered from 0."""
    entries = []
    for change in result.changes:
        row = json.loads(change.row or change.old_row or "")
        value = None if change.row is None else row["value"]
        start = parse_instant(row["window_start"])
        entries.append((change.received_at - first, str(change.op), start, value))
    return entries


def late(result: WindowResult) -> list[tuple[Any, ...]]:
    """Start, sequence, part, amount, reason, key and original of all late rows."""
    names = ("start", "ingress_sequence", "part", "amount", "reason", "idempotency_key")
    return [tuple(row[name] for name in (*names, "original_key")) for row in rows_of(result.late)]
