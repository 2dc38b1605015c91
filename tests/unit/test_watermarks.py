"""W after each commit, from the greatest times of commits alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generated.ledgers import Shape, ledgers
from tests.reference.eventtime import EventTime, data_of, watermark_after
from tests.reference.history import Commit
from tests.unit.test_reorder import NAMES, PLAN, SETTINGS, TENANTS
from tests.unit.time_runs import moves, one_by_one, run, stream_time
from tidemark.pipeline.time.watermarks import (
    COMMITS_SCHEMA,
    ENDS_SCHEMA,
    MAXIMA_SCHEMA,
    move_watermarks,
    no_lanes,
    register_settings,
)

# The greatest time of a commit that is not wild; None if all its times are.
Maxima = Mapping[int, int | None]


class Lane:
    """One lane, `t1` in `s`, from batch to batch."""

    def __init__(self, **settings: int) -> None:
        self.connection = duckdb.connect(":memory:")
        register_settings(self.connection, {"s": stream_time(EventTime(**settings))})
        self.lanes = no_lanes()

    def after(self, commits: Sequence[int], maxima: Maxima, ends: pa.Table | None = None) -> Moves:
        table = pa.Table.from_pylist(
            [
                {"stream": "s", "tenant_id": "t1", "received_at": at, "max_ts": ts}
                for at, ts in maxima.items()
            ],
            MAXIMA_SCHEMA,
        )
        times = pa.table({"received_at": pa.array(commits, pa.int64())}, COMMITS_SCHEMA)
        self.lanes = move_watermarks(
            self.connection,
            self.lanes,
            times,
            table,
            ENDS_SCHEMA.empty_table() if ends is None else ends,
        )
        return {move["received_at"]: move["watermark"] for move in moves(self.connection)}

    @property
    def known(self) -> dict[str, object]:
        (lane,) = self.lanes.to_pylist()
        return dict(lane)


Moves = dict[int, int]


@pytest.fixture
def plain() -> Iterator[Lane]:
    lane = Lane(late_tolerance=2)
    yield lane
    lane.connection.close()


@pytest.fixture
def idling() -> Iterator[Lane]:
    lane = Lane(late_tolerance=5, idle_after=20)
    yield lane
    lane.connection.close()


def test_before_the_first_event_there_is_no_watermark(plain: Lane) -> None:
    assert plain.after([1, 2, 3], {}) == {}
    assert plain.lanes.num_rows == 0


def test_a_watermark_is_the_greatest_time_less_the_tolerance(plain: Lane) -> None:
    assert plain.after([1, 2], {1: 10, 2: 12}) == {1: 8, 2: 10}


def test_it_may_lie_before_1970(plain: Lane) -> None:
    assert plain.after([1], {1: 0}) == {1: -2}


def test_it_does_not_move_back_within_a_batch_or_after_it(plain: Lane) -> None:
    assert plain.after([1, 2], {1: 10, 2: 3}) == {1: 8}
    assert plain.after([3, 4], {3: 9, 4: 11}) == {4: 9}
    assert plain.known["max_seen"] == 11


def test_a_commit_with_wild_times_only_is_data_and_moves_nothing(plain: Lane) -> None:
    assert plain.after([1], {1: None}) == {}
    assert (plain.known["watermark"], plain.known["last_data"]) == (None, 1)


def test_a_lane_is_idle_from_the_very_microsecond_on(idling: Lane) -> None:
    assert idling.after([100, 119, 120], {100: 90}) == {100: 85, 120: 95}


def test_the_silence_is_counted_across_batches(idling: Lane) -> None:
    assert idling.after([100], {100: 90}) == {100: 85}
    assert idling.after([110], {}) == {}
    assert idling.after([130], {}) == {130: 105}
    assert idling.after([131, 140], {140: 1}) == {131: 106}
    assert idling.after([150, 160], {}) == {160: 135}


def test_a_commit_with_data_ends_the_silence_whatever_its_time(idling: Lane) -> None:
    assert idling.after([100, 130, 140, 150], {100: 90, 130: 1}) == {100: 85, 150: 125}


def test_idleness_gives_a_lane_of_wild_times_its_first_watermark(idling: Lane) -> None:
    assert idling.after([100, 120], {100: None}) == {120: 95}


def test_a_lane_that_never_had_data_is_not_idle(idling: Lane) -> None:
    assert idling.after([100, 200], {}) == {}


def test_an_end_moves_no_watermark_and_is_remembered(plain: Lane) -> None:
    ends = pa.Table.from_pylist([{"stream": "s", "tenant_id": "t1", "received_at": 2}], ENDS_SCHEMA)
    assert plain.after([1, 2], {1: 10}, ends) == {1: 8}
    assert plain.known["ended_at"] == 2
    plain.after([3], {3: 11})
    assert plain.known["ended_at"] == 2


@settings(max_examples=settings().max_examples // 10)
@given(ledgers(Shape(streams=("trades", "trades", "usage"))), st.booleans())
def test_any_ledger_moves_the_watermarks_as_the_reference_says(
    commits: list[Commit], restarts: bool
) -> None:
    result = run(one_by_one(commits), PLAN, NAMES, restarts=restarts, stores={})
    found = {
        (move["stream"], move["tenant_id"], move["received_at"]): move["watermark"]
        for move in result.moves
    }
    for stream, setting in SETTINGS.items():
        for tenant_id in TENANTS:
            own = own_commits(commits, tenant_id)
            watermark = None
            for number, (received_at, _) in enumerate(own):
                watermark = found.pop((stream, tenant_id, received_at), watermark)
                assert watermark == watermark_after(own[: number + 1], setting)
    assert not found


def own_commits(commits: Sequence[Commit], tenant_id: str) -> list[Commit]:
    return [
        (
            received_at,
            [
                event
                for event in data_of(events)
                if (event["stream"], event["tenant_id"]) == ("trades", tenant_id)
            ],
        )
        for received_at, events in commits
    ]
