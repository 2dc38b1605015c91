"""Verification on PostgreSQL, through real Spark: as far as the views are, and no further."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from pathlib import Path

import asyncpg

from tests.acceptance.pipelines import fill_ledger, history, write_config
from tests.folding.runs import run_pipeline
from tests.services.spark import shared_session
from tidemark.app.beside import OnProgress
from tidemark.app.verification import verify_views
from tidemark.clock import SystemClock
from tidemark.config import Config, load_config
from tidemark.ledger.opening import open_ledger
from tidemark.ops.verification import Verification
from tidemark.views.opening import open_views, views_place
from tidemark.views.postgres import SCHEMA


async def verified(
    config: Config, on_progress: OnProgress = lambda stage, done, total: None
) -> Verification:
    found = await asyncio.to_thread(
        verify_views,
        config,
        limit=10,
        on_progress=on_progress,
        stop=threading.Event(),
        session=lambda config, directory: nullcontext(shared_session()),
    )
    assert found is not None
    return found


async def test_views_on_postgresql_are_proven_up_to_where_they_are(
    tmp_path: Path, postgres_url: str
) -> None:
    text = f"ledger: {{url: '{postgres_url}'}}\n"
    path = write_config(tmp_path)
    path.write_text(path.read_text() + text)
    await asyncio.to_thread(fill_ledger, tmp_path, history())
    config = load_config(path, {})
    ledger, views = await open_ledger(config, SystemClock()), await open_views(config)
    try:
        await run_pipeline(config, ledger, views, views_place(config), max_rows=5)
        reached = await views.frontier()
        assert await ledger.tick(0) is not None
        found = await verified(config)
        assert (found.frontier, found.differences) == (reached, [])
        assert sum(part.live_count for part in found.compared) > 30
        assert list((tmp_path / "state" / "verify").iterdir()) == []

        await _tamper(postgres_url)
        await _die_while_verifying(postgres_url, tmp_path / "state" / "verify")
        schemas: set[str] = set()

        def look(stage: str, done: int, total: int | None) -> None:
            schemas.update(asyncio.run(_schemas(postgres_url)))

        found = await verified(_on_a_cluster(config), look)
        named = [(each.part, each.view, each.column) for each in found.differences]
        assert named == [
            ("rows", "api_calls", "watermark_ts"),
            ("changes", "trades", None),
            ("rows", "users__members", "is_counted"),
            ("adjustments", None, "amount"),
        ]
        # Tasks on other machines find them there. Nothing is left, nor of the one that died.
        assert len(schemas) == 1
        assert await _schemas(postgres_url) == []
        assert list((tmp_path / "state" / "verify").iterdir()) == []
    finally:
        await views.close()
        await ledger.close()


def _on_a_cluster(config: Config) -> Config:
    spark = config.spark.model_copy(update={"master": "spark://head.internal:7077"})
    return config.model_copy(update={"spark": spark})


async def _schemas(url: str) -> list[str]:
    """Those in which views are made anew."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT nspname FROM pg_namespace ORDER BY nspname")
        return [row[0] for row in rows if row[0].startswith("tidemark_verify_")]
    finally:
        await connection.close()


async def _die_while_verifying(url: str, directory: Path) -> None:
    """Leaves behind what a killed verification does."""
    (directory / "scratch-died").mkdir()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE SCHEMA tidemark_verify_died CREATE TABLE left_behind ()")
    finally:
        await connection.close()


async def _tamper(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})
    try:
        for statement in (
            "UPDATE view_api_calls SET watermark_ts = 0 WHERE customer_ref = 'c-1'",
            "DELETE FROM view_changes WHERE view = 'trades' AND op = 'delete'",
            "UPDATE view_users__members SET is_counted = false WHERE of_row LIKE '%c-2%'",
            "UPDATE adjustments SET amount = 0 WHERE reason = 'void'",
        ):
            assert await connection.execute(statement) in ("UPDATE 1", "DELETE 1"), statement
    finally:
        await connection.close()
