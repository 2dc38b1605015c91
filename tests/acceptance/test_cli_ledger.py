"""`migrate` and `confirm-clock`: the operator's work on the ledger itself."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import tidemark
from tests.services.postgres import PostgresServer
from tidemark.config import sample_text


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    return tmp_path


def test_a_dry_run_changes_nothing(home: Path) -> None:
    ran = tidemark("migrate", "--dry-run", "--json", cwd=home)
    assert ran.code == 0
    assert [migration["version"] for migration in ran.json["pending"]] == [1, 2, 3, 1, 2, 1, 2, 3]
    assert [path.name for path in home.iterdir()] == ["tidemark.yaml"]


def test_migrate_makes_a_ledger_once(home: Path) -> None:
    first = tidemark("migrate", cwd=home)
    assert first.code == 0
    assert "configured by tidemark.yaml" in first.out
    assert "8 migrations applied" in first.out
    assert "up to date" in tidemark("migrate", cwd=home).out


def test_migrate_works_on_postgresql_by_the_environment_alone(
    tmp_path: Path, postgres_url: str
) -> None:
    env = {"TIDEMARK_LEDGER__URL": postgres_url}
    assert tidemark("migrate", "--json", cwd=tmp_path, env=env).json["applied"] != []
    again = tidemark("migrate", "--json", cwd=tmp_path, env=env)
    assert (again.code, again.json["applied"], again.json["config"]) == (0, [], None)


def test_a_postgresql_that_is_away_is_an_error_with_a_hint(
    tmp_path: Path, second_postgres: PostgresServer
) -> None:
    url = second_postgres.create_database()
    second_postgres.stop()
    for verb in ("migrate", "serve", "confirm-clock"):
        ran = tidemark(verb, "--json", cwd=tmp_path, env={"TIDEMARK_LEDGER__URL": url})
        assert (ran.code, ran.err) == (1, "")
        assert ran.json["error"]["code"] == "ledger_unavailable"
        assert ran.json["error"]["hint"]


def test_a_state_directory_that_cannot_be_made_is_an_error_with_a_hint(home: Path) -> None:
    (home / "tidemark-state").write_text("a file")
    for verb in ("migrate", "up"):
        ran = tidemark(verb, "--json", cwd=home)
        assert (ran.code, ran.json["error"]["code"]) == (1, "ledger_unavailable")
        assert "state_dir" in ran.json["error"]["hint"]


def test_another_salt_than_the_ledgers_is_a_fault_of_the_configuration(home: Path) -> None:
    env = {"TIDEMARK_LEDGER__SALT": "one"}
    tidemark("migrate", cwd=home)
    assert tidemark("confirm-clock", cwd=home, env=env).code == 0
    ran = tidemark("up", "--json", cwd=home, env={"TIDEMARK_LEDGER__SALT": "two"})
    assert (ran.code, ran.json["error"]["code"]) == (2, "salt_mismatch")


def test_confirming_the_clock_ends_a_hold(home: Path) -> None:
    tidemark("migrate", cwd=home)
    assert tidemark("confirm-clock", "--json", cwd=home).json["held"] is None
    with contextlib.closing(sqlite3.connect(home / "tidemark-state" / "ledger.db")) as ledger:
        hold = {"boot": "unknown", "host": "", "leap_us": 7_200_000_000}
        ledger.execute("UPDATE ledger SET clock_hold = ?", (json.dumps([hold]),))
        ledger.commit()
    ran = tidemark("confirm-clock", cwd=home)
    assert ran.code == 0
    assert "leapt forward by 7200 s" in ran.out
    assert "Nothing was held" in tidemark("confirm-clock", cwd=home).out


def test_there_is_no_clock_to_confirm_where_there_is_no_ledger(home: Path) -> None:
    ran = tidemark("confirm-clock", "--json", cwd=home)
    assert (ran.code, ran.json["error"]["code"]) == (1, "schema_mismatch")
    assert not (home / "tidemark-state").exists()
