"""The pipeline from Kafka gives what it gives from the ledger, and nothing silently else.

A real broker, Spark's own connector, and a ledger with everything in it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import DataFrame

from tests.contract.events import ManualClock
from tests.contract.stores import Ledger, LedgerHome
from tests.contract.views_home import ViewsHome
from tests.folding.mixed import BY_PLACE, METERS, DraftCommit, fill, mixed_ledger, settings_of
from tests.folding.mixed import config_of as mixed_config
from tests.folding.outcomes import Outcome, outcome_of
from tests.folding.runs import run_pipeline
from tests.generated.streams import STREAM
from tests.generated.windows import AT, windows_of
from tests.services.kafka import KafkaBroker, shared_broker
from tests.services.mirroring import MirrorWorld, alter_message
from tidemark.app.event_source import event_source
from tidemark.config import Config
from tidemark.mirror import position
from tidemark.mirror.messages import encode_commit
from tidemark.mirror.position import ends, last_commit, messages, reading, sequence_of
from tidemark.pipeline.kafka import checking, finishing
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.planning import BatchPlan
from tidemark.views.port import ViewsStore

# What is made of events plays a part in one test only, and takes long.
ALL_KINDS = settings_of(
    [meter for meter in METERS if meter.name in ("m_sum", "m_unique")],
    [BY_PLACE],
    [window for window in windows_of(AT) if window.name == "sums"],
)
ONE_METER = settings_of([meter for meter in METERS if meter.name == "m_sum"], [])
# What is corrected is folded anew from the ledger, whatever was read: see `test_one_order`.
LEDGER = mixed_ledger(98, commits=9, entries=4, controls=False)


class World(MirrorWorld):
    """Topics, a ledger that they mirror, and views that are made of either."""

    def __init__(
        self, directory: Path, home: LedgerHome, broker: KafkaBroker, settings: dict[str, Any]
    ) -> None:
        super().__init__(directory, home.url, broker)
        self._settings = settings
        self._directory = directory
        self._home = home
        self.mirror_settings: dict[str, Any] = {}
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
            **self.mirror_settings,
        }
        pipeline = {**self._settings["pipeline"], "source": source}
        settings = {**self._settings, "mirror": mirror, "pipeline": pipeline}
        return mixed_config(settings, self._directory / name, self._home.url, views_url)

    @property
    def usage(self) -> str:
        return f"{self.prefix}usage"

    def sequences(self, partition: int) -> list[int]:
        """The events in a partition of the usage."""
        with reading(self.config) as consumer:
            first, end = ends(consumer, self.usage, partition)
            there = [*messages(consumer, self.usage, partition, first, end)]
        return [sequence_of(message) or 0 for message in there]

    def end(self, partition: int) -> int:
        """Where the next message would be in a partition of the usage."""
        with reading(self.config) as consumer:
            return ends(consumer, self.usage, partition)[1]

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
        home, views = await self.open_views(name)
        config = self.config_at(name, home.url, source="kafka" if kafka else "ledger")
        loop = asyncio.get_running_loop()
        source = event_source(config, self.ledger, loop, threading.Event())
        await run_pipeline(config, self.ledger, views, home.place, source=source, max_rows=max_rows)
        return await self.outcome(name, views)

    async def open_views(self, name: str) -> tuple[ViewsHome, ViewsStore]:
        home = ViewsHome(f"sqlite:///{self._directory / name}-views.db")
        self._views.append(home)
        return home, await home.open()

    async def outcome(self, name: str, views: ViewsStore) -> Outcome:
        return await outcome_of(views, self._directory / name / "ordered" / STREAM)


@asynccontextmanager
async def opened(
    directory: Path, broker: KafkaBroker | None = None, settings: dict[str, Any] = ONE_METER
) -> AsyncIterator[World]:
    home = LedgerHome(f"sqlite:///{directory / 'ledger.db'}")
    world = World(directory, home, broker or shared_broker(), settings)
    await world.open()
    try:
        yield world
    finally:
        await world.close()


async def test_kafka_gives_what_the_ledger_gives_however_it_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path, settings=ALL_KINDS) as world:
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
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        first = world.end(0)
        # One that is none of ours, and two that say they are an event which is there already.
        world.write("usage", b"nonsense", partition=0)
        header = [("tidemark-ingress-sequence", b"2")]
        world.write("usage", b'{"ingressSequence":"7"}', headers=header, partition=0)
        world.write("usage", b'{"ingressSequence":"3"}', partition=0)
        # What says nothing is not worth a word.
        world.write("usage", None)
        world.write("tidemark.commits", None)
        await world.fill(commits[5:])
        await world.mirror()
        expected = await world.folded("ledger", kafka=False)
        with caplog.at_level(logging.WARNING, "tidemark.pipeline.kafka"):
            assert await world.folded("kafka", kafka=True) == expected
        assert told_in(caplog) == [
            f"{world.usage}[0]@{offset}: this message was not written by the mirror, and names"
            f" {what}; it is passed over"
            for offset, what in enumerate(("no event", "event 2", "event 3"), first)
        ]


async def test_what_is_folded_without_the_messages_of_others_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may go between the two readings."""
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        world.write("usage", b"nonsense", partition=0)
        await world.fill(commits[5:])
        await world.mirror()
        exact, readings = checking.exact, []

        def all_but_one(found: DataFrame, plan: BatchPlan) -> DataFrame:
            readings.append(plan)
            whole = exact(found, plan)
            # The first look is whether all are there, the second what is folded.
            return whole.filter("sequence <> 7") if len(readings) == 2 else whole

        monkeypatch.setattr(checking, "exact", all_but_one)
        expected = await world.folded("ledger", kafka=False)
        assert await world.folded("kafka", kafka=True) == expected
        assert len(readings) == 4


