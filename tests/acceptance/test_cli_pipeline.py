"""`tidemark pipeline`: caught up or following, waiting for what passes, ended by what does not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_runs import (
    Ran,
    on_terminal,
    started,
    stop,
    tidemark,
    wait_until,
    without_escapes,
)
from tests.acceptance.pipelines import CONFIG, fill_ledger, history, java_of, write_config
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.http_calls import call
from tests.services.ports import free_port
from tests.services.processes import is_running

STOPPED_WITHIN_S = 8.0
USAGE = {"tenantId": "acme", "metric": "api_calls", "customerRef": "c-9", "quantity": "2"}


def views(home: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home / "state" / "views.db")) as connection:
        return connection.execute(statement).fetchall()


def told(home: Path) -> list[Any]:
    """The code of what the ledger was told that keeps the pipeline from going on."""
    with closing(sqlite3.connect(home / "state" / "ledger.db")) as connection:
        rows = connection.execute("SELECT code FROM copies WHERE name = 'pipeline'")
        return [code for (code,) in rows]


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A ledger of three days, folded once; who changes something works on a copy."""
    home = tmp_path_factory.mktemp("folded")
    write_config(home, CONFIG + "pipeline: {change_retention: 1d}\n")
    fill_ledger(home, history())
    return home, tidemark_on_spark("pipeline", "--until-caught-up", "--json", cwd=home)


@pytest.fixture
def home(folded: tuple[Path, Ran], tmp_path: Path) -> Path:
    shutil.copytree(folded[0], tmp_path / "home")
    return tmp_path / "home"


def test_it_ends_when_everything_is_folded_and_says_how_much_that_was(
    folded: tuple[Path, Ran],
) -> None:
    home, ran = folded
    assert ran.code == 0, ran.err
    document = ran.json
    assert list(document) == ["config", "caughtUp", "sequence", "events", "seconds"]
    assert (document["caughtUp"], document["sequence"], document["events"]) == (True, "36", 36)
    assert views(home, "SELECT count(*), sum(agg_count) FROM view_api_calls") == [(3, 18)]
    assert len(views(home, "SELECT * FROM adjustments")) == 2
    assert len(views(home, "SELECT * FROM pipeline_errors")) == 3


def test_changes_are_forgotten_by_the_time_of_the_ledger_and_not_by_the_clock(
    folded: tuple[Path, Ran],
) -> None:
    """The ledger is of March; by the clock all of its changes would be too old."""
    home, _ = folded
    [(reached,)] = views(home, "SELECT received_at FROM frontier")
    [(oldest,)] = views(home, "SELECT min(received_at) FROM view_changes")
    assert reached - 86_400_000_000 <= oldest < reached


def test_a_second_run_finds_nothing_to_do_and_shows_a_bar_on_a_terminal(home: Path) -> None:
    ran = on_terminal("pipeline", "--until-caught-up", cwd=home)
    shown = without_escapes(ran.out)
    assert ran.code == 0
    assert "starting Spark" in shown
    assert re.search(r"folding ━+ +100% .*sequence 36, .*events/s, caught up", shown)
    assert "Caught up: 0 events in " in shown
    assert "The views are at sequence 36" in shown


def test_a_store_of_triggers_that_is_away_is_told_when_the_work_is_done(home: Path) -> None:
    nobody = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    env = {"TIDEMARK_TRIGGER_STORE__URL": nobody}
    ran = tidemark_on_spark("pipeline", "--until-caught-up", "--json", cwd=home, env=env)
    assert ran.code == 0, ran.err
    assert ran.json["caughtUp"] is True
    assert "old changes are kept until the next try" in ran.err


