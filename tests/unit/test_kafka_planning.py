"""Which messages a batch from Kafka reads: all of its commits, and what lies between them; and
which of them is missing."""

from __future__ import annotations

import random
from functools import partial
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemark.config.mirror_model import MirrorConfig
from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.messages import CommitRecord, commit_record, encode_commit, runs_of
from tidemark.mirror.partitioning import chosen
from tidemark.pipeline.kafka.checking import Found, require_commit
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.failures import spark_failure
from tidemark.pipeline.kafka.places import TopicPlace, sent_to
from tidemark.pipeline.kafka.planning import Partition, Range, commits_after, plans
from tidemark.pipeline.output.batch import Frontier
from tidemark.timestamps import format_timestamp

LEDGER = "L"
PREFIX = "p."
SECOND = 1_000_000


def commits_of(
    seed: int, sizes: list[int]
) -> tuple[list[CommitRecord], dict[int, tuple[str, int, int]]]:
    """Commits of so many events, spread over partitions with holes, and where each event is."""
    source = random.Random(seed)
    ends: dict[tuple[str, int], int] = {}
    records, at, last = [], {}, 0
    for number, size in enumerate(sizes, start=1):
        places: dict[tuple[str, int], list[int]] = {}
        for sequence in range(last + 1, last + size + 1):
            partition = (source.choice("ab"), source.randrange(3))
            offset = ends.get(partition, 0) + (source.random() < 0.2)
            ends[partition] = offset + 1
            at[sequence] = (*partition, offset)
            places.setdefault(partition, []).append(offset)
        commit = CommitRow(number * SECOND, last + 1, last + size, bytes([number % 256]) * 32)
        runs = {target: runs_of(offsets) for target, offsets in places.items()}
        records.append(commit_record(LEDGER, commit, runs, number, {}))
        last += size
    return records, at


def as_read(records: list[CommitRecord]) -> list[tuple[int, bytes]]:
    return [(2 * n, encode_commit(record)) for n, record in enumerate(records)]


@given(st.integers(0, 1000), st.lists(st.integers(0, 5), min_size=1), st.integers(1, 12))
def test_each_message_is_read_by_the_batch_of_its_commit(
    seed: int, sizes: list[int], max_rows: int
) -> None:
    records, at = commits_of(seed, sizes)
    read_to: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    taken = []
    for plan in plans(commits_after(as_read(records), None, LEDGER).commits, max_rows, read_to):
        assert plan.event_count <= max_rows or len([c for c in plan.commits if c.counts]) <= 1
        for sequence in range(plan.first_sequence, plan.last_sequence + 1):
            topic, number, offset = at[sequence]
            found = plan.ranges[topic, number]
            assert found.first <= offset < found.end
        for partition, found in plan.ranges.items():
            # Nothing is read twice, and nothing between is left out.
            assert found.first == ends.get(partition, found.first)
            ends[partition] = found.end
        taken += plan.commits
    assert taken == records
    assert ends == read_to


def test_commits_that_the_views_have_are_passed_over() -> None:
    records, _ = commits_of(1, [2, 0, 3, 1])
    frontier = Frontier(2, 2 * SECOND, b"", LEDGER)
    found = commits_after(as_read(records), frontier, LEDGER)
    assert found.told == [(4, records[2]), (6, records[3])]
    assert found.latest == 4 * SECOND
    assert not found.belated
    assert commits_after(as_read(records[2:]), frontier, LEDGER).commits == records[2:]


def test_of_a_commit_that_is_kept_the_totals_are_not() -> None:
    commit, totals = CommitRow(SECOND, 1, 1, bytes(32)), {f"p.{n}": n for n in range(100)}
    record = commit_record(LEDGER, commit, {("p.1", 0): [(0, 0)]}, 0, totals)
    [kept] = commits_after(as_read([record]), None, LEDGER).commits
    assert record.totals
    assert kept == replace(record, totals={})


def test_records_of_commits_no_later_than_the_one_before_are_named_and_passed_over() -> None:
    records, _ = commits_of(1, [2, 0, 3, 1])
    read = as_read(records)
    again = [(9, read[1][1]), (10, read[0][1])]
    found = commits_after([*read[:3], *again, *read[3:]], None, LEDGER)
    assert found.commits == records
    assert found.belated == [(9, records[1]), (10, records[0])]
    # Also those of records that were read before.
    frontier = Frontier(6, 4 * SECOND, b"", LEDGER)
    found = commits_after(again, frontier, LEDGER, found.latest)
    assert not found.commits
    assert found.belated == [(9, records[1]), (10, records[0])]