async def test_what_others_wrote_while_the_pipeline_did_not_run_is_told_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        with caplog.at_level(logging.WARNING, "tidemark.pipeline.kafka"):
            [reached, *_] = (await world.folded("kafka", kafka=True)).frontier
            assert not told_in(caplog)
            first = world.end(1)
            # It claims to be an event that comes only now.
            header = [("tidemark-ingress-sequence", str(reached + 1).encode())]
            world.write("usage", b"{}", headers=header, partition=1)
            for _ in range(11):
                world.write("usage", b"{}", partition=1)
            await world.fill(commits[5:])
            await world.mirror()
            with reading(world.config) as consumer:
                last = last_commit(consumer, world.commits_topic)
            assert last is not None
            world.write("tidemark.commits", encode_commit(last))
            assert await world.folded("kafka", kafka=True) == await world.folded("l", kafka=False)
        again, *foreign, more = told_in(caplog)
        said = f"tells of a commit up to event {last.last} that is no later than the one before"
        assert f"{said}, and was not written by the mirror; it is passed over" in again
        assert f"names event {reached + 1};" in foreign[0]
        assert [line.partition(":")[0] for line in foreign] == [
            f"{world.usage}[1]@{offset}" for offset in range(first, first + 10)
        ]
        assert more == "and 2 more like these; they are passed over"


async def test_a_message_that_was_altered_is_named_and_not_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_message(monkeypatch, 7, lambda value: value.replace(b'"tenantId":"', b'"tenantId":"x'))
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        with pytest.raises(KafkaDiffers, match=r"the message of event 7 at .*\]@\d+ is not what"):
            await world.folded("kafka", kafka=True)


# They cannot be folded: one has neither time nor tenant, and the other no quantity.
NOT_FOLDED = {
    "usage": b'{"stream":"usage","metric":"api_calls","quantity":"1"}',
    "adjustment": b'{"ingressSequence":"%d","receivedAt":"2024-03-04T00:00:00.000000Z",'
    b'"occurredAt":"2024-03-04T00:00:00.000000Z","tenantId":"t","stream":"usage",'
    b'"idempotencyKey":"k","metric":"api_calls","customerRef":"c","control":"adjust"}',
}


