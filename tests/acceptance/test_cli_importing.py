"""`import`: a history gets its order on the ledger of a configuration, without a server."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import on_terminal, tidemark, without_escapes
from tidemark.config import sample_text


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    return tmp_path


def past(number: int, **more: Any) -> dict[str, Any]:
    return {
        "tenantId": "acme",
        "metric": "bytes",
        "customerRef": f"c{number}",
        "ts": f"2025-01-01T00:00:{number:02d}Z",
        "quantity": number,
        # Two events each were received together.
        "receivedAt": f"2025-01-02T00:00:{number // 2:02d}Z",
        **more,
    }


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def customers(home: Path) -> list[str]:
    """In the order of the ledger."""
    with contextlib.closing(sqlite3.connect(home / "tidemark-state" / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT customer_ref FROM events ORDER BY ingress_sequence")
        return [row[0] for row in rows]


def test_a_history_in_any_order_gets_its_own(home: Path) -> None:
    events = [past(number) for number in range(10)]
    random.Random(1).shuffle(events)
    write(home / "one.jsonl", events[:6])
    write(home / "two.jsonl", events[6:])
    ran = tidemark("import", "two.jsonl", "one.jsonl", cwd=home)
    assert ran.code == 0
    assert "configured by tidemark.yaml" in ran.out
    assert "10 lines: 10 events imported in 5 commits" in ran.out
    assert "Sequences 1 to 10" in ran.out
    assert customers(home) == [f"c{number}" for number in range(10)]
    again = tidemark("import", "one.jsonl", "two.jsonl", "--json", cwd=home)
    assert (again.code, again.json["alreadyImported"], again.json["accepted"]) == (0, 10, 0)


def test_one_bad_line_stops_everything_unless_it_may_be_left_out(home: Path) -> None:
    file = write(home / "history.jsonl", [past(1), past(2, ts="yesterday"), past(3)])
    ran = tidemark("import", file, cwd=home)
    assert ran.code == 3
    assert "Nothing was imported" in ran.out
    assert "history.jsonl, line 2: rejected" in ran.err
    assert "--skip-invalid" in ran.err
    assert customers(home) == []
    document = tidemark("import", file, "--json", cwd=home).json
    assert (document["complete"], document["error"]["code"]) == (False, "history_invalid")
    skipped = tidemark("import", file, "--skip-invalid", "--json", cwd=home)
    assert skipped.code == 3
    assert (skipped.json["complete"], skipped.json["accepted"]) == (True, 2)
    [refusal] = skipped.json["refusals"]
    assert (refusal["line"], refusal["field"]) == (2, "ts")
    assert customers(home) == ["c1", "c3"]


def test_a_ledger_that_holds_something_else_is_left_as_it_is(home: Path) -> None:
    assert tidemark("import", write(home / "a.jsonl", [past(1)]), cwd=home).code == 0
    ran = tidemark("import", write(home / "b.jsonl", [past(2)]), "--json", cwd=home)
    assert (ran.code, ran.json["error"]["code"]) == (1, "import_refused")
    assert customers(home) == ["c1"]


def test_csv_and_stdin_are_imported_too(home: Path) -> None:
    header, *rows = ["receivedAt,tenantId,metric,customerRef,ts,quantity"] + [
        f"2025-01-02T00:00:0{n}Z,acme,bytes,c{n},2025-01-01T00:00:00Z,{n}" for n in range(3)
    ]
    text = "\n".join([header, *rows])
    ran = tidemark("import", "-", "--format", "csv", "--json", cwd=home, stdin=text)
    assert (ran.code, ran.json["accepted"]) == (0, 3)


def test_a_file_that_is_not_there_is_told_before_the_others_are_read(home: Path) -> None:
    file = write(home / "a.jsonl", [past(1)])
    ran = tidemark("import", file, "missing.jsonl", "--json", cwd=home)
    assert (ran.code, ran.json["error"]["code"]) == (2, "event_file_unreadable")
    assert not (home / "tidemark-state").exists()


def test_a_history_without_times_of_receipt_is_told(home: Path) -> None:
    (home / "a.csv").write_text("tenantId,metric\nacme,bytes\n")
    ran = tidemark("import", "a.csv", cwd=home)
    assert ran.code == 2
    assert "receivedAt" in ran.err


def test_a_terminal_shows_how_far_it_is(home: Path) -> None:
    events = [
        past(n % 60, customerRef=f"c{n}", receivedAt="2025-01-02T00:00:00Z") for n in range(3000)
    ]
    ran = on_terminal("import", write(home / "a.jsonl", events), cwd=home)
    assert ran.code == 0
    shown = without_escapes(ran.out)
    assert "━" in shown
    assert "3,000 events imported in 1 commit" in shown


def test_postgresql_is_imported_into_by_the_environment(home: Path, postgres_url: str) -> None:
    file = write(home / "a.jsonl", [past(1), past(2)])
    env = {"TIDEMARK_LEDGER__URL": postgres_url}
    ran = tidemark("import", file, "--json", cwd=home, env=env)
    assert (ran.code, ran.json["accepted"]) == (0, 2)
    assert not (home / "tidemark-state").exists()
