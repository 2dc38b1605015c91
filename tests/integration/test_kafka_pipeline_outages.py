"""The pipeline from Kafka, where brokers hide, forget or do not answer: it waits and says what for.

A broker of its own, which is killed and made to compact.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError

from tests.acceptance.cli_runs import tidemark
from tests.folding.outcomes import Outcome
from tests.integration.test_kafka_pipeline import LEDGER, World, opened
from tests.services.kafka import KafkaBroker
from tests.services.mirroring import wait_until
from tests.services.spark import shared_session
from tidemark.app import pipeline as app
from tidemark.mirror import hanging, sending
from tidemark.mirror.errors import MirrorUnavailable
from tidemark.mirror.places import Place
from tidemark.mirror.position import is_at, reading
from tidemark.pipeline.kafka import finishing
from tidemark.pipeline.kafka.errors import KafkaDiffers, KafkaUnavailable
from tidemark.pipeline.kafka.finishing import Finished
from tidemark.pipeline.kafka.planning import Partition, Range
from tidemark.pipeline.kafka.topics import messages

ANSWER_WITHIN_S: Final = 30.0
BROKER: Final = {
    # One that was killed is taken back when this has passed.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # How often it looks for what it can compact.
    "log.cleaner.backoff.ms": "100",
}
# So that Spark says soon that nobody answers.
IMPATIENT: Final = {
    "kafka.default.api.timeout.ms": 2000,
    "kafka.request.timeout.ms": 2000,
    "kafkaConsumer.pollTimeoutMs": 2000,
    "fetchOffset.numRetries": 1,
}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(settings=BROKER) as started:
        yield started


async def test_a_message_that_compaction_has_removed_is_named(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    async with opened(tmp_path, broker) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        sequence, kept = world.sequences(1)[1:3]
        for name, value in COMPACTED.items():
            world.set_option(world.usage, name, value)
        # Of each key the last message is kept. What is written to at the moment is not compacted.
        for key in (str(sequence).encode(), b"another"):
            world.write("usage", b"{}", key=key, partition=1)
        with reading(world.config) as consumer:
            place, behind = Place(1, 1), Place(1, 2)
            await until(lambda: not is_at(consumer, sequence, world.usage, place))
            assert is_at(consumer, kept, world.usage, behind)
        with pytest.raises(KafkaDiffers) as raised:
            await world.folded("kafka", kafka=True)
        assert raised.value.message.startswith(
            f"the message of event {sequence} is missing in Kafka, at {world.usage}[1]@1: it was"
        )


async def test_a_commit_whose_messages_are_hidden_is_held_back_until_they_are_seen(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, broker) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        before = await world.folded("kafka", kafka=True)
        await world.fill(commits[5:])
        with open_transaction(broker, world.usage):
            await mirror_unseen(world, monkeypatch)
            with monkeypatch.context() as patched:
                patched.setattr(finishing, "_FINISHED_WITHIN_S", 0.5)
                with pytest.raises(KafkaUnavailable, match=r"partition 0 of .* can be read up to"):
                    await world.folded("kafka", kafka=True)
            assert await outcome_of(world, "kafka") == before
            looks = looks_at_ends(monkeypatch)
            going_on = asyncio.create_task(world.folded("kafka", kafka=True))
            await until(lambda: len(looks) > 20 or going_on.done())
            assert not going_on.done()
            assert await outcome_of(world, "kafka") == before
        assert await going_on == await world.folded("ledger", kafka=False)


async def test_a_broker_that_is_killed_while_a_batch_is_read_is_waited_for(
    broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(tmp_path, broker) as world:
        world.mirror_settings["java_options"] = IMPATIENT
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        is_deadly = kill_when_asked(broker, monkeypatch)
        with caplog.at_level(logging.WARNING, "tidemark.app"):
            async with following(world, "kafka", monkeypatch) as told:
                await until(lambda: told and told[-1].lag_events == 0)
                is_deadly.set()
                await world.fill(commits[5:])
                await world.mirror()
                await until(lambda: len(waits_in(caplog)) >= 2)
                assert not broker.is_running
                assert told[-1].lag_events > 0
                await asyncio.to_thread(broker.start)
                await until(lambda: told[-1].lag_events == 0)
        assert "Kafka cannot be read: " in waits_in(caplog)[0]
        expected = await world.folded("ledger", kafka=False)
        assert await outcome_of(world, "kafka") == expected


async def test_a_topic_that_is_gone_is_not_made_anew_by_who_reads_it(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """The broker makes topics that are asked for, as brokers do unless they are told not to."""
    async with opened(tmp_path, broker) as world:
        world.mirror_settings["java_options"] = IMPATIENT
        spark = shared_session().newSession()
        # So that Spark asks with a consumer also here, and not only while it reads.
        spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
        with pytest.raises(Py4JJavaError, match="kafka"):
            messages(spark, world.config, {(world.usage, 0): Range(0, 5)}).collect()
        assert world.topics() == []


async def test_who_wants_to_be_done_waits_for_a_mirror_that_is_behind(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its times are months apart, and who is done forgets old changes.
    monkeypatch.setattr(app, "_try_to_prune", lambda *_: asyncio.sleep(0))
    async with opened(tmp_path, broker) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        reached = (await world.ledger.head()).last_sequence
        await world.fill(commits[5:])
        last = (await world.ledger.head()).last_sequence
        said = behind(reached, reached, last)
        with monkeypatch.context() as patched:
            patched.setattr(app, "WAIT_WHEN_CATCHING_UP_US", 0)
            with pytest.raises(KafkaUnavailable, match=said):
                await ran(world, "kafka", monkeypatch, until_caught_up=True)
        told: list[app.Standing] = []
        going_on = asyncio.create_task(
            ran(world, "kafka", monkeypatch, until_caught_up=True, on_progress=told.append)
        )
        await until(lambda: told)
        assert not going_on.done()
        await world.mirror()
        await going_on
        assert (told[-1].sequence, told[-1].lag_events) == (last, 0)
        assert await outcome_of(world, "kafka") == await world.folded("ledger", kafka=False)


async def test_who_wants_to_be_done_waits_for_a_mirror_that_is_behind_the_views(
    broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while all is mirrored anew."""
    monkeypatch.setattr(app, "_try_to_prune", lambda *_: asyncio.sleep(0))
    async with opened(tmp_path, broker) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:3])
        await world.mirror()
        mirrored = (await world.ledger.head()).last_sequence
        await world.fill(commits[3:6])
        await world.folded("kafka", kafka=False)
        folded = (await world.ledger.head()).last_sequence
        await world.fill(commits[6:])
        said = behind(mirrored, folded, (await world.ledger.head()).last_sequence)
        with monkeypatch.context() as patched:
            patched.setattr(app, "WAIT_WHEN_CATCHING_UP_US", 0)
            with pytest.raises(KafkaUnavailable, match=said):
                await ran(world, "kafka", monkeypatch, until_caught_up=True)
        await world.mirror()
        await ran(world, "kafka", monkeypatch, until_caught_up=True)
        assert await outcome_of(world, "kafka") == await world.folded("ledger", kafka=False)


