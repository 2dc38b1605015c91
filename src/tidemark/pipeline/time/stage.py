"""Event time from one batch to the next: commits and events in, ordered records and state out.

The state says everything that the next batch needs, besides the events that wait: it names the
parts of the buffers that hold those. Whoever commits a batch keeps `Step.state_after` in the same
transaction as all else that the batch derives, and goes on from it after a restart.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.pipeline.output.errors import BatchRefused, DefinitionChanged
from tidemark.pipeline.time import reorder, watermarks
from tidemark.pipeline.time.buffer import TAKEN_SCHEMA, Buffer, PartRef, PartStore
from tidemark.pipeline.time.plans import PlanName, StreamTime, TimePlan
from tidemark.pipeline.time.reorder import StreamCounts

STATE_NAME: Final = "time"
# A silent lane may move with every commit, so lanes times commits are what a step holds in memory.
MOVES_AT_ONCE: Final = 2_000_000


class StreamMetrics(msgspec.Struct, frozen=True):
    """What is known of a stream since the beginning of the ledger, however it was cut.

    `max_timestamp_seen` leaves wild times out, which `wild_count` counts. Only streams that are put
    in order have a buffer.
    """

    buffer_size: int = 0
    late_dropped_count: int = 0
    watermark_emitted_count: int = 0
    wild_count: int = 0
    max_timestamp_seen: int | None = None

    def plus(self, counts: StreamCounts, buffer_size: int) -> StreamMetrics:
        seen = [ts for ts in (self.max_timestamp_seen, counts.max_ts) if ts is not None]
        return StreamMetrics(
            buffer_size=buffer_size,
            late_dropped_count=self.late_dropped_count + counts.late_count,
            watermark_emitted_count=self.watermark_emitted_count + counts.watermark_count,
            wild_count=self.wild_count + counts.wild_count,
            max_timestamp_seen=max(seen, default=None),
        )


class TimeState(msgspec.Struct, frozen=True):
    """Everything between two batches, and what it was made with. `lanes` is an Arrow stream."""

    plan: PlanName
    streams: dict[str, StreamTime]
    # `received_at` of the last commit.
    reached: int | None
    lanes: bytes
    metrics: dict[str, StreamMetrics]
    # The parts of each stream that is put in order.
    parts: dict[str, list[PartRef]]


class Step(msgspec.Struct, frozen=True):
    """What some commits give: by stream the records in order, and how the watermarks of those
    moved that are watched (`MOVES_SCHEMA`). The commits come after `start` and up to `end`."""

    start: int | None
    end: int
    records: dict[str, pa.Table]
    moves: pa.Table
    state_after: bytes


class TimeStage:
    """Takes the time of all streams from commit to commit.

    A batch that fails, or that is not committed after it was computed, leaves a stage that is to
    be thrown away: the next is made from the state that is committed.
    """

    def __init__(
        self,
        plan: TimePlan,
        buffers: Mapping[str, PartStore],
        state_before: bytes | None = None,
        *,
        watched: Collection[str] = (),
    ) -> None:
        """`buffers` has the streams that are put in order, `watched` those whose watermarks
        somebody goes by. Without a state, time begins with the ledger. `DefinitionChanged` if the
        state was made with other settings."""
        self._plan = plan
        state = TimeState(plan.name, {}, None, _packed(watermarks.no_lanes()), {}, {})
        if state_before is not None:
            state = read_state(state_before)
            _refuse_changes(state, plan, buffers)
        self._reached = state.reached
        self._lanes = _unpacked(state.lanes)
        self._metrics = {name: state.metrics.get(name, StreamMetrics()) for name in plan.streams}
        self._buffers = {
            stream: Buffer(store, state.parts.get(stream, ()), _of_stream(self._lanes, stream))
            for stream, store in buffers.items()
        }
        self._connection = duckdb.connect(":memory:")
        watermarks.register_settings(self._connection, plan.streams, self._buffers)
        self._watched = sorted(watched)
        by_commit = [name for name, time in plan.streams.items() if time.column is None]
        self._by_commit = pa.array(by_commit, pa.string())

    @property
    def reached(self) -> int | None:
        """`received_at` of the last commit that was taken in."""
        return self._reached

    @property
    def lanes(self) -> pa.Table:
        """What is known of each tenant in each stream (`LANES_SCHEMA`)."""
        return self._lanes

    @property
    def metrics(self) -> dict[str, StreamMetrics]:
        return self._metrics

    def close(self) -> None:
        self._connection.close()

    def advance(self, commits: pa.Table, tuples: pa.Table, ends: pa.Table) -> Iterator[Step]:
        """Take in the commits of the next batch, in as few steps as memory allows.

        `commits` are all commits of the ledger in the batch (`COMMITS_SCHEMA`), `tuples` the
        events with a time that can be read (`TUPLES_SCHEMA`), `ends` the `end` events
        (`ENDS_SCHEMA`). What waits is durable after each step. The state to commit is that of the
        last; the batch before must be committed.
        """
        for buffer in self._buffers.values():
            buffer.forget_released()
        at_once = self._commits_at_once(tuples)
        if commits.num_rows <= at_once:
            yield self._step(commits, tuples, ends)
            return
        for place in range(0, commits.num_rows, at_once):
            some = commits.slice(place, at_once)
            times = some.column("received_at")
            first, last = times[0].as_py(), times[-1].as_py()
            yield self._step(some, _between(tuples, first, last), _between(ends, first, last))

    def _commits_at_once(self, tuples: pa.Table) -> int:
        if all(time.idle_after_us is None for time in self._plan.streams.values()):
            return sys.maxsize
        new = tuples.group_by(["stream", "tenant_id"]).aggregate([])
        lanes = int(self._lanes.num_rows + new.num_rows)
        return max(1, MOVES_AT_ONCE // max(1, lanes))

    def _step(self, commits: pa.Table, tuples: pa.Table, ends: pa.Table) -> Step:
        last = self._check(commits, tuples)
        tuples = self._with_times(tuples)
        connection = self._connection
        maxima = reorder.maxima_of(connection, tuples)
        self._lanes = watermarks.move_watermarks(connection, self._lanes, commits, maxima, ends)
        waiting = self._take_waiting(ends)
        released = reorder.release(connection, tuples, waiting)
        number = segment_number(self._reached)
        for stream, buffer in self._buffers.items():
            nothing = pa.array([], pa.int64())
            put_back = waiting.take(released.waiting_left.get(stream, nothing))
            new = tuples.take(released.fresh_left.get(stream, nothing))
            buffer.settle(number, put_back, new)
        for stream, counts in reorder.count(connection).items():
            buffered = self._buffers.get(stream)
            size = buffered.waiting_count if buffered else 0
            self._metrics[stream] = self._metrics[stream].plus(counts, size)
        start, self._reached = self._reached, last
        moves = watermarks.moves_of(connection, self._watched)
        return Step(start, last, released.records, moves, self._state())

    def _check(self, commits: pa.Table, tuples: pa.Table) -> int:
        times = commits.column("received_at").to_pylist()
        if not times:
            raise _refused("a batch without commits")
        before = [-1 if self._reached is None else self._reached, *times[:-1]]
        if any(time <= earlier for earlier, time in zip(before, times, strict=True)):
            raise _refused("the commits of a batch are not in order, or not after those before")
        timed = pc.invert(pc.is_in(tuples.column("stream"), value_set=self._by_commit))
        if tuples.column("ts").filter(timed).null_count:
            raise _refused("an event without a time")
        return int(times[-1])

    def _with_times(self, tuples: pa.Table) -> pa.Table:
        tuples = tuples.select(reorder.TUPLES_SCHEMA.names).cast(reorder.TUPLES_SCHEMA)
        is_by_commit = pc.is_in(tuples.column("stream"), value_set=self._by_commit)
        times = pc.if_else(is_by_commit, tuples.column("received_at"), tuples.column("ts"))
        return tuples.set_column(tuples.schema.get_field_index("ts"), "ts", times)

    def _take_waiting(self, ends: pa.Table) -> pa.Table:
        reached = reorder.reached(self._connection)
        ended = set(pc.unique(ends.column("stream")).to_pylist())
        return pa.concat_tables(
            [
                TAKEN_SCHEMA.empty_table(),
                *(
                    buffer.take(reached.get(stream), everything=stream in ended)
                    for stream, buffer in self._buffers.items()
                ),
            ]
        )

    def _state(self) -> bytes:
        return msgspec.msgpack.encode(
            TimeState(
                plan=self._plan.name,
                streams=self._plan.streams,
                reached=self._reached,
                lanes=_packed(self._lanes),
                metrics=self._metrics,
                parts={stream: buffer.refs for stream, buffer in self._buffers.items()},
            )
        )


def read_state(state: bytes) -> TimeState:
    """A state as `Step.state_after` has it."""
    return msgspec.msgpack.decode(state, type=TimeState)


def segment_number(start_received_at: int | None) -> int:
    """The first `received_at` that a batch can hold, which names what it writes. A batch starts
    after a commit, or None for the beginning of the ledger."""
    return 0 if start_received_at is None else start_received_at + 1


def _refuse_changes(state: TimeState, plan: TimePlan, buffers: Mapping[str, PartStore]) -> None:
    for stream, time in plan.streams.items():
        before = state.streams.get(stream)
        if before is None:
            # Before a stream is declared it has no events.
            continue
        for setting in StreamTime.__struct_fields__:
            was, now = getattr(before, setting), getattr(time, setting)
            if was != now:
                raise DefinitionChanged(
                    f"{setting} of the time of stream {stream} was {was} and is now {now}",
                    hint="Undo the change, or rebuild from the ledger: what is there was made with "
                    "the old setting.",
                    field=f"streams.{stream}",
                )
        if stream in buffers and stream not in state.parts:
            raise DefinitionChanged(
                f"stream {stream} is to be written in order, but its earlier events were not",
                hint="Undo the change, or rebuild from the ledger.",
                field=f"pipeline.ordered.{stream}",
            )


def _between(rows: pa.Table, first: int, last: int) -> pa.Table:
    """Those that were received in this time, both ends included."""
    times = rows.column("received_at")
    return rows.filter(pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last)))


def _of_stream(lanes: pa.Table, stream: str) -> pa.Table:
    return lanes.filter(pc.equal(lanes.column("stream"), stream))


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as out:
        out.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()


def _refused(message: str) -> BatchRefused:
    return BatchRefused(message, hint="This is a fault of the pipeline; nothing was written.")
