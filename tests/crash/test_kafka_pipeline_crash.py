"""A pipeline that reads Kafka and is killed at every named point of a batch ends as any other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.pipelines import OTHER_POINTS, SOME_POINTS, PipelineProcess, die_at_each, job
from tests.folding.mixed import METERS, config_of, fill, mixed_ledger, settings_of
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld
from tidemark.config import Config

LEDGER: Final = mixed_ledger(2, commits=20, entries=3, controls=False)
SETTINGS: Final = settings_of([meter for meter in METERS if meter.aggregate == "unique"], [])


class World(MirrorWorld):
    @property
    def config(self) -> Config:
        mirror = {"bootstrap_servers": self.broker.address, "topic_prefix": self.prefix}
        settings = {**SETTINGS, "mirror": mirror}
        return config_of(settings, self.path.parent / "mirror", self.ledger_url, self.ledger_url)


async def test_a_pipeline_from_kafka_killed_at_every_point_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    home = LedgerHome(f"sqlite:///{tmp_path / 'ledger.db'}")
    clock = ManualClock()
    world = World(tmp_path, home.url, shared_broker())
    try:
        await fill(await home.open(clock), clock, LEDGER.drafts())
    finally:
        await home.close()
    await world.mirror()
    config = world.config.mirror
    from_kafka = {
        **SETTINGS,
        "mirror": {
            "bootstrap_servers": config.bootstrap_servers,
            "topic_prefix": config.topic_prefix,
        },
        "pipeline": {**SETTINGS["pipeline"], "source": "kafka"},
    }
    some, others, calm = (
        job(settings, tmp_path / name, home.url, f"sqlite:///{tmp_path / name}.db")
        for name, settings in (("some", from_kafka), ("others", from_kafka), ("calm", SETTINGS))
    )
    await asyncio.gather(
        asyncio.to_thread(die_at_each, SOME_POINTS, some),
        asyncio.to_thread(die_at_each, OTHER_POINTS, others),
    )
    with PipelineProcess([some, others, calm]) as process:
        process.started()
        *ended, expected = await asyncio.to_thread(process.outcomes, 3)
    assert ended == [expected, expected]
