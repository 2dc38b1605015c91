"""What a ledger is from the start: its name, its salt, its schema."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.contract.events import ManualClock, draft, drafts
from tests.contract.stores import LedgerHome, all_commits, all_events, append
from tests.contract.workers import Worker
from tidemark.clock import SystemClock
from tidemark.config import load_config
from tidemark.errors import LedgerUnavailable, SaltMismatch, SchemaMismatch
from tidemark.ledger import postgres_migrate
from tidemark.ledger.migrations import migrations
from tidemark.ledger.opening import migrate_ledger, open_ledger

PROCESSES = 4


async def test_a_ledger_keeps_its_name_its_salt_and_its_place(
    home: LedgerHome, clock: ManualClock
) -> None:
    first = await home.open(clock)
    await append(first, *drafts("a", "b"))
    name, salt = first.ledger_id, first.salt
    head, events, commits = await first.head(), await all_events(first), await all_commits(first)
    again = await home.reopen(clock)
    assert (again.ledger_id, again.salt) == (name, salt)
    assert await again.head() == head
    assert await all_events(again) == events
    assert await all_commits(again) == commits
    [outcome] = await append(again, draft("c"))
    assert outcome.ingress_sequence == 3


async def test_a_ledger_without_a_configured_salt_gets_a_long_random_one(
    home: LedgerHome,
) -> None:
    assert len((await home.open()).salt) >= 32


async def test_a_ledger_keeps_the_salt_that_it_was_made_with(home: LedgerHome) -> None:
    await home.open(salt="pepper")
    assert (await home.reopen(salt="pepper")).salt == "pepper"
    assert (await home.reopen()).salt == "pepper"


async def test_another_salt_is_refused_and_changes_nothing(home: LedgerHome) -> None:
    name = (await home.open(salt="pepper")).ledger_id
    with pytest.raises(SaltMismatch) as caught:
        await home.reopen(salt="paprika")
    assert caught.value.code == "salt_mismatch"
    assert caught.value.field == "ledger.salt"
    assert "pepper" not in str(caught.value) + caught.value.hint
    again = await home.open(salt="pepper")
    assert again.ledger_id == name


async def test_two_ledgers_have_two_names(
    sqlite_home: LedgerHome, postgres_home: LedgerHome
) -> None:
    one, other = await sqlite_home.open(), await postgres_home.open()
    assert one.ledger_id != other.ledger_id
    assert one.salt != other.salt


async def test_a_schema_newer_than_the_code_is_refused(home: LedgerHome) -> None:
    await append(await home.open(), draft("a"))
    await home.sql("INSERT INTO schema_migrations VALUES (9000, '9000_tomorrow.sql')")
    with pytest.raises(SchemaMismatch) as caught:
        await home.reopen()
    assert caught.value.code == "schema_mismatch"
    assert "9000" in caught.value.message
    with pytest.raises(SchemaMismatch):
        await home.migrate()
    await home.sql("DELETE FROM schema_migrations WHERE version = 9000")
    assert len(await all_events(await home.open())) == 1


async def test_a_dry_run_says_what_is_pending_and_changes_nothing(home: LedgerHome) -> None:
    wanted = [migration.name for migration in migrations(home.kind)]
    assert [migration.name for migration in await home.migrate(dry_run=True)] == wanted
    assert [migration.name for migration in await home.migrate(dry_run=True)] == wanted
    assert [migration.name for migration in await home.migrate()] == wanted
    assert await home.migrate(dry_run=True) == []
    assert await home.migrate() == []


async def test_processes_that_start_at_once_migrate_once_and_found_one_ledger(
    home: LedgerHome,
) -> None:
    started = await asyncio.gather(
        *(Worker.start("tests.contract.opener", home.url) for _ in range(PROCESSES))
    )
    said = await asyncio.gather(*(worker.finish() for worker in started))
    assert len({(answer["ledger_id"], answer["salt"]) for answer in said}) == 1
    assert sorted(sequence for answer in said for sequence in answer["sequences"]) == list(
        range(1, PROCESSES + 1)
    )
    rows = await home.sql("SELECT version FROM schema_migrations ORDER BY version")
    assert [version for (version,) in rows] == [m.version for m in migrations(home.kind)]


async def test_a_place_where_no_ledger_can_be_is_a_clear_error(home: LedgerHome) -> None:
    if home.kind == "sqlite":
        home.place.mkdir()
    else:
        home.url = home.url.rpartition("/")[0] + "/there_is_no_such_database"
    with pytest.raises(LedgerUnavailable) as caught:
        await home.open()
    assert caught.value.hint


async def test_a_file_that_is_no_database_is_a_clear_error(sqlite_home: LedgerHome) -> None:
    sqlite_home.place.write_bytes(b"this is a letter, not a ledger\n" * 200)
    with pytest.raises(LedgerUnavailable, match="not a database"):
        await sqlite_home.open()


async def test_a_configuration_names_its_ledger(home: LedgerHome, tmp_path: Path) -> None:
    config = load_config(
        None, {"TIDEMARK_STATE_DIR": str(tmp_path / "state"), "TIDEMARK_LEDGER__URL": home.url}
    )
    wanted = [migration.version for migration in migrations(home.kind)]
    pending = await migrate_ledger(config, dry_run=True)
    assert [migration.version for migration in pending] == wanted
    await migrate_ledger(config, dry_run=False)
    assert await migrate_ledger(config, dry_run=True) == []
    opened = await open_ledger(config, SystemClock())
    again = await home.open()
    assert opened.ledger_id == again.ledger_id
    assert opened.global_numbers.state[0] == "disabled"
    await opened.close()


async def test_without_an_address_the_ledger_is_a_file_in_the_state_directory(
    tmp_path: Path,
) -> None:
    state = tmp_path / "made" / "on" / "demand"
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(state)})
    ledger = await open_ledger(config, SystemClock())
    assert (state / "ledger.db").exists()
    await ledger.close()


async def test_a_state_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path / "file" / "state")})
    with pytest.raises(LedgerUnavailable) as caught:
        await open_ledger(config, SystemClock())
    assert caught.value.field == "state_dir"
    assert "TIDEMARK_STATE_DIR" in caught.value.hint


async def test_what_tidemark_makes_is_for_its_user_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    config = load_config(None, {"TIDEMARK_STATE_DIR": str(state)})
    before = os.umask(0o022)
    try:
        ledger = await open_ledger(config, SystemClock())
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
        await ledger.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), 0o600)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


async def test_a_dry_run_changes_no_file(sqlite_home: LedgerHome) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sqlite_home.place.parent.iterdir()}

    assert await sqlite_home.migrate(dry_run=True)
    assert files() == {}
    with closing(sqlite3.connect(sqlite_home.place)) as connection:
        connection.execute("CREATE TABLE letters (letter)")
    before = files()
    assert await sqlite_home.migrate(dry_run=True)
    assert files() == before
    await sqlite_home.migrate()
    before = files()
    assert await sqlite_home.migrate(dry_run=True) == []
    assert files() == before
    await sqlite_home.open()
    assert await sqlite_home.migrate(dry_run=True) == []


async def test_a_database_that_cannot_hold_every_text_is_refused(
    postgres_home: LedgerHome,
) -> None:
    await postgres_home.sql("DROP DATABASE IF EXISTS ascii_only")
    await postgres_home.sql(
        "CREATE DATABASE ascii_only ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'"
    )
    poor = LedgerHome(postgres_home.url.rpartition("/")[0] + "/ascii_only")
    with pytest.raises(SchemaMismatch, match="SQL_ASCII") as caught:
        await poor.open()
    assert "CREATE DATABASE" in caught.value.hint


async def test_a_migration_that_hangs_does_not_keep_others_waiting_for_ever(
    postgres_home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrate, "MIGRATION_LOCK_TIMEOUT_S", 0.1)
    hung = await asyncpg.connect(postgres_home.url)
    await hung.execute("SELECT pg_advisory_lock($1)", postgres_migrate.MIGRATION_LOCK)
    with pytest.raises(LedgerUnavailable, match="migrating") as caught:
        await postgres_home.open()
    assert caught.value.hint
    await hung.close()
    await postgres_home.open()


async def test_connections_are_closed_when_not_all_of_them_can_be_made(
    postgres_home: LedgerHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncpg.Pool] = []
    make = asyncpg.create_pool

    async def make_one(*args: Any, **options: Any) -> asyncpg.Pool:
        if made:
            raise OSError("no more connections")
        made.append(await make(*args, **options))
        return made[0]

    monkeypatch.setattr(asyncpg, "create_pool", make_one)
    with pytest.raises(LedgerUnavailable, match="no more connections"):
        await postgres_home.open()
    assert made[0].is_closing()
