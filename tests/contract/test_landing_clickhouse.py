"""Landing into ClickHouse, on the engine itself: types, order, and what others do to the table."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contract.events import ManualClock, draft, request
from tests.contract.landings import BLOCK, SHAPE, ClickHouseLanding, expected_rows
from tests.contract.ledger_growth import append_commits
from tests.contract.stores import Ledger, LedgerHome
from tests.generated.ledgers import random_ledger
from tests.services.clickhouse import Engine, chdb_engine
from tidemark.errors import ConfigError
from tidemark.ingress.drafts import no_corrections
from tidemark.pipeline.landing import clickhouse, following
from tidemark.pipeline.landing.blocks import Block
from tidemark.pipeline.landing.clickhouse_connection import connected
from tidemark.pipeline.landing.errors import (
    LandingError,
    LandingRefused,
    LandingRunning,
    LandingUnavailable,
)
from tidemark.pipeline.landing.rows import LANDED_SCHEMA

FIRST_INSTANT = -62_135_596_800_000_000  # 0001-01-01
LAST_INSTANT = 253_402_300_799_999_999  # 9999-12-31


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with chdb_engine(tmp_path_factory.mktemp("chdb")) as engine:
        yield engine


@pytest.fixture
def home(sqlite_home: LedgerHome) -> LedgerHome:
    """What is here does not depend on the ledger's store."""
    return sqlite_home


@pytest.fixture
def landing(home: LedgerHome, ledger: Ledger, engine: Engine, tmp_path: Path) -> ClickHouseLanding:
    return ClickHouseLanding(tmp_path / "lock", engine, ledger, home.url)


@pytest.fixture
async def landed(
    landing: ClickHouseLanding, ledger: Ledger, clock: ManualClock
) -> ClickHouseLanding:
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    return landing


async def test_numbers_times_and_names_have_types_and_rows_an_order(
    landed: ClickHouseLanding, engine: Engine
) -> None:
    described = engine.rows(
        f"SELECT name, type, default_expression FROM system.columns"
        f" WHERE database = '{landed.database}' AND table = 'events'"
    )
    types = {name: kind for name, kind, _ in described}
    assert types["ingress_sequence"] == "Int64"
    assert types["received_at"] == "DateTime64(6, 'UTC')"
    assert types["occurred_at"] == "Nullable(DateTime64(6, 'UTC'))"
    assert types["quantity"] == "Nullable(Decimal(28, 9))"
    assert types["tenant_id"] == types["stream"] == "LowCardinality(String)"
    assert {name: default for name, _, default in described if default} == {
        "kafka_partition": "-1",
        "kafka_offset": "-1",
    }
    [keys] = engine.rows(
        "SELECT sorting_key, partition_key FROM system.tables"
        f" WHERE database = '{landed.database}' AND name = 'events'"
    )
    assert keys == (
        "ingress_sequence, kafka_partition, kafka_offset",
        f"intDiv(ingress_sequence - 1, {BLOCK})",
    )
    # Of one partition, and without being asked to sort.
    kept = engine.rows(f"SELECT ingress_sequence FROM {landed.table} WHERE _partition_id = '1'")
    assert [row[0] for row in kept] == list(range(BLOCK + 1, 2 * BLOCK + 1))
    assert {row[0] for row in engine.rows(f"SHOW TABLES FROM {landed.database}")} == {
        "events",
        "events_landing",
    }


async def test_every_time_that_an_event_may_have_is_kept(
    landing: ClickHouseLanding, ledger: Ledger
) -> None:
    times = [FIRST_INSTANT, -1, 0, 1, LAST_INSTANT]
    entries = [draft(str(time), str(time), occurred_at=time) for time in times]
    await ledger.append_group([request(*entries)], no_corrections)
    await landing.catch_up()
    microseconds = landing.engine.rows(
        f"SELECT toUnixTimestamp64Micro(assumeNotNull(occurred_at)) FROM {landing.table}"
    )
    assert [row[0] for row in microseconds] == times
    years = landing.engine.rows(f"SELECT toYear(occurred_at) FROM {landing.table}")
    assert [row[0] for row in years] == [1, 1969, 1970, 1970, 9999]
    assert (await landing.compare()).difference is None


