"""A store that is locked, full, hung or away is an error to retry, and nothing is half written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from tests.contract.views_home import (
    POSITIONS,
    ViewsHome,
    all_rows,
    everything,
    insertion,
    position,
)
from tests.services.postgres import PostgresServer
from tidemark.config import load_config
from tidemark.ledger import sqlite_connection
from tidemark.pipeline.output.errors import ViewsUnavailable
from tidemark.views import postgres, sqlite
from tidemark.views.opening import migrate_views, open_views, views_place
from tidemark.views.postgres import PostgresViews
from tidemark.views.sqlite import SqliteViews

pytest_plugins = ("tests.contract.views_fixtures",)


async def test_a_locked_file_can_be_read_and_is_written_once_it_is_free(
    sqlite_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_TIMEOUT_S", 0.2)
    views = await sqlite_views_home.open()
    await views.declare([POSITIONS])
    await views.commit(insertion(position("a")))
    before = await everything(views)
    with closing(sqlite3.connect(sqlite_views_home.place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ViewsUnavailable, match="locked") as caught:
            await views.commit(insertion(position("b"), commit=2))
        assert caught.value.code == "views_unavailable"
        assert await everything(views) == before
    assert await views.commit(insertion(position("b"), commit=2))


async def test_a_full_disk_leaves_the_views_as_they_were(sqlite_views_home: ViewsHome) -> None:
    views = await sqlite_views_home.open()
    assert isinstance(views, SqliteViews)
    await views.declare([POSITIONS])
    await views.commit(insertion(position("a")))
    before = await everything(views)
    rows = [position(f"tenant-{number}", memory="x" * 1000) for number in range(500)]

    def allow(pages: int) -> None:
        views._in_thread(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))

    await asyncio.get_running_loop().run_in_executor(views._writer, allow, 60)
    with pytest.raises(ViewsUnavailable, match="full"):
        await views.commit(insertion(*rows, commit=2))
    assert await everything(views) == before
    await asyncio.get_running_loop().run_in_executor(views._writer, allow, 1_000_000)
    assert await views.commit(insertion(*rows, commit=2))
    assert len(await all_rows(views)) == 501


async def test_views_that_cannot_be_made_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ViewsUnavailable):
        await SqliteViews.open(tmp_path / "file" / "views.db")
    with pytest.raises(ViewsUnavailable):
        await SqliteViews.open(tmp_path)


async def test_the_store_works_again_when_postgres_is_back(
    second_postgres: PostgresServer,
) -> None:
    home = ViewsHome(second_postgres.create_database())
    views = await home.open()
    await views.declare([POSITIONS])
    await views.commit(insertion(position("a")))
    before = await everything(views)
    second_postgres.stop("immediate")
    for ask in (
        views.commit(insertion(position("b"), commit=2)),
        views.frontier(),
        views.read_state("positions", ["[]"]),
        views.scan_state("positions", after=None, limit=1),
        views.fingerprint(),
        views.prune_changes(1),
    ):
        with pytest.raises(ViewsUnavailable) as caught:
            await ask
        assert caught.value.hint
    with pytest.raises(ViewsUnavailable):
        await PostgresViews.open(home.url)
    second_postgres.start()
    assert await everything(views) == before
    assert await views.commit(insertion(position("b"), commit=2))
    await home.close()


async def test_a_process_that_hangs_in_the_middle_of_a_batch_stops_others_for_a_while_only(
    postgres_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "HUNG_AFTER_S", 0.5)
    monkeypatch.setitem(postgres.WRITER_SETTINGS, "lock_timeout", "500ms")
    views = await postgres_views_home.open()
    await views.declare([POSITIONS])
    hung = await asyncpg.connect(
        postgres_views_home.url, server_settings={"search_path": postgres.SCHEMA}
    )

    async def never_ends() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    await hung.execute("BEGIN")
    await hung.execute("SELECT * FROM frontier FOR UPDATE")
    copying = asyncio.create_task(hung.copy_to_table("pipeline_state", source=never_ends()))
    await asyncio.sleep(0.1)
    with pytest.raises(ViewsUnavailable, match="lock"):
        await views.commit(insertion(position("a")))
    assert await views.commit(insertion(position("a")))
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)
    hung.terminate()


async def test_views_are_kept_beside_the_ledger(tmp_path: Path, postgres_url: str) -> None:
    state_dir = {"TIDEMARK_STATE_DIR": str(tmp_path / "state")}
    embedded = load_config(None, state_dir)
    shared = load_config(None, state_dir | {"TIDEMARK_LEDGER__URL": postgres_url})
    assert views_place(embedded) == tmp_path / "state" / "views.db"
    assert views_place(shared) == postgres_url
    file_url = f"sqlite:///{tmp_path}/v.db"
    elsewhere = {"TIDEMARK_LEDGER__URL": postgres_url, "TIDEMARK_VIEW_STORE__URL": file_url}
    assert views_place(load_config(None, state_dir | elsewhere)) == tmp_path / "v.db"
    elsewhere = {"TIDEMARK_VIEW_STORE__URL": postgres_url}
    assert views_place(load_config(None, state_dir | elsewhere)) == postgres_url
    for config in (embedded, shared):
        assert len(await migrate_views(config, dry_run=True)) == 2
        views = await open_views(config)
        assert await views.frontier() is None
        await views.close()
        assert await migrate_views(config, dry_run=False) == []
    (tmp_path / "file").write_text("")
    blocked = load_config(None, {"TIDEMARK_STATE_DIR": str(tmp_path / "file" / "state")})
    with pytest.raises(ViewsUnavailable) as caught:
        await open_views(blocked)
    assert caught.value.field == "state_dir"


async def test_what_is_written_reaches_the_file_beside_the_commits(
    sqlite_views_home: ViewsHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "ROWS_PER_CHECKPOINT", 100)
    views = await sqlite_views_home.open()
    assert isinstance(views, SqliteViews)
    await views.declare([POSITIONS])
    await views.commit(insertion(position("a")))
    assert views._rows_in_wal == 2
    before = sqlite_views_home.place.stat().st_size
    for number in range(2, 6):
        rows = [position(f"{number}-{i}", memory="x" * 1000) for i in range(100)]
        await views.commit(insertion(*rows, commit=number))
    assert views._checkpoint is not None
    await asyncio.wrap_future(views._checkpoint)
    assert sqlite_views_home.place.stat().st_size > before + 100_000
    assert len(await all_rows(views)) == 401
