"""SIGKILL at every named point of a batch: what comes of the ledger is what would have come of it.

Spark takes seconds to start, so a process that goes on after a crash is the next to die.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.pipelines import PipelineProcess, job
from tests.folding.mixed import DELETING, METERS, fill, mixed_ledger, settings_of

# In the order of a batch.
PIPELINE_POINTS: Final = (
    "pipeline.batch_begun",
    "pipeline.batch_folded",
    "views.before_commit",
    "views.after_commit",
    "pipeline.batch_committed",
)
AROUND_THE_COMMIT: Final = ("views.before_commit", "pipeline.batch_committed")
LEDGER: Final = mixed_ledger(2, commits=30, entries=5, controls=False)
SETTINGS: Final = settings_of([m for m in METERS if m.name in ("m_sum", "m_unique")], [DELETING])
# So that there are more batches than all deaths together need.
MAX_ROWS: Final = 8


async def filled(url: str) -> None:
    home = LedgerHome(url)
    try:
        clock = ManualClock()
        await fill(await home.open(clock), clock, LEDGER.drafts())
    finally:
        await home.close()


@pytest.mark.parametrize(
    ("store", "points"), [("sqlite", PIPELINE_POINTS), ("postgres", AROUND_THE_COMMIT)]
)
async def test_a_pipeline_killed_at_every_point_of_a_batch_ends_as_if_nothing_had_happened(
    store: str, points: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ledger_url = views_url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if store == "sqlite":
        views_url = f"sqlite:///{tmp_path / 'views.db'}"
    else:
        ledger_url = views_url = request.getfixturevalue("postgres_url")
    await filled(ledger_url)
    disturbed = job(SETTINGS, tmp_path / "disturbed", ledger_url, views_url, MAX_ROWS)
    undisturbed = job(
        SETTINGS, tmp_path / "undisturbed", ledger_url, f"sqlite:///{tmp_path / 'calm.db'}", 10_000
    )
    for point in points:
        # In its second batch: the first is where it goes on after the crash before.
        with PipelineProcess([disturbed], crash_at=f"{point}:2") as process:
            process.started()
            process.killed_itself()
    with PipelineProcess([disturbed, undisturbed]) as process:
        process.started()
        ended, expected = process.outcomes(2)
    assert ended == expected
    segments = sorted((tmp_path / "disturbed" / "ordered").rglob("*.jsonl"))
    assert len(segments) > len(points), "there was nothing to disturb"
