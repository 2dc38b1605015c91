"""SIGKILL at every named point of a batch: what comes of the ledger is what would have come of it.

Spark takes seconds to start, so a process that goes on after a crash is the next to die.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.pipelines import PipelineProcess, job
from tests.folding.mixed import METERS, MixedLedger, fill, mixed_ledger, settings_of
from tests.generated.windows import AT, windows_of

# All there are, each on one of the stores, and the commit of the views on both sides of its end.
ON_SQLITE: Final = ("pipeline.batch_begun", "pipeline.ordered_written", "views.before_commit")
ON_POSTGRES: Final = ("pipeline.batch_folded", "views.after_commit", "pipeline.batch_committed")
PIPELINE_POINTS: Final = (*ON_SQLITE, *ON_POSTGRES)
LEDGER: Final = mixed_ledger(2, commits=26, entries=3)
# What keeps more than its rows: a meter and a window of different values, and the stream in order.
SETTINGS: Final = settings_of(
    [meter for meter in METERS if meter.aggregate == "unique"],
    [],
    [window for window in windows_of(AT) if window.name == "kinds"],
)
# The most rows of a batch, by turns, so that what was given up is not cut the same way again. There
# are more batches than all deaths together need.
MAX_ROWS: Final = (14, 6, 11, 3, 9, 5)


async def filled(url: str, ledger: MixedLedger = LEDGER) -> None:
    home = LedgerHome(url)
    try:
        clock = ManualClock()
        await fill(await home.open(clock), clock, ledger.drafts())
    finally:
        await home.close()


def die_at_each(points: Sequence[str], work: Mapping[str, Any]) -> None:
    for point, max_rows in zip(points, MAX_ROWS, strict=False):
        cut = {**work, "max_rows": max_rows}
        # In its second batch: the first is where it goes on after the crash before.
        with PipelineProcess([cut], crash_at=f"{point}:2") as process:
            process.started()
            process.killed_itself()


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
        asyncio.to_thread(die_at_each, ON_SQLITE, on_sqlite),
        asyncio.to_thread(die_at_each, ON_POSTGRES, on_postgres),
    )
    with PipelineProcess([on_sqlite, on_postgres, calm]) as process:
        process.started()
        *ended, expected = await asyncio.to_thread(process.outcomes, 3)
    assert ended == [expected, expected]
    for name, deaths in (("disturbed", ON_SQLITE), ("postgres", ON_POSTGRES)):
        segments = list((tmp_path / name / "ordered").rglob("*.jsonl"))
        assert len(segments) > len(deaths), "there was nothing to disturb"