@pytest.mark.parametrize("name", NOT_FOLDED)
async def test_a_message_of_others_that_cannot_be_folded_is_passed_over_and_told(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        offset = world.end(0)
        header = [("tidemark-ingress-sequence", b"2")]
        value = NOT_FOLDED[name].replace(b"%d", b"2")
        world.write("usage", value, headers=header, partition=0)
        await world.fill(commits[5:])
        await world.mirror()
        with caplog.at_level(logging.WARNING, "tidemark.pipeline.kafka"):
            assert await world.folded("kafka", kafka=True) == await world.folded("l", kafka=False)
        [told] = told_in(caplog)
        assert told.startswith(f"{world.usage}[0]@{offset}: this message was not written by")


@pytest.mark.parametrize("name", NOT_FOLDED)
async def test_a_message_that_was_altered_so_that_it_cannot_be_folded_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_message(monkeypatch, 7, lambda value: NOT_FOLDED[name].replace(b"%d", b"7"))
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        with pytest.raises(KafkaDiffers, match=r"the message of event 7 at .*@\d+ is not what"):
            await world.folded("kafka", kafka=True)


async def test_a_message_whose_time_spark_does_not_read_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        # Somebody has taken nanoseconds for milliseconds.
        offset, wild = world.end(0), 1_700_000_000_000_000_000
        world.write("usage", b"{}", partition=0, timestamp=wild)
        await world.fill(commits[5:])
        await world.mirror()
        with pytest.raises(KafkaDiffers) as raised:
            await world.folded("kafka", kafka=True)
        place = f"{world.usage}[0]@{offset}"
        assert raised.value.message.startswith(f"the message at {place} has the time {wild} ms")


@pytest.mark.parametrize("how", ["forgotten", "removed", "made anew"])
async def test_messages_that_are_gone_hold_back_all_behind_them_and_are_named(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        there, admin = [world.sequences(partition) for partition in range(3)], world.admin()
        gone = there[0]
        if how == "forgotten":
            [removed] = admin.delete_records([TopicPartition(world.usage, 0, 2)]).values()
            removed.result()
        else:
            monkeypatch.setattr(position, "ANSWER_WITHIN_S", 1.0)
            monkeypatch.setattr(finishing, "_FINISHED_WITHIN_S", 1.0)
            gone = sorted(chain(*there))
            world.remove_topics(world.usage)
        if how == "made anew":
            [made] = admin.create_topics([NewTopic(world.usage, num_partitions=3)]).values()
            made.result()
        with pytest.raises(KafkaDiffers) as raised:
            await world.folded("kafka", kafka=True)
        [partition] = [n for n, sequences in enumerate(there) if min(gone) in sequences]
        place = f"{world.usage}[{partition}]@0"
        assert raised.value.message.startswith(
            f"the message of event {min(gone)} is missing in Kafka, at {place}: it was"
        )
        _, views = await world.open_views("kafka")
        assert await views.frontier() is None


async def test_messages_that_go_while_they_are_read_are_named_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        wait_for = finishing.Finished.wait_for

        def just_before(self: finishing.Finished, ranges: Any) -> Any:
            found = wait_for(self, ranges)
            world.remove_messages(world.usage)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(finishing.Finished, "wait_for", just_before)
            with pytest.raises(KafkaDiffers, match="behind event 0 were removed from Kafka while"):
                await world.folded("kafka", kafka=True)
        with pytest.raises(KafkaDiffers, match=r"event \d+ is missing in Kafka, at .*@0"):
            await world.folded("kafka", kafka=True)


async def test_what_was_forgotten_once_it_was_folded_is_not_missed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.mirror_settings["allow_short_retention"] = True
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        await world.folded("kafka", kafka=True)
        # With the end of the transaction, where reading would go on.
        world.remove_messages(world.usage)
        await world.fill(commits[5:])
        await world.mirror()
        assert await world.folded("kafka", kafka=True) == await world.folded("l", kafka=False)


def told_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]
