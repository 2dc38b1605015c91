"""`land` and `verify --deep`: events for analysts, and the proof that they are the ledger's."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.acceptance.cli_runs import started, stop, tidemark, wait_until
from tests.acceptance.pipelines import CONFIG, fill_ledger, history, write_config
from tests.acceptance.warm_runs import tidemark_on_spark
from tests.services.clickhouse import chdb_engine
from tests.services.http_calls import call
from tests.services.parquet_blocks import rewrite
from tests.services.ports import free_port

LANDING = "landing: {parquet: {enabled: true, block_events: 10, every: 50ms}}\n"
USAGE = {"tenantId": "acme", "metric": "api_calls", "customerRef": "c", "quantity": "2"}
EVENT_COUNT = 36
# Beside the files that LANDING enables.
CLICKHOUSE = {
    "TIDEMARK_LANDING__CLICKHOUSE__ENABLED": "true",
    "TIDEMARK_LANDING__CLICKHOUSE__BLOCK_EVENTS": "10",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_config(tmp_path, CONFIG + LANDING)
    fill_ledger(tmp_path, history())
    return tmp_path


def landed(home: Path) -> list[int]:
    directory = home / "state" / "landing" / "parquet"
    if not any(directory.glob("*.parquet")):
        return []
    query = f"SELECT ingress_sequence FROM read_parquet('{directory / '*.parquet'}')"
    return [row[0] for row in duckdb.sql(query).fetchall()]


def told(home: Path) -> dict[str, tuple[int, str | None]]:
    """What the ledger was told of each target: how far it is, and what keeps it from going on."""
    with closing(sqlite3.connect(home / "state" / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT name, last_sequence, code FROM copies").fetchall()
    return {name: (sequence, code) for name, sequence, code in rows}


def test_it_ends_when_everything_is_landed_and_says_where(home: Path) -> None:
    ran = tidemark("land", "--until-caught-up", "--json", cwd=home)
    assert ran.code == 0, ran.err
    document = ran.json
    assert list(document) == ["config", "caughtUp", "landed"]
    place = str(home / "state" / "landing" / "parquet")
    files = {"target": "parquet", "place": place, "sequence": str(EVENT_COUNT)}
    assert (document["caughtUp"], document["landed"]) == (True, [files])
    assert landed(home) == list(range(1, EVENT_COUNT + 1))
    assert told(home) == {"landing.parquet": (EVENT_COUNT, None)}
    again = tidemark("land", "--until-caught-up", cwd=home, env=CLICKHOUSE)
    chdb = home / "state" / "landing" / "chdb"
    assert again.out == (
        f"Landed up to sequence {EVENT_COUNT} in {place}.\n"
        f"Landed up to sequence {EVENT_COUNT} in tidemark.events in {chdb}.\n"
    )
    assert told(home)["landing.clickhouse"] == (EVENT_COUNT, None)


def test_it_follows_the_ledger_until_it_is_stopped_and_only_one_does(home: Path) -> None:
    port = free_port()
    with (
        started("serve", "--json", "--port", port, cwd=home) as server,
        started("land", "--json", cwd=home) as process,
    ):
        wait_until(lambda: len(landed(home)) == EVENT_COUNT)
        # Not always at once: it tells no more than once a second.
        wait_until(lambda: told(home).get("landing.parquet") == (EVENT_COUNT, None))
        second = tidemark("land", "--json", cwd=home)
        assert (second.code, second.json["error"]["code"]) == (1, "landing_running")
        assert told(home) == {"landing.parquet": (EVENT_COUNT, None)}
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        event = {**USAGE, "ts": "2026-03-04T00:00:00Z"}
        assert call(url, "POST", "/v1/events", json={"events": [event]}).json["accepted"] == 1
        wait_until(lambda: len(landed(home)) == EVENT_COUNT + 1)
        wait_until(lambda: told(home)["landing.parquet"] == (EVENT_COUNT + 1, None))
        ran = stop(process, signal.SIGTERM)
        assert stop(server).code == 0
    assert (ran.code, ran.json["caughtUp"], ran.json["landed"]) == (0, False, [])


def test_up_lands_beside_the_server_and_ends_it_too(home: Path) -> None:
    env = {"TIDEMARK_PIPELINE__ENABLED": "false"}
    with started("up", "--json", "--port", free_port(), cwd=home, env=env) as process:
        wait_until(lambda: len(landed(home)) == EVENT_COUNT)
        ran = stop(process)
    assert (ran.code, ran.err) == (0, "")
    # Nobody holds the directory any more.
    assert tidemark("land", "--until-caught-up", cwd=home).code == 0


def test_what_is_landed_is_proven_and_the_first_difference_named(home: Path) -> None:
    assert tidemark("land", "--until-caught-up", cwd=home).code == 0
    ran = tidemark_on_spark("verify", "--deep", cwd=home)
    assert ran.code == 0
    assert (
        "Landed in Parquet: 4 blocks, 36 events from the first on, as in the ledger.\n" in ran.out
    )
    path = sorted((home / "state" / "landing" / "parquet").glob("*.parquet"))[2]
    table = pq.read_table(path)
    offset = table.column_names.index("kafka_offset")
    offsets = pa.array([*range(2), *[-1] * (table.num_rows - 2)], pa.int64())
    rewrite(path, table.set_column(offset, table.schema.field(offset), [offsets]))
    ran = tidemark_on_spark("verify", "--deep", cwd=home)
    assert ran.code == 0
    assert "Landed in Parquet: 2 events with a place in Kafka that has changed since.\n" in ran.out
    keys = table.column("idempotency_key").to_pylist()
    keys[4] = "forged"
    place = table.column_names.index("idempotency_key")
    rewrite(path, table.set_column(place, table.schema.field(place), [keys]))
    ran = tidemark_on_spark("verify", "--deep", cwd=home)
    assert ran.code == 1
    assert re.search(
        rf"Landed in Parquet: {path.name}: an event differs, sequence 25: idempotency_key is"
        r" \"forged\", in the ledger it is \".+\"\n",
        ran.out,
    )
    document = tidemark_on_spark("verify", "--deep", "--json", cwd=home).json
    [files] = document["landing"]
    assert (document["same"], files["target"]) == (False, "parquet")
    assert files["difference"]["sequence"] == "25"


def test_what_is_landed_in_clickhouse_is_proven_beside_the_files(home: Path) -> None:
    assert tidemark("land", "--until-caught-up", cwd=home, env=CLICKHOUSE).code == 0
    ran = tidemark_on_spark("verify", "--deep", cwd=home, env=CLICKHOUSE)
    assert ran.code == 0
    for name in ("Parquet", "ClickHouse"):
        assert f"Landed in {name}: 4 blocks, 36 events from the first on, as in the" in ran.out
    with chdb_engine(home / "state" / "landing" / "chdb") as engine:
        engine.run(
            "ALTER TABLE tidemark.events UPDATE quantity = 2 WHERE ingress_sequence = 25"
            " SETTINGS mutations_sync = 1"
        )
    ran = tidemark_on_spark("verify", "--deep", cwd=home, env=CLICKHOUSE)
    assert ran.code == 1
    assert "Landed in Parquet: 4 blocks, 36 events" in ran.out
    assert re.search(
        r"Landed in ClickHouse: partition 2: an event differs, sequence 25: quantity is"
        r" \"2\.000000000\", in the ledger it is ",
        ran.out,
    )


def test_a_database_that_is_away_is_waited_for_unless_it_is_to_end(home: Path) -> None:
    env = {"TIDEMARK_LEDGER__URL": f"postgresql://nobody@127.0.0.1:{free_port()}/none"}
    ran = tidemark("land", "--until-caught-up", "--json", cwd=home, env=env)
    assert (ran.code, ran.json["error"]["code"]) == (1, "ledger_unavailable")
    with started("land", cwd=home, env=env) as process:
        assert process.stderr is not None
        assert "landing goes on in 1 s" in process.stderr.readline()
        assert "landing goes on in 2 s" in process.stderr.readline()
        ran = stop(process, signal.SIGTERM)
    assert (ran.code, ran.out) == (0, "Landing stopped.\n")


def test_a_clickhouse_that_is_away_is_waited_for_while_files_are_landed(home: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    url = f"http://analyst:hunter2@{address}"
    env = {**CLICKHOUSE, "TIDEMARK_LANDING__CLICKHOUSE__URL": url}
    ran = tidemark("land", "--until-caught-up", "--json", cwd=home, env=env)
    error = ran.json["error"]
    assert (ran.code, error["code"]) == (1, "landing_unavailable")
    assert error["message"] == f"ClickHouse at http://{address} does not answer: Connection refused"
    shutil.rmtree(home / "state" / "landing")
    with started("land", cwd=home, env=env) as process:
        assert process.stderr is not None
        # Between them may be how far the files are.
        said: list[str] = []
        while len(lines := [line for line in said if "landing goes on" in line]) < 2:
            said.append(process.stderr.readline())
            assert said[-1], said
        wait_until(lambda: len(landed(home)) == EVENT_COUNT)
        wait_until(lambda: told(home).get("landing.parquet") == (EVENT_COUNT, None))
        assert told(home)["landing.clickhouse"] == (0, "landing_unavailable")
        ran = stop(process, signal.SIGTERM)
    assert ran.code == 0
    for line, seconds in zip(lines, (1, 2), strict=True):
        assert f"landing goes on in {seconds} s: ClickHouse at http://{address} does not" in line
    assert "hunter2" not in "".join(said) + ran.out + ran.err


def test_a_directory_that_cannot_be_made_is_named(home: Path) -> None:
    env = {"TIDEMARK_LANDING__PARQUET__PATH": "/dev/null/landed"}
    ran = tidemark("land", "--json", cwd=home, env=env)
    error = ran.json["error"]
    assert (ran.code, error["code"]) == (1, "landing_refused")
    assert "/dev/null/landed" in error["message"]
    assert error["hint"]


def test_what_is_not_enabled_is_told(tmp_path: Path) -> None:
    write_config(tmp_path)
    for args in (["land"], ["verify", "--deep"]):
        ran = tidemark(*args, "--json", cwd=tmp_path)
        assert (ran.code, ran.json["error"]["field"]) == (2, "landing")


def test_a_directory_with_other_blocks_is_refused_and_left_alone(home: Path) -> None:
    assert tidemark("land", "--until-caught-up", cwd=home).code == 0
    env = {"TIDEMARK_LANDING__PARQUET__BLOCK_EVENTS": "11"}
    ran = tidemark("land", "--until-caught-up", "--json", cwd=home, env=env)
    assert (ran.code, ran.json["error"]["code"]) == (1, "landing_mismatch")
    assert "blocks of 10 events, and 11 are configured" in ran.json["error"]["message"]
    assert told(home) == {"landing.parquet": (EVENT_COUNT, "landing_mismatch")}
    assert landed(home) == list(range(1, EVENT_COUNT + 1))