def test_it_follows_the_ledger_survives_its_java_and_stops_in_order(home: Path) -> None:
    """From views that are older than they were, as after a restore."""
    for file in (home / "state").glob("views.db*"):
        file.unlink()
    with (
        started("serve", "--json", cwd=home) as server,
        started("pipeline", cwd=home) as pipeline,
    ):
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]

        def counted(ts: str) -> bool:
            event = {**USAGE, "ts": ts}
            answer = call(url, "POST", "/v1/events", json={"events": [event]}).json
            sequence = answer["results"][0]["ingressSequence"]
            wait_until(lambda: int(part()["lastSequence"]) >= int(sequence))
            entries = call(url, "GET", "/v1/usage?customerRef=c-9").json["usage"]
            return any(entry["watermarkTs"] == ts for entry in entries)

        def part() -> Any:
            return call(url, "GET", "/readyz").json["parts"]["pipeline"]

        assert counted("2026-03-04T00:00:00.000000Z")
        second = tidemark("pipeline", "--json", cwd=home)
        assert (second.code, second.json["error"]["code"]) == (1, "pipeline_running")
        assert "tidemark up" in second.json["error"]["hint"]

        [java] = java_of(pipeline.pid)
        os.kill(java, signal.SIGKILL)
        wait_until(lambda: part()["state"] == "degraded")
        assert "spark.log" in part()["reason"]
        wait_until(lambda: told(home) == ["spark_unavailable"])
        assert counted("2026-03-05T00:00:00.000000Z")
        wait_until(lambda: part()["state"] == "ready")
        wait_until(lambda: told(home) == [None])

        [java] = java_of(pipeline.pid)
        asked_at = time.monotonic()
        ran = stop(pipeline, signal.SIGTERM)
        assert time.monotonic() - asked_at < STOPPED_WITHIN_S
        wait_until(lambda: not is_running(java))
        assert stop(server).code == 0
    assert (ran.code, "Pipeline stopped: 38 events in " in ran.out) == (0, True)
    assert "the views are at sequence 0 and have been at 36: they were restored from" in ran.err
    assert "the pipeline goes on in" in ran.err
    assert list((home / "state" / "spark" / "scratch").iterdir()) == []


def test_a_signal_while_spark_starts_ends_it_and_its_java(home: Path) -> None:
    with started("pipeline", "--until-caught-up", cwd=home) as process:
        wait_until(lambda: java_of(process.pid))
        [java] = java_of(process.pid)
        ran = stop(process, signal.SIGTERM)
        wait_until(lambda: not is_running(java))
    assert (ran.code, ran.err) == (143, "")


def changed(old: str, new: str) -> str:
    assert old in CONFIG
    return CONFIG.replace(old, new)


METER = "{aggregate: sum, period: month, lateness: 1h}"
EVENTTIME = "pipeline: {eventtime: {enabled: true}}\n"


@pytest.mark.parametrize(
    ("text", "code", "field", "names"),
    [
        pytest.param(
            changed(
                "    fields: {trade_id",
                "    eventtime: {column: quantity, type: stardate}\n    fields: {trade_id",
            )
            + EVENTTIME,
            "config_invalid",
            "streams.trades.eventtime.type",
            ["stardate", "unixtimestamp_s", "iso8601"],
            id="unknown eventtime.type",
        ),
        pytest.param(
            changed(
                "    fields: {trade_id",
                "    eventtime: {column: at, type: iso8601}\n    fields: {trade_id",
            )
            + EVENTTIME,
            "config_invalid",
            "streams.trades.eventtime.column",
            ["at", "quantity"],
            id="missing eventtime.column",
        ),
        pytest.param(
            changed(METER, "{aggregate: median}"),
            "config_invalid",
            "meters.api_calls.aggregate",
            ["median", "sum", "unique"],
            id="unknown aggregate",
        ),
        pytest.param(
            changed(METER, "{period: fortnight}"),
            "config_invalid",
            "meters.api_calls.period",
            ["fortnight", "week"],
            id="a period that does not exist",
        ),
        pytest.param(
            changed("quantity * price", "quantity * prize"),
            "config_invalid",
            "views.trades.calculated.notional",
            ["prize", "price"],
            id="a bad SQL expression",
        ),
        pytest.param(
            changed(METER, "{aggregate: max, period: month, lateness: 1h}"),
            "definition_changed",
            "api_calls",
            ["another definition", "Change the definition back"],
            id="a changed definition",
        ),
        pytest.param(
            changed("state_dir: state", "state_dir: tidemark.yaml/state"),
            "config_invalid",
            "state_dir",
            ["TIDEMARK_STATE_DIR"],
            id="an unwritable state directory",
        ),
        pytest.param(
            CONFIG + "spark: {java_home: /nowhere}\n",
            "java_missing",
            "spark.java_home",
            ["/nowhere/bin/java", "Install a Java"],
            id="a missing Java",
        ),
        pytest.param(
            "state_dir: state\nstreams: {usage: {kind: usage}}\n",
            "config_invalid",
            "meters",
            ["no meters and no views"],
            id="nothing to fold",
        ),
    ],
)
def test_what_only_a_person_can_mend_stops_it_at_start_and_names_the_fix(
    home: Path, text: str, code: str, field: str, names: list[str]
) -> None:
    write_config(home, text)
    run = tidemark if code == "java_missing" else tidemark_on_spark
    ran = run("pipeline", "--until-caught-up", "--json", cwd=home)
    error = ran.json["error"]
    assert (ran.code, error["code"]) == (2, code)
    [problem] = error.get("problems", [{**error, "path": error.get("field")}])
    assert problem["path"] == field
    for name in names:
        assert name in problem["message"] + problem["hint"], problem