def test_a_forged_record_is_passed_over_by_its_time_and_refused_by_its_sequences() -> None:
    records, _ = commits_of(1, [2, 2, 2])
    read = as_read(records)
    earlier = replace(records[0], received_at=format_timestamp(SECOND // 2), chain="ff" * 32)
    found = commits_after([*read[:2], (3, encode_commit(earlier)), *read[2:]], None, LEDGER)
    assert found.commits == records
    assert found.belated == [(3, earlier)]
    later = replace(records[0], received_at=format_timestamp(4 * SECOND))
    with pytest.raises(KafkaDiffers, match="begins with sequence 1, and the one before ends with"):
        commits_after([*read, (6, encode_commit(later))], None, LEDGER)


@pytest.mark.parametrize(("elsewhere", "first"), [(None, 5), (0, 0)])
def test_where_reading_a_partition_begins(elsewhere: int | None, first: int) -> None:
    commit = CommitRow(SECOND, 1, 2, bytes(32))
    record = commit_record(LEDGER, commit, {("a", 0): [(7, 7)], ("a", 1): [(5, 5)]}, 0, {})
    [plan] = plans([record], 10, {("a", 0): 3}, elsewhere)
    assert plan.ranges == {("a", 0): Range(3, 8), ("a", 1): Range(first, 6)}


def test_a_batch_is_within_what_there_is_if_all_of_its_messages_are() -> None:
    commit = CommitRow(SECOND, 1, 4, bytes(32))
    places = {("a", 0): [(3, 4), (7, 7)], ("a", 1): [(5, 5)]}
    [plan] = plans([commit_record(LEDGER, commit, places, 0, {})], 10, {}, 0)
    assert plan.is_within(plan.ranges)
    assert plan.is_within({("a", 0): Range(3, 8), ("a", 1): Range(5, 6)})
    assert not plan.is_within({("a", 0): Range(4, 8), ("a", 1): Range(5, 6)})
    assert not plan.is_within({("a", 0): Range(3, 7), ("a", 1): Range(5, 6)})
    assert not plan.is_within({("a", 0): Range(3, 8)})


RUNS = st.sampled_from([None, None, "run-1", "run-2", "Lauf ä"])


@given(st.integers(1, 50), st.lists(st.tuples(st.sampled_from("ab"), RUNS), min_size=1), st.data())
def test_a_message_that_is_missing_is_named_with_the_place_where_it_was(
    first: int, of_events: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 4), "partitions")
    streams, keys = zip(*of_events, strict=True)
    numbers = chosen(first, keys, repeat(range(count)))
    offsets = dict[tuple[str, int], list[int]]()
    places = dict[int, TopicPlace]()
    for sequence, target in enumerate(zip(streams, numbers, strict=True), first):
        taken = offsets.setdefault(target, [])
        # Where a transaction ends, an offset has no message.
        taken.append(taken[-1] + data.draw(st.integers(1, 2)) if taken else 7)
        places[sequence] = TopicPlace(PREFIX + target[0], target[1], taken[-1])
    commit = CommitRow(SECOND, first, first + len(of_events) - 1, bytes(32))
    runs = {(PREFIX + stream, n): runs_of(taken) for (stream, n), taken in offsets.items()}
    record = commit_record(LEDGER, commit, runs, 0, {})
    messages = {place: Found(sequence, 1) for sequence, place in places.items()}
    gone = data.draw(st.sets(st.sampled_from(sorted(places)), min_size=1))
    for sequence in gone:
        # It is not there, or somebody else's is, or one of ours that belongs elsewhere.
        instead = data.draw(st.sampled_from([None, 0, commit.last_sequence + 1]))
        messages[places[sequence]] = Found(instead, 1)
        if data.draw(st.booleans()):
            del messages[places[sequence]]
    events = SpeltEvents(first, streams, keys, [b"{}"] * len(of_events))
    # That it has another number than is set is no matter, if the others say which.
    mirror = MirrorConfig(topic_prefix=PREFIX, partitions=count)
    with pytest.raises(KafkaDiffers) as raised:
        require_commit(record, messages, lambda commit: events, mirror)
    assert raised.value.message.startswith(
        f"the message of event {min(gone)} is missing in Kafka, at {places[min(gone)]}: it was"
    )


def test_those_that_are_there_say_how_many_partitions_there_were() -> None:
    """There were three, and four are set: either spreads this commit over the same places."""
    keys = [None, None, "run-3", None]
    assert chosen(1, keys, repeat(range(3))) == [1, 2, 0, 1]
    assert chosen(1, keys, repeat(range(4))) == [1, 2, 1, 0]
    commit = CommitRow(SECOND, 1, 4, bytes(32))
    places = {("a", 1): [(5, 6)], ("a", 2): [(9, 9)], ("a", 0): [(7, 7)]}
    record = commit_record(LEDGER, commit, places, 0, {})
    events = SpeltEvents(1, ["a"] * 4, keys, [b"{}"] * 4)
    there = {1: TopicPlace("a", 1, 5), 4: TopicPlace("a", 1, 6)}
    assert sent_to("a", 4, 3, record, events, there) == TopicPlace("a", 0, 7)
    assert sent_to("a", 4, 3, record, events, {}) == TopicPlace("a", 1, 6)


def with_record(value: bytes, read: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """What is read if somebody has written this behind the first commit."""
    return [*read[:1], (2, value), *read[1:]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda read: read[:1] + read[2:],
            "begins with sequence 5, and the one before ends with 2",
        ),
        *(
            (partial(with_record, value), "offset 2 .* is no commit")
            for value in (
                b"{}",
                b'{"ledgerId":"M\xfcller"}',
                b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            )
        ),
    ],
    ids=["missing", "no members", "no text", "nested too deep"],
)
def test_a_commit_that_is_missing_or_is_none_is_named(change: object, said: str) -> None:
    records, _ = commits_of(1, [2, 2, 2])
    with pytest.raises(KafkaDiffers, match=said):
        commits_after(change(as_read(records)), None, LEDGER)  # type: ignore[operator]


