"""A pipeline that reads Kafka and is killed on both sides of its commit ends as any other does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.contract.events import ManualClock
from tests.contract.stores import LedgerHome
from tests.crash.pipelines import PipelineProcess, job
from tests.folding.mixed import METERS, config_of, fill, mixed_ledger, settings_of
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld
from tidemark.config import Config

# What else can be killed is the same, whatever is read.
POINTS: Final = ("views.before_commit", "views.after_commit")
LEDGER: Final = mixed_ledger(2, commits=12, entries=3, controls=False)
SETTINGS: Final = settings_of([meter for meter in METERS if meter.aggregate == "unique"], [])


class World(MirrorWorld):
    @property
    def config(self) -> Config:
        mirror = {"bootstrap_servers": self.broker.address, "topic_prefix": self.prefix}
        settings = {**SETTINGS, "mirror": mirror}
        return config_of(settings, self.path.parent / "mirror", self.ledger_url, self.ledger_url)


async def test_a_pipeline_from_kafka_killed_around_its_commit_ends_as_if_nothing_had_happened(
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
    killed, calm = (
        job(settings, tmp_path / name, home.url, f"sqlite:///{tmp_path / name}.db")
        for name, settings in (("killed", from_kafka), ("calm", SETTINGS))
    )
    for point, max_rows in zip(POINTS, (9, 7), strict=True):
        with PipelineProcess([{**killed, "max_rows": max_rows}], crash_at=f"{point}:2") as process:
            process.started()
            await asyncio.to_thread(process.killed_itself)
    with PipelineProcess([killed, calm]) as process:
        process.started()
        ended, expected = await asyncio.to_thread(process.outcomes, 2)
    assert ended == expected