def test_a_ledger_from_an_old_backup_is_named_also_when_it_went_on_since(
    home: Path, tmp_path: Path
) -> None:
    _as_old_backup(home / "state" / "ledger.db", _other_ledger(tmp_path, days=2))
    _assert_rewound(home, "the views hold 36 events, and the ledger ends at 25")
    # A server that works in another directory, as on another machine, knows it too.
    env = {
        "TIDEMARK_STATE_DIR": str(tmp_path / "elsewhere"),
        "TIDEMARK_LEDGER__URL": f"sqlite:///{home / 'state' / 'ledger.db'}",
        "TIDEMARK_VIEW_STORE__URL": f"sqlite:///{home / 'state' / 'views.db'}",
    }
    with started("serve", "--json", cwd=home, env=env) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        part = call(url, "GET", "/readyz").json["parts"]["pipeline"]
        assert (part["state"], part["lastSequence"]) == ("degraded", "36")
        assert "the views hold 36 events" in part["reason"]
        event = {**USAGE, "ts": "2026-03-04T00:00:00Z"}
        assert call(url, "POST", "/v1/events", json={"events": [event]}).json["accepted"] == 1
        assert stop(server).code == 0
    _assert_rewound(home, "is another one in this ledger")


def test_a_ledger_that_the_views_were_not_made_from_is_named(home: Path, tmp_path: Path) -> None:
    shutil.copy(_other_ledger(tmp_path, days=3), home / "state" / "ledger.db")
    _assert_rewound(home, "the views were made from the ledger")


def _other_ledger(directory: Path, *, days: int) -> Path:
    other = directory / "other"
    other.mkdir()
    write_config(other)
    fill_ledger(other, history(days=range(1, days + 1)))
    return other / "state" / "ledger.db"


def _as_old_backup(ledger: Path, shorter: Path) -> None:
    """Put the shorter one in its place, as if it had been the same ledger when it was young."""
    with closing(sqlite3.connect(ledger)) as connection:
        [(ledger_id,)] = connection.execute("SELECT ledger_id FROM ledger").fetchall()
    with closing(sqlite3.connect(shorter)) as connection, connection:
        connection.execute("UPDATE ledger SET ledger_id = ?", (ledger_id,))
    shutil.copy(shorter, ledger)


def _assert_rewound(home: Path, says: str) -> None:
    ran = tidemark("pipeline", "--json", cwd=home)
    error = ran.json["error"]
    assert (ran.code, error["code"]) == (1, "ledger_rewound")
    assert says in error["message"]
    assert "ebuild the views" in error["hint"]
    assert tidemark("verify", "--json", cwd=home).json["error"] == error


def test_check_looks_at_expressions_if_it_is_asked_to(home: Path) -> None:
    write_config(home, changed("quantity * price", "quantity * prize"))
    assert "not checked; --expressions does" in tidemark("check", cwd=home).out
    ran = tidemark_on_spark("check", "--expressions", "--json", cwd=home)
    assert (ran.code, ran.json["error"]["field"]) == (2, "views.trades.calculated.notional")
    types = "pipeline: {eventtime: {enabled: true, types: {mine: nowhere.at_all:parse}}}\n"
    column = "    eventtime: {column: quantity, type: mine}\n    fields: {trade_id"
    write_config(home, changed("    fields: {trade_id", column) + types)
    ran = tidemark_on_spark("check", "--expressions", cwd=home)
    assert (ran.code, "nowhere.at_all" in ran.err) == (2, True)