def test_commits_of_another_ledger_are_refused() -> None:
    records, _ = commits_of(1, [2])
    with pytest.raises(KafkaDiffers, match="is of the ledger L, and not of M"):
        commits_after(as_read(records), None, "M")


JAVA = "An error occurred while calling o9.collectToPython.\n: "
STREAM_FAILED = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
PLAN = "\n=== Streaming Query ===\nscan org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaScan"


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        (
            f"{JAVA}org.apache.kafka.common.errors.TimeoutException: Timed out.\n\tat a.b(C.java)",
            "kafka_unavailable",
            "Kafka cannot be read: org.apache.kafka.common.errors.TimeoutException: Timed out.",
        ),
        (
            f"{JAVA}java.util.concurrent.TimeoutException: Cannot fetch record for offset 3\n"
            "\tat org.apache.spark.sql.kafka010.consumer.InternalKafkaConsumer.fetch(K.scala)",
            "kafka_unavailable",
            "Kafka cannot be read: ",
        ),
        (
            f"{JAVA}org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have"
            " been lost because they are not available in Kafka any more;",
            "kafka_differs",
            "messages behind event 7 were removed from Kafka",
        ),
        (
            f"{JAVA}org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic"
            " p.usage partition 2 offset 3 has timestamp value 1700000000000000000 that overflows"
            " when converting to Spark's microsecond-precision TimestampType.",
            "kafka_differs",
            "the message at p.usage[2]@3 has the time 1700000000000000000 ms, which Spark",
        ),
        (
            "Partitions specified for Kafka timestamp based start offsets don't match what are"
            " assigned. Maybe topic partitions are created \nor deleted while the query is running,"
            f" or you didn't specify all the partitions.\nSpecified: Set(p.commits-0){PLAN}",
            "kafka_unavailable",
            "Kafka cannot be read: Partitions specified for Kafka timestamp based start offsets",
        ),
        (
            "Some of partitions in Kafka topic(s) have been lost during running query with"
            f" Trigger.AvailableNow.{PLAN}",
            "kafka_unavailable",
            "Kafka cannot be read: Some of partitions in Kafka topic(s) have been lost",
        ),
        (
            "[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find data source: kafka.",
            "config_invalid",
            "Spark does not have its connector to Kafka, or not all of it: [KAFKA_DATA_SOURCE",
        ),
        (
            f"{JAVA}java.lang.NoClassDefFoundError: org/apache/kafka/common/Serializer\n"
            "\tat org.apache.spark.sql.kafka010.KafkaSourceProvider$.<clinit>(K.scala)",
            "config_invalid",
            "Spark does not have its connector to Kafka, or not all of it: java.lang.NoClass",
        ),
        (
            f"{STREAM_FAILED}org/apache/spark/kafka010/KafkaConfigUpdater{PLAN}",
            "config_invalid",
            "Spark does not have its connector to Kafka, or not all of it: [STREAM_FAILED]",
        ),
    ],
)
def test_what_a_query_died_of_is_told_from_its_text(said: str, code: str, told: str) -> None:
    failure = spark_failure(RuntimeError(said), 7)
    assert failure is not None
    assert failure.code == code
    assert failure.message.startswith(told)


def test_that_the_plan_of_a_query_names_the_connector_says_nothing() -> None:
    assert spark_failure(RuntimeError(f"{STREAM_FAILED}Java heap space{PLAN}"), 7) is None
