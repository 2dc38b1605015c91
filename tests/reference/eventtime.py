"""Event time: when a tuple is late, when it is released, and the watermark between.

Each tenant's events of a stream have a watermark of their own, W. After each commit it is the
greatest time seen less the tolerance, and it never moves back. Two things bend that:

- A time further than `future_bound` ahead of its commit's `received_at` does not move W.
- When the last commit with data is `idle_after` or longer ago (the current commit counts, so one
  that has data is never idle), W is at least `received_at` less `idle_after` less the tolerance.

A tuple is late if W, as it was before its commit, has reached its time. Any other is released at
the first commit, from its own on, at which W reaches its time, or at which the stream is ended;
tuples that are released together are ordered by time and then by sequence. Before the first tuple
there is no W, and nothing is late. The end of a stream moves no W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.reference.history import Commit, Event


@dataclass(frozen=True)
class EventTime:
    """The settings of a stream, in the unit of its times."""

    late_tolerance: int = 0
    future_bound: int | None = None
    idle_after: int | None = None


@dataclass(frozen=True)
class Step:
    """What one commit does, in this order; events are named by their keys.

    `watermark` is None where it did not move. `flushed` is what the end of the stream released.
    """

    rows: tuple[str, ...]
    watermark: int | None
    flushed: tuple[str, ...]
    late: tuple[str, ...]


def reorder(
    commits: Sequence[Commit], stream: str, tenant_id: str, settings: EventTime
) -> list[Step]:
    """What each commit does to the events of one tenant in one stream."""
    own = [
        (
            received_at,
            [e for e in events if e["stream"] == stream and e["tenant_id"] == tenant_id],
        )
        for received_at, events in commits
    ]
    watermarks = [watermark_after(own[: number + 1], settings) for number in range(len(own))]
    ended = [any(event["control"] == "end" for event in events) for _, events in own]
    late: list[list[Event]] = [[] for _ in own]
    released: list[list[Event]] = [[] for _ in own]
    flushed: list[list[Event]] = [[] for _ in own]
    for number, (_, events) in enumerate(own):
        before = watermarks[number - 1] if number > 0 else None
        for event in data_of(events):
            if before is not None and event["ts"] <= before:
                late[number].append(event)
                continue
            for later in range(number, len(own)):
                watermark = watermarks[later]
                if watermark is not None and watermark >= event["ts"]:
                    released[later].append(event)
                    break
                if ended[later]:
                    flushed[later].append(event)
                    break
    steps = []
    for number in range(len(own)):
        before = watermarks[number - 1] if number > 0 else None
        moved = watermarks[number] != before
        steps.append(
            Step(
                rows=in_order(released[number]),
                watermark=watermarks[number] if moved else None,
                flushed=in_order(flushed[number]),
                late=tuple(
                    event["key"] for event in sorted(late[number], key=lambda event: event["seq"])
                ),
            )
        )
    return steps


def watermark_after(commits: Sequence[Commit], settings: EventTime) -> int | None:
    """W after the last of these commits, from all of them."""
    candidates: list[int] = []
    last_data: int | None = None
    for received_at, events in commits:
        data = data_of(events)
        if data:
            last_data = received_at
        for event in data:
            if settings.future_bound is None or event["ts"] <= received_at + settings.future_bound:
                candidates.append(event["ts"] - settings.late_tolerance)
        if (
            settings.idle_after is not None
            and last_data is not None
            and received_at - last_data >= settings.idle_after
        ):
            candidates.append(received_at - settings.idle_after - settings.late_tolerance)
    return max(candidates, default=None)


def data_of(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event["control"] is None]


def in_order(events: Sequence[Event]) -> tuple[str, ...]:
    ordered = sorted(events, key=lambda event: (event["ts"], event["seq"]))
    return tuple(event["key"] for event in ordered)
