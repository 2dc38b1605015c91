"""SIGKILL at every named point of a batch: what comes of the ledger is what would have come of it.

Each point is died at on one of the stores, the commit of the views on both.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.pipelines import OTHER_POINTS, SOME_POINTS, PipelineProcess, die_at_each, job
from tests.folding.mixed import METERS, MixedLedger, fill, mixed_ledger, settings_of
from tests.generated.windows import AT, windows_of

LEDGER: Final = mixed_ledger(2, commits=26, entries=3)
# What keeps more than its rows: a meter and a window of different values, and the stream in order.
SETTINGS: Final = settings_of(
    [meter for meter in METERS if meter.aggregate == "unique"],
    [],
    [window for window in windows_of(AT) if window.name == "kinds"],
)


async def filled(url: str, ledger: MixedLedger = LEDGER) -> None:
    home = LedgerHome(url)
    try:
        clock = ManualClock()
        await fill(await home.open(clock), clock, ledger.drafts())
    finally:
        await home.close()


async def test_a_pipeline_killed_at_every_point_of_a_batch_ends_as_if_nothing_had_happened(
    tmp_path: Path, postgres_url: str
) -> None:
    sqlite_url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await filled(sqlite_url)
    await filled(postgres_url)
    on_sqlite, calm = (
        job(SETTINGS, tmp_path / name, sqlite_url, f"sqlite:///{tmp_path / name}.db")
        for name in ("disturbed", "calm")
    )
    on_postgres = job(SETTINGS, tmp_path / "postgres", postgres_url, postgres_url)
    await asyncio.gather(
        asyncio.to_thread(die_at_each, SOME_POINTS, on_sqlite),
        asyncio.to_thread(die_at_each, OTHER_POINTS, on_postgres),
    )
    with PipelineProcess([on_sqlite, on_postgres, calm]) as process:
        process.started()
        *ended, expected = await asyncio.to_thread(process.outcomes, 3)
    assert ended == [expected, expected]
    for name, deaths in (("disturbed", SOME_POINTS), ("postgres", OTHER_POINTS)):
        segments = list((tmp_path / name / "ordered").rglob("*.jsonl"))
        assert len(segments) > len(deaths), "there was nothing to disturb"
