"""The pipeline from Kafka gives what it gives from the ledger, and nothing silently else.

A real broker, Spark's own connector, and a ledger with everything in it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.contract.events import ManualClock
from tests.contract.stores import Ledger, LedgerHome
from tests.contract.views_home import ViewsHome
from tests.folding.mixed import BY_PLACE, METERS, DraftCommit, fill, mixed_ledger, settings_of
from tests.folding.mixed import config_of as mixed_config
from tests.folding.outcomes import Outcome, outcome_of
from tests.folding.runs import run_pipeline
from tests.generated.streams import STREAM
from tests.generated.windows import AT, windows_of
from tests.services.kafka import shared_broker
from tests.services.mirroring import MirrorWorld, alter_message
from tidemark.app.event_source import event_source
from tidemark.config import Config
from tidemark.pipeline.kafka.errors import KafkaDiffers

SETTINGS = settings_of(
    [meter for meter in METERS if meter.name in ("m_sum", "m_unique")],
    [BY_PLACE],
    [window for window in windows_of(AT) if window.name == "sums"],
)
# What is corrected is folded anew from the ledger, whatever was read, and takes long.
LEDGER = mixed_ledger(98, commits=9, entries=4, controls=False)
CORRECTED = mixed_ledger(98, commits=7, entries=3)


class World(MirrorWorld):
    """Topics, a ledger that they mirror, and views that are made of either."""

    def __init__(self, directory: Path, home: LedgerHome) -> None:
        super().__init__(directory, home.url, shared_broker())
        self._directory = directory
        self._home = home
        self.ledger: Ledger
        self._clock = ManualClock()
        self._views: list[ViewsHome] = []

    @property
    def config(self) -> Config:
        return self.config_at("mirror", "sqlite:///unused")

    def config_at(self, name: str, views_url: str, source: str = "ledger") -> Config:
        mirror = {
            "enabled": True,
            "bootstrap_servers": self.broker.address,
            "topic_prefix": self.prefix,
        }
        pipeline = {**SETTINGS["pipeline"], "source": source}
        settings = {**SETTINGS, "mirror": mirror, "pipeline": pipeline}
        return mixed_config(settings, self._directory / name, self._home.url, views_url)

    async def open(self) -> None:
        self.ledger = await self._home.open(self._clock)

    async def fill(self, commits: Sequence[DraftCommit]) -> None:
        await fill(self.ledger, self._clock, commits)

    async def close(self) -> None:
        for views in self._views:
            await views.close()
        await self._home.close()

    async def folded(self, name: str, *, kafka: bool, max_rows: int = 1_000_000) -> Outcome:
        """What the views of this name are after a run."""
        home = ViewsHome(f"sqlite:///{self._directory / name}-views.db")
        self._views.append(home)
        views = await home.open()
        config = self.config_at(name, home.url, source="kafka" if kafka else "ledger")
        loop = asyncio.get_running_loop()

        def wait(work: Coroutine[Any, Any, int | None]) -> int | None:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        source = event_source(config, self.ledger, wait, threading.Event())
        await run_pipeline(config, self.ledger, views, home.place, source=source, max_rows=max_rows)
        return await outcome_of(views, self._directory / name / "ordered" / STREAM)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[World]:
    world = World(directory, LedgerHome(f"sqlite:///{directory / 'ledger.db'}"))
    await world.open()
    try:
        yield world
    finally:
        await world.close()


async def test_kafka_gives_what_the_ledger_gives_however_it_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        await world.folded("in-two", kafka=True, max_rows=7)
        await world.fill(commits[5:])
        await world.mirror()
        expected = await world.folded("ledger", kafka=False)
        assert await world.folded("in-two", kafka=True) == expected
        assert await world.folded("at-once", kafka=True) == expected


async def test_messages_of_others_are_passed_over_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        commits = CORRECTED.drafts()
        await world.fill(commits[:4])
        await world.mirror()
        [usage] = [topic for topic in world.topics() if topic.endswith(".usage")]
        # One that is none of ours, and one that says it is an event which is there already.
        world.write("usage", b"nonsense")
        header = [("tidemark-ingress-sequence", b"2")]
        world.write("usage", b'{"ingressSequence":"2"}', headers=header)
        # What says nothing is not worth a word.
        world.write("usage", None)
        world.write("tidemark.commits", None)
        await world.fill(commits[4:])
        await world.mirror()
        expected = await world.folded("ledger", kafka=False)
        with caplog.at_level(logging.WARNING, "tidemark.pipeline.kafka"):
            assert await world.folded("kafka", kafka=True) == expected
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 2
        assert all(
            line.startswith(f"{usage}[") and "not written by the mirror" in line for line in told
        )


async def test_a_message_that_was_altered_is_named_and_not_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_message(monkeypatch, 7, lambda value: value.replace(b'"tenantId":"', b'"tenantId":"x'))
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        with pytest.raises(KafkaDiffers, match=r"the message of event 7 at .*\]@\d+ is not what"):
            await world.folded("kafka", kafka=True)


async def test_messages_that_are_gone_hold_back_all_behind_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        placed = await world.ledger.places_of(1)
        assert placed is not None
        [usage] = [topic for topic in world.topics() if topic.endswith(".usage")]
        admin = world.admin()
        gone = [TopicPartition(usage, number, 2) for number in range(3)]
        for removed in admin.delete_records(gone).values():
            removed.result()
        with pytest.raises(KafkaDiffers, match=r"are gone from Kafka|is missing in Kafka"):
            await world.folded("kafka", kafka=True)