async def test_without_its_connector_the_pipeline_ends_and_says_what_to_do(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    async with opened(tmp_path, broker) as world:
        await world.fill(LEDGER.drafts()[:1])
        (tmp_path / "tidemark.yaml").write_text(f"""
state_dir: {tmp_path / "state"}
ledger: {{url: "{world.ledger_url}"}}
streams: {{usage: {{kind: usage}}}}
meters: {{calls: {{metric: api_calls, aggregate: sum}}}}
mirror: {{bootstrap_servers: "{broker.address}", topic_prefix: "{world.prefix}"}}
pipeline: {{source: kafka}}
spark: {{options: {{spark.jars: ""}}}}
""")
        ran = await asyncio.to_thread(tidemark, "pipeline", "--json", cwd=tmp_path)
    assert ran.code == 2, ran.err
    error = ran.json["error"]
    assert error["code"] == "config_invalid"
    assert error["message"].startswith("Spark does not have its connector to Kafka")
    assert error["field"] == "spark.options"
    assert "spark.jars" in error["hint"]


def behind(in_kafka: int, in_views: int, in_ledger: int) -> str:
    ends = f"Kafka ends with event {in_kafka}, the views with {in_views}"
    return f"{ends}, and the ledger with {in_ledger}"


@contextmanager
def open_transaction(broker: KafkaBroker, topic: str) -> Iterator[None]:
    """While it lasts, somebody else's is open in the first partition of a topic."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": topic,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(ANSWER_WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, b"{}", partition=0)
    assert producer.flush(ANSWER_WITHIN_S) == 0
    try:
        yield
    finally:
        producer.abort_transaction(ANSWER_WITHIN_S)


async def mirror_unseen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody else's transaction had begun after the mirror looked for such."""
    with monkeypatch.context() as patched:
        for module in (hanging, sending):
            patched.setattr(module, "hanging", lambda *_: {})
        patched.setattr(sending, "_SEEN_WITHIN_S", 0.2)
        with pytest.raises(MirrorUnavailable, match="is not seen after"):
            await world.mirror()


def looks_at_ends(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows whenever the pipeline asks how far partitions can be read."""
    looks: list[object] = []
    ends_of = finishing.ends_of

    def looked_at(admin: Any, partitions: Any, **options: Any) -> dict[Partition, int]:
        looks.append(partitions)
        return ends_of(admin, partitions, **options)

    monkeypatch.setattr(finishing, "ends_of", looked_at)
    return looks


def kill_when_asked(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Once this is set, the next batch finds its messages and no broker to read them from."""
    is_deadly = threading.Event()
    wait_for = Finished.wait_for

    def deadly(self: Finished, ranges: Any) -> Any:
        found = wait_for(self, ranges)
        if is_deadly.is_set():
            is_deadly.clear()
            broker.kill()
        return found

    monkeypatch.setattr(Finished, "wait_for", deadly)
    return is_deadly


@asynccontextmanager
async def following(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[app.Standing]]:
    """The pipeline, while it follows the ledger; where its views stand."""
    told: list[app.Standing] = []
    stop = threading.Event()
    running = asyncio.create_task(
        ran(world, name, monkeypatch, until_caught_up=False, on_progress=told.append, stop=stop)
    )
    try:
        yield told
    finally:
        stop.set()
        await running


async def ran(
    world: World,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    until_caught_up: bool,
    on_progress: Callable[[app.Standing], None] = lambda standing: None,
    stop: threading.Event | None = None,
) -> None:
    """The pipeline as a process runs it, on the Spark of all tests."""
    monkeypatch.setattr(app, "start_session", lambda *_, **__: shared_session())
    monkeypatch.setattr(app, "stop_session", lambda: None)
    home, _ = await world.open_views(name)
    await asyncio.to_thread(
        app.run_pipeline,
        world.config_at(name, home.url, source="kafka"),
        until_caught_up=until_caught_up,
        on_progress=on_progress,
        stop=stop or threading.Event(),
    )


async def outcome_of(world: World, name: str) -> Outcome:
    _, views = await world.open_views(name)
    return await world.outcome(name, views)


def waits_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (record.getMessage() for record in caplog.records)
    return [line for line in found if "the pipeline goes on in" in line]


async def until(is_so: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, is_so)
