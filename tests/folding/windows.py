"""Windows folded in the driver alone, without Spark: facts as tasks would find them, cut anyhow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tests.folding.memory import MemoryViews
from tests.reference import eventtime
from tests.reference.amounts import BILLION
from tests.reference.tables import (
    Content,
    StreamCommit,
    StreamEvent,
    TableChange,
    Undecodable,
)
from tests.reference.timetypes import time_in
from tests.reference.window_definitions import Window
from tests.reference.window_rows import ViewResult, ViewRow, WindowResult
from tests.reference.windows import Side, WindowFold
from tidemark.pipeline import facts
from tidemark.pipeline.fold.parts import ARROW_TYPES, ENDS, WINDOW_FACTS, Gathered, Part
from tidemark.pipeline.output.encoding import encode_row
from tidemark.pipeline.output.schema import Column
from tidemark.pipeline.time.plans import EVENTTIME, PROCESS_TIME, StreamTime, TimePlan
from tidemark.pipeline.time.reorder import TUPLES_SCHEMA
from tidemark.pipeline.time.stage import TimeStage
from tidemark.pipeline.time.watermarks import COMMITS_SCHEMA, ENDS_SCHEMA, MAXIMA_SCHEMA
from tidemark.pipeline.windows.corrected import fold_corrected
from tidemark.pipeline.windows.definition import WindowDefinition, window_schemas
from tidemark.pipeline.windows.facts import FACTS_FIELDS, GROUPS
from tidemark.pipeline.windows.keeper import Anew, WindowKeeper
from tidemark.pipeline.windows.lanes import LaneHistory, by_commit, by_event_time
from tidemark.pipeline.windows.refolded import Event
from tidemark.pipeline.windows.refolding import tied_to


def definition_of(window: Window) -> WindowDefinition:
    return WindowDefinition(
        name=window.name,
        stream=window.stream,
        fields=tuple(Column(f.name, f.type, f.values) for f in window.fields),
        size_us=window.size_us,
        every_us=window.every_us,
        group_by=window.group_by,
        aggregate=window.aggregate,
        value=window.value.text,
        where=None if window.where is None else window.where.text,
        emit=window.emit,
        late=window.late,
        refire_for_us=window.refire_for_us or 0,
        time_column=None if window.time is None else window.time.column,
        time_type=None if window.time is None else window.time.type,
    )


@dataclass
class WindowRun:
    """One window over a growing ledger, batch after batch, made anew after each."""

    window: Window
    settings: eventtime.EventTime
    views: MemoryViews = field(init=False)
    state: bytes | None = None
    taken: list[StreamCommit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.definition = definition_of(self.window)
        self.views = MemoryViews(window_schemas(self.definition))
        self._reading = WindowFold(self.window, self.settings)
        time = StreamTime()
        name = PROCESS_TIME
        if self.window.time is not None:
            name = EVENTTIME
            time = StreamTime(
                self.window.time.column,
                self.window.time.type,
                self.settings.late_tolerance,
                self.settings.future_bound,
                self.settings.idle_after,
            )
        self._plan = TimePlan(name, {self.window.stream: time})

    def take(self, commits: Sequence[StreamCommit]) -> None:
        start = self.taken[-1][0] if self.taken else 0
        self.taken += commits
        stream = self.window.stream
        gathered = Gathered()
        gathered.add(Part(self.window.name, WINDOW_FACTS, self._facts(commits)))
        gathered.add(Part("", ENDS, _ends(commits, stream)))
        anew = self._refolded(commits, start)
        keeper = WindowKeeper(
            [self.definition], frozenset(), lambda view: list(self.views.rows[view].values())
        )
        stage = TimeStage(self._plan, {}, self.state, watched={stream})
        received = pa.table({"received_at": pa.array([at for at, _ in commits], pa.int64())})
        try:
            keeper.begin(anew)
            for step in stage.advance(
                received.cast(COMMITS_SCHEMA), self._tuples(commits), _ends(commits, stream)
            ):
                keeper.take(gathered, received, step, anew)
                self.state = step.state_after
            keeper.end(gathered, anew)
        finally:
            keeper.close()
            stage.close()
        self.views.write(gathered)

    def result(self) -> WindowResult:
        """What the views hold, in the shape of the reference but for the errors."""
        own = self._view(self.window.name)
        late = ViewResult()
        if self.definition.late_view is not None:
            late = self._view(self.definition.late_view)
        return WindowResult(own.rows, own.changes, late)

    def _view(self, name: str) -> ViewResult:
        schema = self.views.schemas[name]
        names = [column.name for column in schema.columns]
        rows = {
            key: ViewRow(
                encode_row(schema, dict(zip(names, row.values, strict=True))), row.received_at
            )
            for key, row in self.views.rows[name].items()
        }
        return ViewResult(rows, logged_changes(self.views.changes[name]))

    def _own(self, commits: Sequence[StreamCommit]) -> list[tuple[int, StreamEvent]]:
        return [
            (received_at, event)
            for received_at, events in commits
            for event in events
            if event["stream"] == self.window.stream
        ]

    def _facts(self, commits: Sequence[StreamCommit]) -> pa.Table:
        rows = []
        for received_at, event in self._own(commits):
            side = self._side(event, event, received_at)
            if event["control"] is None and side is not None:
                rows.append((received_at, event, side))
        columns: dict[str, list[Any]] = {
            "tenant_id": [side.tenant_id for _, _, side in rows],
            "received_at": [received_at for received_at, _, _ in rows],
            "ingress_sequence": [event["seq"] for _, event, _ in rows],
            "idempotency_key": [event["key"] for _, event, _ in rows],
            "ts": [side.ts for _, _, side in rows],
            "value": [_decimal(Fraction(side.value, BILLION)) for _, _, side in rows],
        }
        arrays = {name: pa.array(columns[name], kind) for name, kind in FACTS_FIELDS.items()}
        arrays["slot"] = pa.array([_slot(side) for _, _, side in rows], pa.int64())
        groups = [pa.field(g.name, ARROW_TYPES[g.type]) for g in self.definition.groups]
        structs = [
            {g.name: value for g, value in zip(groups, _groups(side), strict=True)}
            for _, _, side in rows
        ]
        return pa.table({**arrays, GROUPS: pa.array(structs, pa.struct(groups))})

    def _side(self, original: StreamEvent, content: Content, received_at: int) -> Side | None:
        return self._reading.side_of(original, content, received_at)

    def _tuples(self, commits: Sequence[StreamCommit]) -> pa.Table:
        rows: list[tuple[Any, ...]] = []
        for received_at, event in self._own(commits):
            ts = self._time(event)
            if event["control"] is None and ts is not None:
                stream, tenant = self.window.stream, event["tenant_id"]
                rows.append((stream, tenant, ts, event["seq"], received_at, event["key"], None))
        if self.window.time is None:
            rows = []
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(TUPLES_SCHEMA)
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, TUPLES_SCHEMA, strict=True)],
            schema=TUPLES_SCHEMA,
        )

    def _time(self, event: StreamEvent) -> int | None:
        time = self.window.time
        return None if time is None else time_in(event["data"], time.column, time.type)

    def _refolded(self, commits: Sequence[StreamCommit], start: int) -> dict[str, Anew]:
        targets = {
            (event["tenant_id"], str(event["target"]))
            for _, event in self._own(commits)
            if event["control"] in (facts.VOID, facts.AMEND)
        }
        if not targets:
            return {}
        events = self._events()
        corrected = {(e.tenant_id, e.target_key) for e, _ in events if e.target_key is not None}
        ties = [
            ((e.tenant_id, e.target_key or e.idempotency_key), slot)
            for e, slot in events
            if slot is not None and (e.tenant_id, e.target_key or e.idempotency_key) in corrected
        ]
        names, slots = tied_to(targets, ties)
        wanted = [
            e
            for e, slot in events
            if slot in slots or (e.tenant_id, e.target_key or e.idempotency_key) in names
        ]
        refolded = fold_corrected(
            self.definition,
            wanted,
            self._lanes(),
            [
                (event["tenant_id"], received_at)
                for received_at, event in self._own(self.taken)
                if event["control"] == "end"
            ],
            start=start,
            end=self.taken[-1][0],
        )
        return {self.window.name: Anew(frozenset(slots), refolded)}

    def _events(self) -> list[tuple[Event, int | None]]:
        """With the slot of each, unless it says nothing of that."""
        found = []
        received: dict[tuple[str, str], tuple[int, StreamEvent]] = {}
        for received_at, event in self._own(self.taken):
            if event["control"] == "end":
                continue
            name = (event["tenant_id"], event["target"] or event["key"])
            side, ts = None, None
            if event["control"] is None:
                received[name] = (received_at, event)
                side = self._side(event, event, received_at)
                ts = None if side is None else side.ts
            elif event["event"] is not None:
                at, original = received[name]
                side = self._side(original, event["event"], at)
                ts = None if side is None or self.window.time is None else side.ts
            kind = facts.FACT if event["control"] is None else str(event["control"])
            if kind != facts.VOID and self._is_undecodable(event):
                kind = facts.ERROR
            value = None if side is None else _decimal(Fraction(side.value, BILLION))
            told = Event(
                ingress_sequence=event["seq"],
                received_at=received_at,
                idempotency_key=event["key"],
                target_key=event["target"],
                tenant_id=event["tenant_id"],
                kind=kind,
                ts=ts,
                value=value,
                groups=() if side is None else _groups(side),
            )
            found.append((told, None if side is None else _slot(side)))
        return found

    def _is_undecodable(self, event: StreamEvent) -> bool:
        try:
            self._reading.decoded(event, event["event"] or event, 0)
        except Undecodable:
            return True
        return False

    def _lanes(self) -> Any:
        times = [received_at for received_at, _ in self.taken]
        if self.window.time is None:
            return by_commit(times)
        greatest: dict[tuple[str, int], int | None] = {}
        bound = self.settings.future_bound
        for received_at, event in self._own(self.taken):
            ts = self._time(event)
            if event["control"] is not None or ts is None:
                continue
            place = (event["tenant_id"], received_at)
            tame = ts if bound is None or ts <= received_at + bound else None
            known = [t for t in (greatest.get(place), tame) if t is not None]
            greatest[place] = max(known, default=None)
        stream = self.window.stream
        rows = [(stream, tenant, at, ts) for (tenant, at), ts in greatest.items()]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(MAXIMA_SCHEMA)
        maxima = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, MAXIMA_SCHEMA, strict=True)],
            schema=MAXIMA_SCHEMA,
        )
        lanes: dict[str, LaneHistory] = dict(
            by_event_time(stream, self._plan.streams[stream], times, maxima)
        )
        return lanes


def logged_changes(changes: Iterable[tuple[Any, ...]]) -> list[TableChange]:
    """Changes as a log has them, by commit and then by key."""
    found = [
        TableChange(at, key, op, old, new, None if names is None else tuple(json.loads(names)))
        for at, key, op, old, new, names in changes
    ]
    return sorted(found, key=lambda change: (change.received_at, change.key))


def _ends(commits: Sequence[StreamCommit], stream: str) -> pa.Table:
    rows = [
        (stream, event["tenant_id"], received_at)
        for received_at, events in commits
        for event in events
        if event["stream"] == stream and event["control"] == "end"
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ENDS_SCHEMA)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, ENDS_SCHEMA, strict=True)], schema=ENDS_SCHEMA
    )


def _groups(side: Side) -> tuple[Any, ...]:
    return tuple(_decimal(v) if isinstance(v, Fraction) else v for v in side.groups)


def _slot(side: Side) -> int:
    return hash((side.tenant_id, side.groups)) % 2**62


def _decimal(value: Fraction) -> Decimal:
    billionths = value * BILLION
    assert billionths.denominator == 1
    return Decimal(billionths.numerator).scaleb(-9)
