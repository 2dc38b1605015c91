"""The SQL of `docs/howto/clickhouse.md`, run as it stands there on what `tidemark land` landed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import tidemark
from tests.acceptance.pipelines import fill_ledger, write_config
from tests.services.clickhouse import Engine, chdb_engine

PAGE = (Path(__file__).parents[2] / "docs/howto/clickhouse.md").read_text()
CONFIG = """
state_dir: state
streams: {usage: {kind: usage}, notes: {fields: {text: string}}}
landing: {clickhouse: {enabled: true, block_events: 5}}
"""


def statements() -> list[str]:
    blocks = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [part for block in blocks for part in re.split(r";\n", block) if part.strip()]


def usage(key: str, day: int, quantity: str, *, run: str | None = None, at: int = 1) -> Any:
    event = {
        "tenantId": "acme",
        "metric": "api_calls",
        "customerRef": "c-1",
        "ts": f"2026-03-{day:02d}T12:00:00Z",
        "quantity": quantity,
        "idempotencyKey": key,
        "receivedAt": f"2026-04-{at:02d}T00:00:00Z",
    }
    return event if run is None else {**event, "causalityKey": run}


def correction(control: str, target: str, at: int, **more: Any) -> Any:
    common = {"tenantId": "acme", "control": control, "target": target}
    return {**common, "receivedAt": f"2026-04-{at:02d}T00:00:00Z", **more}


def amended(target: str, at: int, day: int, quantity: str) -> Any:
    event = {"ts": f"2026-03-{day:02d}T00:00:00Z", "quantity": quantity}
    return correction("amend", target, at, event=event)


NOTE = {
    "stream": "notes",
    "tenantId": "acme",
    "data": {"text": "no usage"},
    "idempotencyKey": "note",
    "receivedAt": "2026-04-01T00:00:00Z",
}
# Why the page has no view of this kind.
ORDINARY_VIEW = (
    "CREATE MATERIALIZED VIEW tidemark.counted ENGINE = SummingMergeTree ORDER BY stream"
    " AS SELECT stream, count() AS events FROM tidemark.events GROUP BY stream"
)
FIRST = [
    usage("a", 1, "1.5", run="run-7"),
    usage("b", 1, "2"),
    usage("c", 2, "4", run="run-7"),
    usage("d", 2, "8", run="run-8"),
    usage("e", 3, "16"),
    usage("f", 3, "32"),
    NOTE,
    correction("void", "b", 2),
    amended("c", 3, day=4, quantity="5"),
]
MORE = [
    usage("g", 3, "64", run="run-7", at=4),
    # Of an event in a block before, and again.
    amended("c", 5, day=5, quantity="6"),
    amended("d", 5, day=5, quantity="7"),
    correction("void", "d", 6),
]


def landed(home: Path, lines: Sequence[Any]) -> None:
    fill_ledger(home, lines)
    assert tidemark("land", "--until-caught-up", cwd=home).code == 0


def refreshed(engine: Engine, view: str, columns: str) -> list[tuple[Any, ...]]:
    engine.run(f"SYSTEM REFRESH VIEW tidemark.{view}")
    engine.run(f"SYSTEM WAIT VIEW tidemark.{view}")
    return engine.rows(f"SELECT {columns} FROM tidemark.{view} ORDER BY ALL")


def by_day(engine: Engine) -> list[tuple[int, Decimal, int]]:
    rows = refreshed(engine, "usage_by_day", "toDayOfMonth(day), total, events")
    return [(day, Decimal(total), count) for day, total, count in rows]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path, CONFIG)
    return tmp_path


def test_the_views_of_the_page_follow_blocks_that_grow_and_count_nothing_twice(home: Path) -> None:
    usage_by_day, runs, add_index, fill_index, history = statements()
    landed(home, FIRST)
    with chdb_engine(home / "state/landing/chdb") as engine:
        for statement in (usage_by_day, runs, add_index, fill_index, ORDINARY_VIEW):
            engine.run(statement)
        assert by_day(engine) == [
            (1, Decimal("1.5"), 1),
            (2, Decimal(8), 1),
            (3, Decimal(48), 2),
            (4, Decimal(5), 1),
        ]
        assert [row[0] for row in engine.rows(history)] == [1, 3]
    landed(home, [*FIRST, *MORE])
    with chdb_engine(home / "state/landing/chdb") as engine:
        assert by_day(engine) == [
            (1, Decimal("1.5"), 1),
            (3, Decimal(112), 3),
            (5, Decimal(6), 1),
        ]
        columns = "causality_key, first_sequence, last_sequence, events"
        assert refreshed(engine, "runs", columns) == [("run-7", 1, 10, 3), ("run-8", 4, 4, 1)]
        rows = engine.rows(history)
        assert [(row[0], row[3]) for row in rows] == [(1, "a"), (3, "c"), (10, "g")]
        # It is in every block, also in those that were landed since.
        plan = "\n".join(str(row[0]) for row in engine.rows(f"EXPLAIN indexes = 1 {history}"))
        assert "by_run" in plan
        assert engine.rows("SELECT * FROM tidemark.counted") == []
