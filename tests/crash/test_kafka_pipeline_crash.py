"""A pipeline that reads Kafka and is killed at every named point of a batch ends as any other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.crash.kafka_pipelines import KafkaWorld
from tests.crash.pipelines import OTHER_POINTS, SOME_POINTS, PipelineProcess, die_at_each, job
from tests.crash.test_pipeline_crash import filled
from tests.folding.mixed import METERS, mixed_ledger, settings_of

LEDGER: Final = mixed_ledger(2, commits=20, entries=3, controls=False)
SETTINGS: Final = settings_of([meter for meter in METERS if meter.aggregate == "unique"], [])


async def test_a_pipeline_from_kafka_killed_at_every_point_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    ledger_url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await filled(ledger_url, LEDGER)
    world = KafkaWorld(tmp_path, ledger_url, SETTINGS)
    await world.mirror()
    some, others, calm = (
        job(settings, tmp_path / name, ledger_url, f"sqlite:///{tmp_path / name}.db")
        for name, settings in (
            ("some", world.from_kafka),
            ("others", world.from_kafka),
            ("calm", SETTINGS),
        )
    )
    await asyncio.gather(
        asyncio.to_thread(die_at_each, SOME_POINTS, some),
        asyncio.to_thread(die_at_each, OTHER_POINTS, others),
    )
    with PipelineProcess([some, others, calm]) as process:
        process.started()
        *ended, expected = await asyncio.to_thread(process.outcomes, 3)
    assert ended == [expected, expected]