async def test_a_block_of_many_inserts_is_one_block(
    landing: ClickHouseLanding,
    ledger: Ledger,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(clickhouse, "_ROWS_AT_ONCE", 3)
    await append_commits(ledger, clock, random_ledger(1, SHAPE))
    await landing.catch_up()
    assert landing.rows() == await expected_rows(ledger)
    assert (await landing.compare()).difference is None


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK + 1])
async def test_nothing_is_landed_behind_a_block_that_has_too_few_or_too_many(
    landed: ClickHouseLanding, count: int
) -> None:
    landed.spoil(1, lambda table: pa.concat_tables([table, table]).slice(0, count))
    with pytest.raises(LandingError, match=f"partition 1 has {count} events, and should have 7"):
        await landed.catch_up()


async def test_an_event_in_another_block_is_named(landed: ClickHouseLanding) -> None:
    def moved(table: pa.Table) -> pa.Table:
        sequences = [1, *table.column("ingress_sequence").to_pylist()[1:]]
        return table.set_column(0, table.schema.field(0), [sequences])

    landed.spoil(1, moved)
    found = (await landed.compare()).difference
    assert found is not None
    # Both have one number, so either may come first.
    assert (found.block, found.sequence in ("1", "2")) == ("partition 0", True)


async def test_an_event_that_the_ledger_does_not_have_is_named(
    landed: ClickHouseLanding, ledger: Ledger
) -> None:
    head = (await ledger.head()).last_sequence
    last = (head - 1) // BLOCK
    assert head % BLOCK, "the last block could not hold another"
    landed.engine.run(
        f"INSERT INTO {landed.table} SELECT * REPLACE ({head + 1} AS ingress_sequence)"
        f" FROM (SELECT * FROM {landed.table} WHERE ingress_sequence = {head})"
    )
    found = (await landed.compare()).difference
    assert found is not None
    assert found.block == f"partition {last}"
    assert f"it reaches sequence {head + 1}" in found.message


async def test_text_that_is_none_is_named(landed: ClickHouseLanding) -> None:
    landed.engine.run(
        f"ALTER TABLE {landed.table} UPDATE idempotency_key = unhex('ff')"
        " WHERE ingress_sequence = 9 SETTINGS mutations_sync = 1"
    )
    found = (await landed.compare()).difference
    assert found is not None
    assert (found.block, "cannot be read" in found.message) == ("partition 1", True)


async def test_other_columns_another_order_and_another_format_are_refused(
    landed: ClickHouseLanding,
) -> None:
    landed.engine.run(f"ALTER TABLE {landed.table} MODIFY COLUMN quantity Nullable(String)")
    with pytest.raises(LandingError, match="quantity is Nullable"):
        await landed.catch_up()
    landed.engine.run(f"DROP TABLE {landed.table} SYNC")
    # Without its table all is landed anew.
    assert await landed.catch_up() == (await landed.compare()).events
    landed.engine.run(f"CREATE TABLE {landed.table}_2 AS {landed.table} ORDER BY received_at")
    landed.engine.run(f"DROP TABLE {landed.table} SYNC")
    landed.engine.run(f"RENAME TABLE {landed.table}_2 TO {landed.table}")
    with pytest.raises(LandingError, match="ordered by received_at"):
        await landed.catch_up()
    landed.engine.run(
        f"ALTER TABLE {landed.table}_landing UPDATE format = 2 WHERE true"
        " SETTINGS mutations_sync = 1"
    )
    with pytest.raises(LandingError, match="format 2, and this version of Tidemark writes 1"):
        await landed.catch_up()


async def test_a_table_of_somebody_else_is_refused_and_left_alone(
    landing: ClickHouseLanding,
) -> None:
    landing.engine.run(
        f"CREATE TABLE {landing.table} (day Date) ENGINE = MergeTree PARTITION BY day ORDER BY day"
    )
    for _ in range(2):
        with pytest.raises(LandingError):
            await landing.catch_up()
        landing.engine.run(f"INSERT INTO {landing.table} VALUES ('2026-03-01')")
    assert landing.engine.rows(f"SHOW TABLES FROM {landing.database}") == [("events",)]


async def test_a_table_that_is_altered_while_a_block_is_put_together_is_only_passing(
    landed: ClickHouseLanding,
) -> None:
    rows = landed.engine.table(f"SELECT * FROM {landed.table} WHERE _partition_id = '0'")
    assert rows.num_rows == BLOCK

    def altered() -> Iterable[pa.RecordBatch]:
        yield from rows.cast(LANDED_SCHEMA).to_batches()
        landed.engine.run(f"ALTER TABLE {landed.table} ADD COLUMN note String DEFAULT ''")

    with landed.target.held():
        with pytest.raises(LandingUnavailable):
            landed.target.write(Block(1, BLOCK), altered(), BLOCK)
        landed.target.write(Block(1, BLOCK), rows.cast(LANDED_SCHEMA).to_batches(), BLOCK)
    assert (await landed.compare()).difference is None


