"""The pipeline from Kafka folds the history that the ledger has, and no other.

A real broker that still has what a ledger has lost, or has lost what a ledger has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.integration.test_kafka_pipeline import LEDGER, World, opened
from tidemark.app.event_source import last_in_kafka
from tidemark.errors import LedgerUnavailable
from tidemark.ledger.port import CommitRow
from tidemark.ledger.reading import LedgerReader
from tidemark.mirror.messages import COMMITS_TOPIC
from tidemark.mirror.position import ends, messages, reading
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.output.errors import LedgerRewound

SECOND = 1_000_000
ANSWER_WITHIN_S = 10.0


async def test_what_a_restored_ledger_has_lost_is_not_folded_from_kafka(tmp_path: Path) -> None:
    """Views and ledger are of one backup; the topics have what came after it."""
    async with opened(tmp_path) as world:
        commits = LEDGER.drafts()
        await world.fill(commits[:5])
        await world.mirror()
        await world.folded("kafka", kafka=True)
        before = await frontier(world)
        await copied(world, tmp_path, tmp_path / "backup")
        await world.fill(commits[5:])
        await world.mirror()
        await copied(world, tmp_path / "backup", tmp_path)
        with pytest.raises(LedgerRewound, match="that Kafka tells of, at offset") as raised:
            await world.folded("kafka", kafka=True)
        assert "mirrored anew" in raised.value.hint
        # Nor when the ledger has gone on otherwise, further than it was.
        last = commits[-1][0]
        await world.fill([(last + n * SECOND, drafts) for n, (_, drafts) in enumerate(commits[5:])])
        with pytest.raises(LedgerRewound):
            await world.folded("kafka", kafka=True)
        assert await frontier(world) == before


@pytest.mark.parametrize("first", [0, 1], ids=["at the beginning", "behind what is folded"])
async def test_a_tick_that_is_gone_from_the_topic_of_commits_is_named(
    first: int, tmp_path: Path
) -> None:
    async with opened(tmp_path) as world:
        commits = [commit for commit in LEDGER.drafts() if commit[1]]
        if first:
            await world.fill(commits[:first])
            await world.mirror()
            await world.folded("kafka", kafka=True)
        received_at, drafts = commits[first]
        await world.fill([(received_at - SECOND, []), (received_at, drafts)])
        await world.mirror()
        offset, admin = offsets_of_commits(world)[-1], world.admin()
        gone = TopicPartition(world.commits_topic, 0, offset)
        [removed] = admin.delete_records([gone]).values()
        removed.result(ANSWER_WITHIN_S)
        with pytest.raises(KafkaDiffers) as raised:
            await world.folded("kafka", kafka=True)
        assert "without events" in raised.value.message
        assert f"before offset {offset} of the topic of commits" in raised.value.message


async def test_a_ledger_that_is_away_for_a_moment_is_no_fault_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()

        async def away(self: LedgerReader, after: int, limit: int) -> list[CommitRow]:
            raise LedgerUnavailable("it is away", hint="Wait.")

        with monkeypatch.context() as patched:
            patched.setattr(type(world.ledger), "read_commits", away)
            with pytest.raises(LedgerUnavailable, match="it is away"):
                await world.folded("kafka", kafka=True)
        assert await world.folded("kafka", kafka=True) == await world.folded("l", kafka=False)


@pytest.mark.parametrize(
    "has_folded", [False, True], ids=["from the beginning", "from where it was"]
)
async def test_a_topic_of_commits_with_more_partitions_than_one_is_named(
    has_folded: bool, tmp_path: Path
) -> None:
    async with opened(tmp_path) as world:
        await world.fill(LEDGER.drafts())
        await world.mirror()
        if has_folded:
            await world.folded("kafka", kafka=True)
        admin = world.admin()
        [added] = admin.create_partitions([NewPartitions(world.commits_topic, 2)]).values()
        added.result(ANSWER_WITHIN_S)
        with pytest.raises(KafkaDiffers, match=f"{world.commits_topic} has 2 partitions"):
            await world.folded("kafka", kafka=True)


async def test_whoever_asks_how_far_kafka_is_learns_that_the_last_record_is_no_commit(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        assert last_in_kafka(world.config) is None
        await world.fill(LEDGER.drafts())
        await world.mirror()
        found = last_in_kafka(world.config)
        assert found is not None
        assert found.last_sequence == (await world.ledger.head()).last_sequence
        world.write(COMMITS_TOPIC, b"{}", partition=0)
        with pytest.raises(KafkaDiffers, match="is no commit") as raised:
            last_in_kafka(world.config)
        assert raised.value.field is None


def offsets_of_commits(world: World) -> list[int]:
    with reading(world.config) as consumer:
        found = messages(consumer, world.commits_topic, 0, *ends(consumer, world.commits_topic, 0))
        return [message.offset() or 0 for message in found]


async def frontier(world: World) -> Frontier:
    _, views = await world.open_views("kafka")
    found = await views.frontier()
    assert found is not None
    return found


async def copied(world: World, source: Path, target: Path) -> None:
    """The ledger of one directory is then that of the other, too."""
    await world.close()
    replace_ledger(source, target)
    await world.open()


def replace_ledger(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in target.glob("ledger.db*"):
        file.unlink()
    for file in source.glob("ledger.db*"):
        shutil.copy(file, target)
