"""Whether the messages of a batch are those that the mirror wrote, and which are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

from tidemark.config import Config
from tidemark.config.mirror_model import MirrorConfig
from tidemark.ledger.spelling import SpeltEvents
from tidemark.mirror.messages import CommitRecord, checksum_of
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.places import TopicPlace, places_of, sent_to
from tidemark.pipeline.kafka.planning import BatchPlan

NAMED: Final = 10
"""So many of those that are too much."""
_SEQUENCE_MEMBER: Final = "ingressSequence"
_HINT: Final = (
    "Nothing behind it is folded. Have the topics mirrored anew (docs/howto/kafka.md), or set"
    " pipeline.source to ledger."
)


class Seen(msgspec.Struct, frozen=True):
    """What was read: how many messages of the mirror, their checksum, and how many others."""

    count: int
    checksum: int
    others: int

    def is_right(self, plan: BatchPlan) -> bool:
        return (self.count, self.checksum, self.others) == (plan.event_count, plan.checksum, 0)


class Foreign(NamedTuple):
    """A message that is in a topic of the mirror, and that the mirror did not write."""

    place: TopicPlace
    claimed: int | None
    """The sequence that it says it has."""


class Found(NamedTuple):
    """What a message of the mirror says and is."""

    sequence: int | None
    checksum: int


EventsOf: TypeAlias = Callable[[CommitRecord], SpeltEvents]
"""What the messages of a commit should be, from the ledger."""


def observed(found: DataFrame, plan: BatchPlan) -> tuple[DataFrame, Observation]:
    """The messages of a plan's commits; what was seen is known once they have been read."""
    observation = Observation()
    ours = _is_of(plan)
    watched = found.observe(
        observation,
        fn.count_if(ours).alias("count"),
        fn.coalesce(fn.sum(fn.when(ours, fn.col("checksum"))), fn.lit(0)).alias("checksum"),
        fn.count_if(~ours).alias("others"),
    )
    return watched.filter(ours), observation


def seen(observation: Observation) -> Seen:
    values = observation.get
    return Seen(values["count"], int(values["checksum"]), values["others"])


def exact(found: DataFrame, plan: BatchPlan) -> DataFrame:
    """Only the messages that are where the mirror has put them."""
    return _joined(found, plan, "left_semi")


def foreign(found: DataFrame, plan: BatchPlan) -> tuple[list[Foreign], int]:
    """The first of the messages that are not, and how many there are."""
    text = fn.get_json_object(fn.col("value").cast("string"), f"$.{_SEQUENCE_MEMBER}")
    claimed = fn.coalesce("sequence", text.try_cast("bigint"))
    others = _joined(found, plan, "left_anti").select(*TopicPlace._fields, claimed)
    rows = others.orderBy(*TopicPlace._fields).limit(NAMED).collect()
    count = len(rows) if len(rows) < NAMED else others.count()
    return [Foreign(TopicPlace(*row[:3]), row[3]) for row in rows], count


def require_right(found: DataFrame, plan: BatchPlan, events_of: EventsOf, config: Config) -> None:
    """Raises `KafkaDiffers`, naming the first message that is missing or is another."""

    rows = exact(found, plan).select(*TopicPlace._fields, "sequence", "checksum").collect()
    messages = {TopicPlace(*row[:3]): Found(row[3], int(row[4])) for row in rows}
    for commit in plan.commits:
        require_commit(commit, messages, events_of, config.mirror)


def require_commit(
    commit: CommitRecord,
    messages: Mapping[TopicPlace, Found],
    events_of: EventsOf,
    mirror: MirrorConfig,
) -> None:
    """The same for one commit, of which there are these messages."""
    sequences = range(int(commit.first), commit.last_sequence + 1)
    at: dict[int, TopicPlace] = {}
    for place in places_of(commit):
        sequence = messages[place].sequence if place in messages else None
        if sequence is not None and sequence in sequences:
            at.setdefault(sequence, place)
    missing = [sequence for sequence in sequences if sequence not in at]
    if missing:
        place_was = _place_of(missing[0], commit, events_of(commit), at, mirror)
        raise KafkaDiffers(
            f"the message of event {missing[0]} is missing in Kafka, at {place_was}: it was"
            " removed, or its topic is compacted or was made anew (of the commit at"
            f" {commit.received_at}, {len(missing):,} of {len(sequences):,} messages are missing)",
            hint=_HINT,
        )
    if sum(messages[place].checksum for place in at.values()) == int(commit.checksum):
        return
    for sequence, value in zip(sequences, events_of(commit).values, strict=True):
        if messages[at[sequence]].checksum != checksum_of(value):
            raise KafkaDiffers(
                f"the message of event {sequence} at {at[sequence]} is not what the ledger holds",
                hint=_HINT,
            )
    raise KafkaDiffers(
        f"the commit at {commit.received_at} has another checksum than its messages",
        hint=_HINT,
    )


def _place_of(
    sequence: int,
    commit: CommitRecord,
    events: SpeltEvents,
    there: Mapping[int, TopicPlace],
    mirror: MirrorConfig,
) -> TopicPlace | str:
    """Where its message was; the topic, if the commit was not written by this mirror."""
    topic = mirror.topic_prefix + events.streams[sequence - events.first_sequence]
    return sent_to(topic, mirror.partitions, sequence, commit, events, there) or topic


def _joined(found: DataFrame, plan: BatchPlan, how: str) -> DataFrame:
    runs = found.sparkSession.createDataFrame(
        [run for commit in plan.commits for run in commit.runs()],
        "topic string, partition int, first bigint, last bigint",
    )
    # By each offset: to look for one among the runs of a partition would take Spark a loop.
    offset = fn.explode(fn.sequence("first", "last")).alias("offset")
    places = runs.select("topic", "partition", offset)
    return found.join(places, [*TopicPlace._fields], how)


def _is_of(plan: BatchPlan) -> Column:
    is_of = fn.col("sequence").between(plan.first_sequence, plan.last_sequence)
    return fn.coalesce(is_of, fn.lit(False))