async def test_what_somebody_adds_to_the_table_stays_and_is_filled(
    landing: ClickHouseLanding, ledger: Ledger, clock: ManualClock
) -> None:
    commits = list(random_ledger(1, SHAPE))
    await append_commits(ledger, clock, commits[:7])
    await landing.catch_up()
    for change in (
        "ADD COLUMN year UInt16 DEFAULT toYear(received_at)",
        "ADD PROJECTION by_tenant (SELECT tenant_id, count() GROUP BY tenant_id)",
        "MATERIALIZE PROJECTION by_tenant SETTINGS mutations_sync = 1",
    ):
        landing.engine.run(f"ALTER TABLE {landing.table} {change}")
    await append_commits(ledger, clock, commits[7:])
    head = await landing.catch_up()
    assert head == (await ledger.head()).last_sequence
    counted = landing.engine.rows(
        f"SELECT sum(n) FROM (SELECT tenant_id, count() AS n FROM {landing.table}"
        " GROUP BY tenant_id) SETTINGS force_optimize_projection = 1"
    )
    assert counted == [(head,)]
    assert (await landing.compare()).difference is None


async def test_a_process_on_another_machine_is_noticed_before_it_can_do_harm(
    landed: ClickHouseLanding,
) -> None:
    target, before = landed.target, landed.state()
    rows = landed.engine.table(f"SELECT * FROM {landed.table} WHERE _partition_id = '0'")

    def disturbed() -> Iterable[pa.RecordBatch]:
        yield from rows.cast(LANDED_SCHEMA).to_batches()
        landed.engine.insert(landed.database, "events_staging", rows)

    with target.held():
        with pytest.raises(LandingRunning, match="another process lands events in"):
            target.write(Block(1, BLOCK), disturbed(), BLOCK)
        # One that has got further already.
        batches = rows.slice(0, 3).cast(LANDED_SCHEMA).to_batches()
        with pytest.raises(LandingRunning, match="another process lands events in"):
            target.write(Block(1, BLOCK), batches, 3)
    assert landed.state() == before


def test_a_directory_that_another_process_has_open_is_told(tmp_path: Path, engine: Engine) -> None:
    """In a process of its own: this one has another directory open."""
    code = (
        "import sys, chdb.session; opened = chdb.session.Session(sys.argv[1]);"
        " print('open', flush=True); sys.stdin.read()"
    )
    ours = (
        "import sys; from tidemark.pipeline.landing.clickhouse_connection import connected\n"
        "from tidemark.pipeline.landing.errors import LandingRunning\n"
        "try: connected('chdb:///' + sys.argv[1], 'd').__enter__()\n"
        "except LandingRunning as error: print(error.code, error.message)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        done = subprocess.run(
            [sys.executable, "-c", ours, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        other.communicate("")
    assert done.stdout.startswith(f"landing_running chDB cannot open {tmp_path}: ")


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("clickhouse_connect", "http://localhost:8123", "clickhouse"),
        ("clickhouse_connect", "chdb:///somewhere", "chdb"),
        ("chdb", "chdb:///somewhere", "chdb"),
    ],
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, url: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=f"needs the package {missing}") as caught:
        connected(url, "tidemark").__enter__()
    assert caught.value.hint == (
        f"Install Tidemark's extra `{extra}` (pip install '.[{extra}]' in a checkout)."
    )
    assert caught.value.field == "landing.clickhouse.enabled"


def test_what_is_for_https_is_never_sent_in_the_clear() -> None:
    """On any port: by itself the library asks for TLS on two of them only."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://analyst:hunter2@127.0.0.1:{listener.getsockname()[1]}"
        heard: list[bytes] = []

        def listen() -> None:
            # It tries again before it gives up; who is not accepted would wait for long.
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        heard.append(connection.recv(4096))

        threading.Thread(target=listen, daemon=True).start()
        with pytest.raises(LandingUnavailable):
            connected(url, "tidemark").__enter__()
    handshake = 0x16
    assert heard[0][0] == handshake
    assert b"analyst" not in heard[0]


async def test_what_the_engine_refuses_is_told_with_what_to_do(landing: ClickHouseLanding) -> None:
    with (
        connected(landing.engine.url, landing.database) as connection,
        pytest.raises(LandingRefused, match="Database nowhere does not exist") as caught,
    ):
        connection.run("CREATE TABLE nowhere.t (a Int8) ENGINE = Memory")
    assert caught.value.field == "landing.clickhouse.database"
    assert "landing.clickhouse.database" in caught.value.hint
