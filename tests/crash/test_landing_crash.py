"""Landing that is killed at any point leaves whole blocks, and goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from tests.contract.events import draft, request
from tests.services.clickhouse import chdb_engine
from tests.services.nursery import run
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.ingress.drafts import no_corrections
from tidemark.ledger.opening import open_ledger

PARQUET_POINTS: Final = ("landing.block_begun", "landing.block_written", "landing.block_landed")
CLICKHOUSE_POINTS: Final = (
    "landing.partition_begun",
    "landing.partition_staged",
    "landing.partition_replaced",
)
LANDING_POINTS: Final = (*PARQUET_POINTS, *CLICKHOUSE_POINTS)
BLOCK: Final = 50
EVENTS: Final = 170
CONFIG: Final = f"""
state_dir: state
streams: {{usage: {{kind: usage}}}}
landing: {{parquet: {{enabled: true, block_events: {BLOCK}}}}}
"""


CLICKHOUSE_CONFIG: Final = CONFIG.replace("parquet", "clickhouse")


def land(home: Path, crash_at: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {n: v for n, v in os.environ.items() if not n.startswith("TIDEMARK_")}
    if crash_at is not None:
        environment["TIDEMARK_CRASH_AT"] = crash_at
    return run(["-m", "tidemark", "land", "--until-caught-up"], cwd=home, env=environment)


def fill(home: Path, first: int, last: int) -> None:
    async def append() -> None:
        config = load_config(home / "tidemark.yaml", {})
        ledger = await open_ledger(config, SystemClock())
        entries = [draft(str(number), str(number)) for number in range(first, last)]
        await ledger.append_group([request(*entries)], no_corrections)
        await ledger.close()

    asyncio.run(append())


def files(home: Path) -> dict[str, bytes]:
    directory = home / "state" / "landing" / "parquet"
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.parquet"))}


def sequences(home: Path) -> list[Any]:
    """As a reader finds them who takes every file there is."""
    directory = home / "state" / "landing" / "parquet"
    found: list[Any] = []
    for path in sorted(directory.glob("events-*")):
        found += pq.read_table(path).column("ingress_sequence").to_pylist()
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tidemark.yaml").write_text(CONFIG)
    fill(tmp_path, 0, EVENTS)
    return tmp_path


def test_a_landing_killed_at_every_point_of_a_block_leaves_no_trace_of_it(home: Path) -> None:
    reached = 0
    for point in PARQUET_POINTS:
        # In its second block, so that one of its own is whole.
        done = land(home, crash_at=f"{point}:2")
        assert done.returncode == -signal.SIGKILL, done.stdout
        found = sequences(home)
        assert found == list(range(1, len(found) + 1)), point
        assert len(found) % BLOCK == 0, point
        assert len(found) >= reached
        reached = len(found)
        if reached >= 2 * BLOCK:
            # There are to be two blocks more for the next to die in.
            for path in sorted((home / "state" / "landing" / "parquet").glob("events-*"))[1:]:
                path.unlink()
            reached = BLOCK
    assert land(home).returncode == 0
    disturbed = files(home)
    assert sequences(home) == list(range(1, EVENTS + 1))
    assert not list((home / "state" / "landing" / "parquet").glob("*.unfinished"))
    for path in (home / "state" / "landing" / "parquet").glob("*"):
        path.unlink()
    assert land(home).returncode == 0
    assert files(home) == disturbed


def test_a_block_that_was_growing_is_as_it_was_when_its_next_writing_is_killed(home: Path) -> None:
    assert land(home).returncode == 0
    before = files(home)
    fill(home, EVENTS, EVENTS + 10)
    for point in PARQUET_POINTS[:2]:
        done = land(home, crash_at=point)
        assert done.returncode == -signal.SIGKILL, done.stdout
        assert files(home) == before
    assert land(home).returncode == 0
    assert sequences(home) == list(range(1, EVENTS + 11))
    assert list(files(home))[:-1] == list(before)[:-1]


def in_clickhouse(home: Path) -> list[tuple[int, int]]:
    """Sequence and partition of every row there is, in the order of the table."""
    with chdb_engine(home / "state" / "landing" / "chdb") as engine:
        query = "SELECT ingress_sequence, _partition_id FROM tidemark.events ORDER BY 1"
        return [(sequence, int(number)) for sequence, number in engine.rows(query)]


def in_blocks(last: int) -> list[tuple[int, int]]:
    return [(sequence, (sequence - 1) // BLOCK) for sequence in range(1, last + 1)]


def test_a_landing_in_clickhouse_that_is_killed_leaves_no_hole_and_nothing_twice(
    home: Path,
) -> None:
    (home / "tidemark.yaml").write_text(CLICKHOUSE_CONFIG)
    # Each time one block is landed, and the next is being landed when it dies.
    for point, reached in zip(CLICKHOUSE_POINTS, (50, 100, EVENTS), strict=True):
        done = land(home, crash_at=f"{point}:2")
        assert done.returncode == -signal.SIGKILL, done.stdout
        assert in_clickhouse(home) == in_blocks(reached), point
    # A block that was growing is as it was when its next writing is killed.
    fill(home, EVENTS, EVENTS + 10)
    for point in CLICKHOUSE_POINTS[:2]:
        done = land(home, crash_at=point)
        assert done.returncode == -signal.SIGKILL, done.stdout
    assert in_clickhouse(home) == in_blocks(EVENTS)
    for _ in range(2):
        assert land(home).returncode == 0
        assert in_clickhouse(home) == in_blocks(EVENTS + 10)
    with chdb_engine(home / "state" / "landing" / "chdb") as engine:
        assert engine.rows("SHOW TABLES FROM tidemark") == [("events",), ("events_landing",)]
