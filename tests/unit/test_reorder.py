"""Events are released in the order of their time, by the rules of the reference, and nothing of it
depends on how the ledger is cut into batches or on the process that runs them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generated.eventtimes import FUTURE_BOUNDS, IDLE_TIMES, TOLERANCES, random_event_time
from tests.generated.ledgers import Shape, ledgers, random_ledger
from tests.reference.eventtime import EventTime, data_of, reorder
from tests.reference.history import Commit
from tests.reference.vectors import eventtime_case
from tests.unit.time_runs import (
    Cut,
    PartsInMemory,
    Run,
    one_by_one,
    plan_with,
    random_cut,
    run,
    tables_of,
    whole,
)
from tidemark.pipeline.output.errors import BatchRefused, DefinitionChanged
from tidemark.pipeline.time import stage as stage_module
from tidemark.pipeline.time.plans import EVENTTIME, PROCESS_TIME, StreamTime, TimePlan
from tidemark.pipeline.time.stage import StreamMetrics, TimeStage, read_state
from tidemark.pipeline.time.watermarks import COMMITS_SCHEMA, ENDS_SCHEMA

VECTORS = Path(__file__).parents[1] / "vectors/eventtime.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
TENANTS = ("t1", "t2")
SHAPE = Shape(streams=("trades", "trades", "usage"))
LONG = Shape(max_commits=18, max_entries=8, streams=("trades", "trades", "usage"))

# Every setting with every other, a ledger at a time: starting a run costs more than a stream in it.
SETTINGS = {
    f"trades-{number}": EventTime(tolerance, future_bound, idle_after)
    for number, (tolerance, future_bound, idle_after) in enumerate(
        (tolerance, future_bound, idle_after)
        for tolerance in TOLERANCES
        for future_bound in FUTURE_BOUNDS
        for idle_after in IDLE_TIMES
    )
}
PLAN = plan_with(SETTINGS)
NAMES = {"trades": tuple(SETTINGS)}


@pytest.mark.parametrize("restarts", [False, True], ids=["in one process", "with restarts"])
@pytest.mark.parametrize("cut", [whole, one_by_one])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vectors_pass_as_they_are(
    case: dict[str, Any], cut: Callable[[Sequence[Commit]], Cut], restarts: bool
) -> None:
    commits, setting = eventtime_case(case)
    result = run(cut(commits), plan_with({"s": setting}), {"s": ["s"]}, restarts=restarts)
    steps = result.steps(commits, "s", "t1")
    if case["end"] is not None:
        end = steps.pop()
        assert (end.rows, end.watermark, end.late) == ((), None, ())
        assert list(end.flushed) == case["end"]
    assert case["expected"] == [
        {"rows": list(step.rows), "watermark": step.watermark, "late": list(step.late)}
        for step in steps
    ]


def it_agrees_with_the_reference(commits: Sequence[Commit], result: Run) -> None:
    for stream, setting in SETTINGS.items():
        for tenant_id in TENANTS:
            expected = reorder(commits, "trades", tenant_id, setting)
            assert result.steps(commits, stream, tenant_id) == expected, (stream, setting)
        assert result.metrics[stream] == expected_metrics(commits, setting), (stream, setting)


def expected_metrics(commits: Sequence[Commit], setting: EventTime) -> StreamMetrics:
    steps = [step for tenant in TENANTS for step in reorder(commits, "trades", tenant, setting)]
    data = [
        (event["ts"], received_at)
        for received_at, events in commits
        for event in data_of(events)
        if event["stream"] == "trades"
    ]
    bound = setting.future_bound
    tame = [ts for ts, received_at in data if bound is None or ts <= received_at + bound]
    late = sum(len(step.late) for step in steps)
    out = sum(len(step.rows) + len(step.flushed) for step in steps)
    return StreamMetrics(
        buffer_size=len(data) - late - out,
        late_dropped_count=late,
        watermark_emitted_count=sum(step.watermark is not None for step in steps),
        wild_count=len(data) - len(tame),
        max_timestamp_seen=max(tame, default=None),
    )


# An example has as many streams as there are settings.
@settings(max_examples=settings().max_examples // 10)
@given(ledgers(SHAPE), st.integers(0, 1000))
def test_any_ledger_is_reordered_as_the_reference_says(commits: list[Commit], seed: int) -> None:
    result = run(random_cut(commits, seed), PLAN, NAMES, restarts=bool(seed % 2))
    it_agrees_with_the_reference(commits, result)


@pytest.mark.parametrize("seed", range(1))
def test_a_long_ledger_is_the_same_for_every_cut(seed: int) -> None:
    commits = random_ledger(seed, LONG)
    first = run(whole(commits), PLAN, NAMES)
    it_agrees_with_the_reference(commits, first)
    for cut, restarts in (
        (one_by_one(commits), False),
        (random_cut(commits, seed), True),
        (random_cut(commits, seed + 1000), False),
    ):
        assert run(cut, PLAN, NAMES, restarts=restarts) == first


@pytest.mark.parametrize("moves_at_once", [1, 40])
def test_a_batch_is_taken_in_steps_when_its_silent_lanes_could_move_too_often(
    moves_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = random_ledger(4, LONG)
    expected = run(whole(commits), PLAN, NAMES)
    monkeypatch.setattr(stage_module, "MOVES_AT_ONCE", moves_at_once)
    assert run(random_cut(commits, 1), PLAN, NAMES, restarts=True) == expected


def test_the_order_of_events_inside_a_batch_does_not_matter() -> None:
    commits = random_ledger(7, LONG)
    expected = run(whole(commits), PLAN, NAMES)
    times, tuples, ends = tables_of(commits, NAMES)
    mixed = random.Random(0).sample(range(tuples.num_rows), tuples.num_rows)
    stage = TimeStage(PLAN, {stream: PartsInMemory() for stream in PLAN.streams})
    [step] = stage.advance(times, tuples.take(pa.array(mixed)), ends)
    assert {stream: step.records.get(stream) for stream in step.records} == {
        stream: table for stream, table in expected.records.items() if table.num_rows
    }
    stage.close()


def test_without_event_time_events_go_by_when_they_were_received() -> None:
    commits = random_ledger(11, LONG)
    plan = TimePlan(PROCESS_TIME, {"trades": StreamTime()})
    first = run(whole(commits), plan, {"trades": ["trades"]})
    records = first.records["trades"].to_pylist()
    expected: list[tuple[Any, ...]] = []
    for received_at, events in commits:
        expected += [
            ("row", event["tenant_id"], received_at, None, event["seq"])
            for event in data_of(events)
            if event["stream"] == "trades"
        ]
        expected.append(("watermark", None, None, received_at, None))
    columns = ("kind", "tenant_id", "ts", "watermark", "ingress_sequence")
    assert [tuple(record[name] for name in columns) for record in records] == expected
    assert first.metrics["trades"].late_dropped_count == 0
    assert first.metrics["trades"].watermark_emitted_count == len(commits)
    assert run(one_by_one(commits), plan, {"trades": ["trades"]}, restarts=True) == first


def test_a_stream_without_a_column_goes_by_commits_beside_one_that_has() -> None:
    commits = random_ledger(12, LONG)
    setting = random_event_time(12)
    plan = TimePlan(EVENTTIME, {**plan_with({"trades": setting}).streams, "usage": StreamTime()})
    names = {"trades": ["trades"], "usage": ["usage"]}
    result = run(random_cut(commits, 1), plan, names)
    for tenant_id in TENANTS:
        expected = reorder(commits, "trades", tenant_id, setting)
        assert result.steps(commits, "trades", tenant_id) == expected
    rows = [row for row in result.records["usage"].to_pylist() if row["kind"] == "row"]
    assert all(row["ts"] == row["received_at"] == row["released_at"] for row in rows)


def test_a_stream_that_is_not_put_in_order_has_watermarks_and_counts_and_no_records() -> None:
    commits = random_ledger(13, LONG)
    ordered = run(whole(commits), PLAN, NAMES)
    result = run(random_cut(commits, 2), PLAN, NAMES, stores={}, restarts=True)
    assert all(table.num_rows == 0 for table in result.records.values())
    assert (result.moves, result.lanes) == (ordered.moves, ordered.lanes)
    for stream, metrics in result.metrics.items():
        assert metrics.buffer_size == 0
        assert metrics.late_dropped_count == ordered.metrics[stream].late_dropped_count


def steady(count: int, per_commit: int = 10) -> list[Commit]:
    """Commits a second apart whose events are up to two seconds old."""
    source = random.Random(0)
    commits: list[Commit] = []
    for number in range(count):
        received_at = 10_000_000 + number * 1_000_000
        events: list[Any] = [
            {
                "stream": "trades",
                "tenant_id": "t1",
                "control": None,
                "seq": number * per_commit + place,
                "key": f"k{number}-{place}",
                "ts": received_at - source.randrange(2_000_000),
            }
            for place in range(per_commit)
        ]
        commits.append((received_at, events))
    return commits


def test_what_waits_is_in_few_parts_that_are_rarely_written_again() -> None:
    commits = steady(60)
    store = PartsInMemory()
    plan = plan_with({"trades": EventTime(late_tolerance=3600 * 1_000_000)})
    result = run(one_by_one(commits), plan, {"trades": ["trades"]}, stores={"trades": store})
    assert result.metrics["trades"].buffer_size == 600
    assert sum(part.num_rows for part in store.parts.values()) <= 1200
    assert len(store.parts) <= 2 * math.log2(60)
    assert store.written_rows <= 600 * (1 + math.log2(60))


def test_parts_whose_events_are_released_are_removed() -> None:
    commits = steady(60)
    store = PartsInMemory()
    plan = plan_with({"trades": EventTime(late_tolerance=5_000_000)})
    result = run(one_by_one(commits), plan, {"trades": ["trades"]}, stores={"trades": store})
    waiting = result.metrics["trades"].buffer_size
    assert 0 < waiting < 100
    # Those of the last batch stay until it is known to be committed.
    assert sum(part.num_rows for part in store.parts.values()) <= 4 * waiting


def test_a_batch_that_was_never_committed_leaves_no_trace() -> None:
    commits = random_ledger(5, LONG)
    expected = run(whole(commits), PLAN, NAMES)
    stores = {stream: PartsInMemory() for stream in PLAN.streams}
    records: dict[str, list[pa.Table]] = {stream: [] for stream in PLAN.streams}
    state: bytes | None = None
    rest = commits
    for size in (5, 12, 13):
        crashed = TimeStage(PLAN, stores, state)
        list(crashed.advance(*tables_of(rest[: size + 5], NAMES)))
        crashed.close()
        stage = TimeStage(PLAN, stores, state)
        [step] = stage.advance(*tables_of(rest[:size], NAMES))
        stage.close()
        for stream, table in step.records.items():
            records[stream].append(table)
        state, rest = step.state_after, rest[size:]
        if not rest:
            break
    assert not rest
    for stream, tables in records.items():
        assert pa.concat_tables(tables) == expected.records[stream]


def test_a_state_of_other_settings_is_refused() -> None:
    commits = random_ledger(1, LONG)
    plan = plan_with({"trades": EventTime(late_tolerance=1)})
    stage = TimeStage(plan, {})
    [step] = stage.advance(*tables_of(commits, {"trades": ["trades"]}))
    state = step.state_after
    stage.close()
    with pytest.raises(DefinitionChanged, match="late_tolerance_us of the time of stream trades"):
        TimeStage(plan_with({"trades": EventTime(late_tolerance=2)}), {}, state)
    with pytest.raises(DefinitionChanged, match="column of the time of stream trades"):
        TimeStage(TimePlan(PROCESS_TIME, {"trades": StreamTime()}), {}, state)
    with pytest.raises(DefinitionChanged, match="its earlier events were not"):
        TimeStage(plan, {"trades": PartsInMemory()}, state)
    more = TimePlan(EVENTTIME, {**plan.streams, "orders": StreamTime("at", "iso8601")})
    TimeStage(more, {"orders": PartsInMemory()}, state).close()


def test_commits_that_do_not_follow_are_refused() -> None:
    stage = TimeStage(plan_with({"s": EventTime()}), {})
    no_events = tables_of([], {})[1]

    def advance(*times: int) -> None:
        commits = pa.table({"received_at": pa.array(times, pa.int64())}, COMMITS_SCHEMA)
        list(stage.advance(commits, no_events, ENDS_SCHEMA.empty_table()))

    advance(5, 6)
    for times in ((), (6, 7), (8, 8), (9, 8)):
        with pytest.raises(BatchRefused):
            advance(*times)
    advance(7)
    assert stage.reached == 7
    stage.close()


def test_an_event_without_a_time_is_refused() -> None:
    stage = TimeStage(plan_with({"s": EventTime()}), {})
    commits, tuples, ends = tables_of(steady(1), {"trades": ["s"]})
    without = pa.nulls(tuples.num_rows, pa.int64())
    with pytest.raises(BatchRefused, match="without a time"):
        list(stage.advance(commits, tuples.set_column(2, "ts", without), ends))
    stage.close()


def test_the_state_is_small_whatever_waits() -> None:
    plan = plan_with({"trades": EventTime(late_tolerance=3600 * 1_000_000)})
    stage = TimeStage(plan, {"trades": PartsInMemory()})
    [step] = stage.advance(*tables_of(steady(200), {"trades": ["trades"]}))
    stage.close()
    assert read_state(step.state_after).metrics["trades"].buffer_size == 2000
    assert len(step.state_after) < 4096
    assert read_state(step.state_after).reached == stage.reached
