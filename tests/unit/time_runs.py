"""Ledgers of the reference run through the time stage, cut into batches as a test likes.

One ledger is run with many settings at once: its events are handed over once for each of them,
under another name of their stream.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from tests.reference.eventtime import EventTime, Step
from tests.reference.history import Commit
from tidemark.pipeline.time.buffer import PartStore
from tidemark.pipeline.time.plans import EVENTTIME, StreamTime, TimePlan
from tidemark.pipeline.time.reorder import LATE, RECORDS_SCHEMA, TUPLES_SCHEMA, WATERMARK
from tidemark.pipeline.time.stage import StreamMetrics, TimeStage
from tidemark.pipeline.time.watermarks import COMMITS_SCHEMA, ENDS_SCHEMA, query

Cut = Sequence[Sequence[Commit]]

_MOVES = """
SELECT stream, tenant_id, received_at, w_after AS watermark
FROM steps JOIN lanes USING (lane)
WHERE w_after IS DISTINCT FROM w_before
ORDER BY received_at, stream, tenant_id
"""


def moves(connection: DuckDBPyConnection) -> list[dict[str, Any]]:
    """Each move of a watermark by the last `move_watermarks`: the commit, and W after it."""
    found: list[dict[str, Any]] = query(connection, _MOVES).to_pylist()
    return found


@dataclass
class PartsInMemory:
    """A `PartStore` that also counts what is written."""

    parts: dict[int, pa.Table] = field(default_factory=dict)
    written_rows: int = 0

    def numbers(self) -> set[int]:
        return set(self.parts)

    def read(self, number: int) -> pa.Table:
        return self.parts[number]

    def write(self, number: int, part: pa.Table) -> pa.Table:
        assert number not in self.parts, "a part is written once"
        assert part.num_rows > 0
        self.parts[number] = part
        self.written_rows += part.num_rows
        return part

    def remove(self, numbers: Collection[int]) -> None:
        for number in numbers:
            del self.parts[number]


@dataclass(frozen=True)
class Run:
    """What came of a ledger."""

    records: dict[str, pa.Table]
    metrics: dict[str, StreamMetrics]
    moves: list[dict[str, Any]]
    lanes: list[dict[str, Any]]

    def steps(self, commits: Sequence[Commit], stream: str, tenant_id: str) -> list[Step]:
        """What each commit did to one tenant, as the reference says it."""
        by_commit: dict[int, dict[str, Any]] = {}
        for record in self.records[stream].to_pylist():
            if record["tenant_id"] != tenant_id:
                continue
            empty: dict[str, Any] = {"before": [], "watermark": None, "after": [], "late": []}
            did = by_commit.setdefault(record["released_at"], empty)
            if record["kind"] == WATERMARK:
                did["watermark"] = record["watermark"]
            elif record["kind"] == LATE:
                did["late"].append(record["idempotency_key"])
            else:
                place = "before" if did["watermark"] is None else "after"
                did[place].append(record["idempotency_key"])
        steps = []
        for received_at, _ in commits:
            did = by_commit.get(received_at, {"before": [], "watermark": None, "after": []})
            # Without a move of the watermark, only an end can have released something.
            rows, flushed = did["before"], did["after"]
            if did["watermark"] is None:
                rows, flushed = [], rows
            late = tuple(did.get("late", ()))
            steps.append(Step(tuple(rows), did["watermark"], tuple(flushed), late))
        return steps


def stream_time(settings: EventTime) -> StreamTime:
    return StreamTime(
        column="at",
        type="iso8601",
        late_tolerance_us=settings.late_tolerance,
        future_bound_us=settings.future_bound,
        idle_after_us=settings.idle_after,
    )


def plan_with(settings: Mapping[str, EventTime]) -> TimePlan:
    return TimePlan(EVENTTIME, {name: stream_time(time) for name, time in settings.items()})


def tables_of(
    commits: Sequence[Commit], names: Mapping[str, Sequence[str]]
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Commits, tuples and ends. `names` are the streams of the plan that a stream stands for."""
    tuples, ends = [], []
    for received_at, events in commits:
        for event in events:
            for stream in names.get(event["stream"], ()):
                place = {
                    "stream": stream,
                    "tenant_id": event["tenant_id"],
                    "received_at": received_at,
                }
                if event["control"] == "end":
                    ends.append(place)
                elif event["control"] is None:
                    content = {
                        "ts": event["ts"],
                        "ingress_sequence": event["seq"],
                        "idempotency_key": event["key"],
                        "data": f'{{"number":{event["seq"]}}}',
                    }
                    tuples.append(place | content)
    times = [{"received_at": received_at} for received_at, _ in commits]
    return (
        pa.Table.from_pylist(times, COMMITS_SCHEMA),
        pa.Table.from_pylist(tuples, TUPLES_SCHEMA),
        pa.Table.from_pylist(ends, ENDS_SCHEMA),
    )


def run(
    cut: Cut,
    plan: TimePlan,
    names: Mapping[str, Sequence[str]],
    *,
    restarts: bool = False,
    stores: Mapping[str, PartStore] | None = None,
) -> Run:
    """Run the batches; with restarts, each by a stage of its own that has only the state."""
    if stores is None:
        stores = {stream: PartsInMemory() for stream in plan.streams}
    records: dict[str, list[pa.Table]] = {
        stream: [RECORDS_SCHEMA.empty_table()] for stream in plan.streams
    }
    moved: list[dict[str, Any]] = []
    stage = TimeStage(plan, stores)
    for batch in cut:
        state = b""
        for step in stage.advance(*tables_of(batch, names)):
            for stream, table in step.records.items():
                records[stream].append(table)
            moved += moves(stage._connection)
            state = step.state_after
        if restarts:
            stage.close()
            stage = TimeStage(plan, stores, state)
    result = Run(
        {stream: pa.concat_tables(tables) for stream, tables in records.items()},
        stage.metrics,
        moved,
        stage.lanes.to_pylist(),
    )
    stage.close()
    return result


def whole(commits: Sequence[Commit]) -> Cut:
    return [commits] if commits else []


def one_by_one(commits: Sequence[Commit]) -> Cut:
    return [[commit] for commit in commits]


def random_cut(commits: Sequence[Commit], seed: int) -> Cut:
    return list(_pieces(commits, random.Random(seed)))


def _pieces(commits: Sequence[Commit], source: random.Random) -> Iterator[Sequence[Commit]]:
    start = 0
    while start < len(commits):
        size = source.choice((1, 2, 3, 7, 20))
        yield commits[start : start + size]
        start += size
