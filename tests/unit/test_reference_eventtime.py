"""The reference of event time gives what the shared vectors say; so does a buffer that runs along,
as a product would keep it, and mistakes planted in that are found by generated ledgers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.generated.eventtimes import event_times, random_event_time
from tests.generated.ledgers import Shape, ledgers, random_ledger
from tests.reference.eventtime import EventTime, Step, reorder
from tests.reference.history import Commit, Event, check_history
from tests.reference.vectors import eventtime_case

VECTORS = Path(__file__).parents[1] / "vectors/eventtime.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]

Reorder = Callable[[Sequence[Commit], str, str, EventTime], list[Step]]
Property = Callable[[Sequence[Commit], EventTime, Reorder], None]

SHAPE = Shape(streams=("trades", "trades", "usage"))


class Running:
    """A buffer and a watermark, carried from commit to commit. Subclasses have a mistake each."""

    def __init__(self, settings: EventTime) -> None:
        self.settings = settings
        self.watermark: int | None = None
        self.last_data: int | None = None
        self.buffer: list[Event] = []

    def commit(self, received_at: int, events: Sequence[Event]) -> Step:
        data = [event for event in events if event["control"] is None]
        late = [event for event in data if self.is_late(event["ts"])]
        self.buffer += [event for event in data if not self.is_late(event["ts"])]
        before = self.watermark
        for event in data:
            if not self.is_wild(event["ts"], received_at):
                self.raise_watermark(event["ts"] - self.settings.late_tolerance)
        self.last_data = received_at if data else self.last_data
        if self.is_idle(received_at):
            idle_after = self.settings.idle_after or 0
            self.raise_watermark(received_at - idle_after - self.settings.late_tolerance)
        rows = self.take(lambda event: self.watermark is not None and event["ts"] <= self.watermark)
        ended = any(event["control"] == "end" for event in events)
        flushed = self.take(lambda _: True) if ended else ()
        moved = self.watermark if self.watermark != before else None
        return Step(rows, moved, flushed, tuple(e["key"] for e in by(late, "seq")))

    def is_late(self, ts: int) -> bool:
        return self.watermark is not None and ts <= self.watermark

    def is_wild(self, ts: int, received_at: int) -> bool:
        bound = self.settings.future_bound
        return bound is not None and ts > received_at + bound

    def is_idle(self, received_at: int) -> bool:
        idle_after = self.settings.idle_after
        if idle_after is None or self.last_data is None:
            return False
        return received_at - self.last_data >= idle_after

    def raise_watermark(self, to: int) -> None:
        self.watermark = to if self.watermark is None else max(self.watermark, to)

    def take(self, when: Callable[[Event], bool]) -> tuple[str, ...]:
        taken = [event for event in self.buffer if when(event)]
        self.buffer = [event for event in self.buffer if not when(event)]
        return tuple(event["key"] for event in self.ordered(taken))

    def ordered(self, events: list[Event]) -> list[Event]:
        return by(events, "ts", "seq")


def by(events: Sequence[Event], *names: str) -> list[Event]:
    return sorted(events, key=lambda event: [dict(event)[name] for name in names])


def running(kind: type[Running]) -> Reorder:
    def run(
        commits: Sequence[Commit], stream: str, tenant_id: str, settings: EventTime
    ) -> list[Step]:
        state = kind(settings)
        return [
            state.commit(
                received_at,
                [e for e in events if e["stream"] == stream and e["tenant_id"] == tenant_id],
            )
            for received_at, events in commits
        ]

    return run


class LateIsStrictlyBefore(Running):
    def is_late(self, ts: int) -> bool:
        return self.watermark is not None and ts < self.watermark


class StartsAtZero(Running):
    def __init__(self, settings: EventTime) -> None:
        super().__init__(settings)
        self.watermark = 0


class FollowsWildClocks(Running):
    def is_wild(self, ts: int, received_at: int) -> bool:
        return False


class MovesBack(Running):
    def raise_watermark(self, to: int) -> None:
        self.watermark = to


class IsNeverIdle(Running):
    def is_idle(self, received_at: int) -> bool:
        return False


class IsIdleBeforeItBegan(Running):
    def is_idle(self, received_at: int) -> bool:
        return self.last_data is None and self.settings.idle_after is not None


class IgnoresTimesInTheBuffer(Running):
    def ordered(self, events: list[Event]) -> list[Event]:
        return by(events, "seq")


class ReversesTies(Running):
    def ordered(self, events: list[Event]) -> list[Event]:
        return by(by(events, "seq")[::-1], "ts")


class ForgetsTheEnd(Running):
    def commit(self, received_at: int, events: Sequence[Event]) -> Step:
        return super().commit(received_at, [e for e in events if e["control"] != "end"])


class EndsWithAGreatestWatermark(Running):
    def commit(self, received_at: int, events: Sequence[Event]) -> Step:
        step = super().commit(received_at, events)
        if any(event["control"] == "end" for event in events):
            self.watermark = 2**63 - 1
        return step


class JudgesLateInsideTheCommit(Running):
    def commit(self, received_at: int, events: Sequence[Event]) -> Step:
        steps = [super(JudgesLateInsideTheCommit, self).commit(received_at, [e]) for e in events]
        steps = steps or [super().commit(received_at, [])]
        moved = [step.watermark for step in steps if step.watermark is not None]
        return Step(
            tuple(key for step in steps for key in step.rows),
            moved[-1] if moved else None,
            tuple(key for step in steps for key in step.flushed),
            tuple(key for step in steps for key in step.late),
        )


@pytest.mark.parametrize("implementation", [reorder, running(Running)], ids=["plain", "running"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vectors_pass_as_they_are(case: dict[str, Any], implementation: Reorder) -> None:
    commits, settings = eventtime_case(case)
    check_history(commits)
    steps = implementation(commits, "s", "t1", settings)
    if case["end"] is not None:
        end = steps.pop()
        assert (end.rows, end.watermark, end.late) == ((), None, ())
        assert list(end.flushed) == case["end"]
    assert case["expected"] == [
        {"rows": list(step.rows), "watermark": step.watermark, "late": list(step.late)}
        for step in steps
    ]


def it_keeps_its_word(
    commits: Sequence[Commit], settings: EventTime, implementation: Reorder
) -> None:
    """After a watermark nothing is emitted that it has passed, what is emitted together is in
    order, and every event is emitted once, late once, or waits for the end."""
    place = {
        event["key"]: (event["ts"], event["seq"])
        for _, events in commits
        for event in events
        if (event["stream"], event["tenant_id"], event["control"]) == ("trades", "t1", None)
    }
    passed: int | None = None
    seen: list[str] = []
    for step in implementation(commits, "trades", "t1", settings):
        rows, flushed = ([place[key] for key in keys] for keys in (step.rows, step.flushed))
        assert rows == sorted(rows)
        assert all(passed is None or ts > passed for ts, _ in rows)
        if step.watermark is not None:
            assert passed is None or step.watermark > passed
            passed = step.watermark
        assert all(passed is not None and ts <= passed for ts, _ in rows)
        assert flushed == sorted(flushed)
        assert all(passed is None or ts > passed for ts, _ in flushed)
        seen += [*step.rows, *step.flushed, *step.late]
    assert len(seen) == len(set(seen))
    waiting = set(place) - set(seen)
    assert all(passed is None or place[key][0] > passed for key in waiting)


def it_agrees_with_the_reference(
    commits: Sequence[Commit], settings: EventTime, implementation: Reorder
) -> None:
    expected = reorder(commits, "trades", "t1", settings)
    assert implementation(commits, "trades", "t1", settings) == expected


def events_of_a_commit_can_be_handed_over_in_any_order(
    commits: Sequence[Commit], settings: EventTime, implementation: Reorder
) -> None:
    source = random.Random(0)
    mixed = [(at, source.sample(list(events), len(events))) for at, events in commits]
    expected = implementation(commits, "trades", "t1", settings)
    assert implementation(mixed, "trades", "t1", settings) == expected


def what_comes_later_does_not_change_what_was(
    commits: Sequence[Commit], settings: EventTime, implementation: Reorder
) -> None:
    whole = implementation(commits, "trades", "t1", settings)
    for length in range(len(commits)):
        part = implementation(commits[:length], "trades", "t1", settings)
        assert part == whole[:length]


@given(ledgers(SHAPE), event_times())
def test_what_must_be_true_of_any_ledger_is(commits: list[Commit], settings: EventTime) -> None:
    it_keeps_its_word(commits, settings, reorder)
    events_of_a_commit_can_be_handed_over_in_any_order(commits, settings, reorder)
    what_comes_later_does_not_change_what_was(commits, settings, reorder)


@given(ledgers(SHAPE), event_times())
def test_a_running_buffer_agrees_with_the_reference(
    commits: list[Commit], settings: EventTime
) -> None:
    it_agrees_with_the_reference(commits, settings, running(Running))


@pytest.mark.parametrize(
    ("holds", "mutant"),
    [
        (it_keeps_its_word, MovesBack),
        (it_keeps_its_word, LateIsStrictlyBefore),
        (it_keeps_its_word, ReversesTies),
        (it_keeps_its_word, IgnoresTimesInTheBuffer),
        (it_agrees_with_the_reference, StartsAtZero),
        (it_agrees_with_the_reference, FollowsWildClocks),
        (it_agrees_with_the_reference, IsNeverIdle),
        (it_agrees_with_the_reference, IsIdleBeforeItBegan),
        (it_agrees_with_the_reference, ForgetsTheEnd),
        (it_agrees_with_the_reference, EndsWithAGreatestWatermark),
        (events_of_a_commit_can_be_handed_over_in_any_order, JudgesLateInsideTheCommit),
    ],
    ids=lambda value: value.__name__,
)
def test_a_planted_mistake_is_caught(holds: Property, mutant: type[Running]) -> None:
    def try_many() -> None:
        for seed in range(500):
            holds(random_ledger(seed, SHAPE), random_event_time(seed), running(mutant))

    with pytest.raises(AssertionError):
        try_many()
