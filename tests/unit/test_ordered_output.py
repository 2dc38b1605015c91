"""A stream in the order of its time, on disk: whole, once, and the same for every cut."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.generated.ledgers import HOUR, Shape, random_ledger
from tests.reference.eventtime import EventTime, reorder
from tests.reference.history import Commit
from tests.unit.test_reorder import TENANTS, steady
from tests.unit.time_runs import Cut, one_by_one, plan_with, random_cut, tables_of, whole
from tidemark.pipeline.files import (
    UNFINISHED_SUFFIX,
    OrderedOutputError,
    OrderedOutputUnavailable,
    replace_durably,
)
from tidemark.pipeline.time.ordered import Format, OrderedOutput, json_lines
from tidemark.pipeline.time.reorder import RECORDS_SCHEMA
from tidemark.pipeline.time.stage import TimeStage, read_state

SETTING = EventTime(late_tolerance=HOUR, future_bound=HOUR, idle_after=3 * 24 * HOUR)
PLAN = plan_with({"trades": SETTING})
NAMES = {"trades": ["trades"]}
FORMATS: list[Format] = ["jsonl", "parquet"]
SEED = 3


class Job:
    """A batch job as its owner writes it. `state` stands for the views: it is all that a crash
    leaves, besides the files."""

    def __init__(self, path: Path, format: Format) -> None:
        self.path, self.format = path, format
        self.state: bytes | None = None

    def start(self) -> None:
        frontier = None if self.state is None else read_state(self.state).reached
        self.output = OrderedOutput(self.path, self.format)
        self.output.recover(frontier)
        self.stage = TimeStage(PLAN, {"trades": self.output.buffer}, self.state)

    def write(self, batch: Sequence[Commit]) -> bytes:
        """Everything up to the commit of the batch."""
        [step] = self.stage.advance(*tables_of(batch, NAMES))
        for table in step.records.values():
            self.output.write(step.start, table)
        return step.state_after

    def run(self, cut: Cut, *, crashes: bool = False) -> None:
        """With crashes, a longer batch is written before each and is never committed."""
        self.start()
        for number, batch in enumerate(cut):
            if crashes:
                self.write(
                    [commit for following in cut[number : number + 3] for commit in following]
                )
                self.stage.close()
                self.start()
            self.state = self.write(batch)
        self.stage.close()

    def segments(self, kind: str) -> list[Path]:
        directory = self.path / kind
        return sorted(directory.iterdir()) if directory.is_dir() else []

    def content(self, kind: str) -> Any:
        """All segments, one after the other."""
        if self.format == "jsonl":
            return b"".join(path.read_bytes() for path in self.segments(kind))
        return pa.concat_tables([pq.read_table(path) for path in self.segments(kind)])


@pytest.fixture(scope="module")
def commits() -> list[Commit]:
    shape = Shape(max_commits=30, max_entries=8, streams=("trades", "trades", "usage"))
    commits = random_ledger(SEED, shape)
    steps = [step for tenant in TENANTS for step in reorder(commits, "trades", tenant, SETTING)]
    assert any(step.late for step in steps), "the ledger has late rows"
    assert any(step.flushed for step in steps), "the ledger has an end that releases"
    return commits


@pytest.mark.parametrize("format", FORMATS)
def test_the_segments_hold_the_same_for_every_cut_and_crash(
    commits: list[Commit], format: Format, tmp_path: Path
) -> None:
    first = Job(tmp_path / "whole", format)
    first.run(whole(commits))
    for name, cut, crashes in (
        ("one by one", one_by_one(commits), False),
        ("random", random_cut(commits, 1), False),
        ("crashing", random_cut(commits, 2), True),
    ):
        job = Job(tmp_path / name, format)
        job.run(cut, crashes=crashes)
        for kind in ("in_order", "late"):
            assert job.content(kind) == first.content(kind), name


def test_lines_say_what_the_reference_says(commits: list[Commit], tmp_path: Path) -> None:
    job = Job(tmp_path, "jsonl")
    job.run(random_cut(commits, 4))
    lines = [json.loads(line) for line in job.content("in_order").splitlines()]
    late = [json.loads(line) for line in job.content("late").splitlines()]
    for tenant_id in TENANTS:
        rows: list[str] = []
        late_rows: list[str] = []
        watermarks = 0
        for step in reorder(commits, "trades", tenant_id, SETTING):
            rows += [*step.rows, *step.flushed]
            watermarks += step.watermark is not None
            late_rows += step.late
        own = [line for line in lines if line["tenantId"] == tenant_id]
        assert [line["idempotencyKey"] for line in own if line["kind"] == "row"] == rows
        assert sum(line["kind"] == "watermark" for line in own) == watermarks
        own_late = [line["idempotencyKey"] for line in late if line["tenantId"] == tenant_id]
        assert own_late == late_rows
    assert {line["kind"] for line in late} == {"late"}


def record(**values: Any) -> dict[str, Any]:
    row = {
        "kind": "row",
        "stream": "s",
        "tenant_id": 'a "b"\n',
        "released_at": 1_763_200_000_000_001,
        "ts": 5,
        "ingress_sequence": 2**53 + 1,
        "received_at": 1_763_200_000_000_000,
        "idempotency_key": "größer\\",
        "data": '{"a":[1,"\\n"]}',
    }
    return row | values


def test_a_line_is_written_as_everywhere_else() -> None:
    records = pa.Table.from_pylist(
        [
            record(),
            {
                "kind": "watermark",
                "stream": "s",
                "tenant_id": None,
                "watermark": -1,
                "released_at": 1_763_200_000_000_001,
            },
            record(kind="late"),
        ],
        RECORDS_SCHEMA,
    )
    lines = json_lines(records).to_pylist()
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in lines)
    row = {
        "kind": "row",
        "stream": "s",
        "tenantId": 'a "b"\n',
        "ts": "1970-01-01T00:00:00.000005Z",
        "ingressSequence": "9007199254740993",
        "receivedAt": "2025-11-15T09:46:40.000000Z",
        "releasedAt": "2025-11-15T09:46:40.000001Z",
        "idempotencyKey": "größer\\",
        "data": {"a": [1, "\n"]},
    }
    assert json.loads(lines[0]) == row
    assert list(json.loads(lines[0])) == list(row)
    assert json.loads(lines[1]) == {
        "kind": "watermark",
        "stream": "s",
        "tenantId": None,
        "watermark": "1969-12-31T23:59:59.999999Z",
        "receivedAt": "2025-11-15T09:46:40.000001Z",
    }
    del row["releasedAt"]
    assert json.loads(lines[2]) == row | {"kind": "late"}


def test_many_lines_keep_their_order() -> None:
    count = 300_000
    table = pa.Table.from_pylist([record()], RECORDS_SCHEMA).take(pa.array([0] * count))
    table = table.set_column(6, "ingress_sequence", pa.array(range(count), pa.int64()))
    found = [
        line.split('"ingressSequence":"')[1].split('"')[0] for line in json_lines(table).to_pylist()
    ]
    assert found == [str(number) for number in range(count)]


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_written_and_not_committed_is_removed(format: Format, tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, format)
    output.recover(None)
    for start, released_at in ((None, 10), (10, 20), (20, 30)):
        for kind in ("row", "late"):
            records = pa.Table.from_pylist(
                [record(kind=kind, released_at=released_at)], RECORDS_SCHEMA
            )
            OrderedOutput(tmp_path, format).write(start, records)
    OrderedOutput(tmp_path, format).recover(20)
    left = [
        [path.name for path in sorted((tmp_path / kind).iterdir())] for kind in ("in_order", "late")
    ]
    names = [f"{0:020d}-{10:020d}.{format}", f"{11:020d}-{20:020d}.{format}"]
    assert left == [names, names]
    OrderedOutput(tmp_path, format).recover(None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_torn_file_is_removed_and_those_of_others_are_left(tmp_path: Path) -> None:
    directory = tmp_path / "in_order"
    directory.mkdir()
    (directory / f"{0:020d}-{10:020d}.jsonl.unfinished").write_bytes(b'{"kind":')
    (directory / "notes.txt").write_text("mine")
    OrderedOutput(tmp_path, "jsonl").recover(5)
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]


def test_a_batch_can_be_written_again_from_the_same_start(tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, "jsonl")
    output.recover(None)
    output.write(None, pa.Table.from_pylist([record(released_at=10)], RECORDS_SCHEMA))
    output.write(10, pa.Table.from_pylist([record(released_at=30)], RECORDS_SCHEMA))
    output.write(10, pa.Table.from_pylist([record(released_at=20)], RECORDS_SCHEMA))
    names = sorted(path.name for path in (tmp_path / "in_order").iterdir())
    assert names == [f"{0:020d}-{10:020d}.jsonl", f"{11:020d}-{20:020d}.jsonl"]


def test_a_segment_that_reaches_beyond_the_frontier_is_refused(tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, "jsonl")
    output.recover(None)
    output.write(None, pa.Table.from_pylist([record(released_at=10)], RECORDS_SCHEMA))
    with pytest.raises(OrderedOutputError, match="what is committed and what is not"):
        OrderedOutput(tmp_path, "jsonl").recover(5)


def test_files_of_another_format_are_refused(tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, "jsonl")
    output.recover(None)
    output.write(None, pa.Table.from_pylist([record(released_at=10)], RECORDS_SCHEMA))
    with pytest.raises(OrderedOutputError, match="holds jsonl files, and parquet is wanted"):
        OrderedOutput(tmp_path, "parquet").recover(10)


def test_a_batch_without_records_writes_no_file(tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, "jsonl")
    output.recover(None)
    output.write(None, RECORDS_SCHEMA.empty_table())
    assert list(tmp_path.iterdir()) == []


def test_parquet_has_times_as_times(tmp_path: Path) -> None:
    output = OrderedOutput(tmp_path, "parquet")
    output.recover(None)
    output.write(None, pa.Table.from_pylist([record(ts=5)], RECORDS_SCHEMA))
    (path,) = (tmp_path / "in_order").iterdir()
    table = pq.read_table(path)
    assert table.column_names == RECORDS_SCHEMA.names
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.column("ts").cast(pa.int64()).to_pylist() == [5]


def test_a_missing_part_of_the_buffer_is_named(tmp_path: Path) -> None:
    job = Job(tmp_path, "jsonl")
    job.run([steady(10)])
    (part,) = (tmp_path / "buffer").iterdir()
    part.unlink()
    with pytest.raises(OrderedOutputError, match=part.name):
        job.start()


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    output = OrderedOutput(tmp_path / "file", "jsonl")
    output.recover(None)
    with pytest.raises(OrderedOutputError, match=os.strerror(errno.EEXIST)):
        output.write(None, pa.Table.from_pylist([record()], RECORDS_SCHEMA))


def test_a_full_disk_is_told_from_a_fault_that_stays(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    # Every write to this device says that there is no room.
    path.with_name(f".{path.name}{UNFINISHED_SUFFIX}").symlink_to("/dev/full")
    with (
        pytest.raises(OrderedOutputUnavailable, match=os.strerror(errno.ENOSPC)),
        replace_durably(path) as file,
    ):
        file.write(b"a line")
    assert not path.exists()
