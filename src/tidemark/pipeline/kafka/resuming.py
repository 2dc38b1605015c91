"""From where on to read: where what is folded ends, so that what others wrote behind it is found,
too."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from tidemark.config import Config
from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.kafka import ANSWER_WITHIN_S, failure
from tidemark.mirror.messages import COMMITS_TOPIC, CommitRecord, decode_commit
from tidemark.mirror.position import ends, last_commit, messages, partitions_of, reading
from tidemark.pipeline.kafka.errors import KafkaDiffers, brokers_asked
from tidemark.pipeline.kafka.planning import Partition
from tidemark.pipeline.output.batch import Frontier

# More would be felt at each start. What others wrote to a partition that none of these commits has
# a message in is not told then; what the mirror wrote is never overlooked.
_COMMITS_LOOKED_AT: Final = 2_000


class Reached(NamedTuple):
    """Behind the last message of each partition; and of all others, if that is known."""

    ends: dict[Partition, int]
    elsewhere: int | None


def where_to_begin(config: Config, start: Frontier | None) -> Frontier | None:
    """The frontier, if brokers find the commits behind it by its time; None where all must be read,
    and those that are folded passed over.

    They find none where records before them were removed and the rest of their segment was not.
    Raises `KafkaUnavailable` if they do not answer, and `KafkaDiffers` if the topic of commits is
    not as the mirror made it.
    """
    topic = config.mirror.topic_prefix + COMMITS_TOPIC
    with brokers_asked(), reading(config) as consumer:
        partitions = partitions_of(consumer, topic)
        if len(partitions) > 1:
            raise KafkaDiffers(
                f"the topic {topic} has {len(partitions)} partitions, and what is in it has one"
                " order only in one",
                hint="Somebody has added partitions to it. Have the topics mirrored anew"
                " (docs/howto/kafka.md), or set pipeline.source to ledger.",
            )
        if start is None or not partitions:
            return start
        asked = TopicPartition(topic, 0, start.received_at // 1000)
        try:
            [found] = consumer.offsets_for_times([asked], timeout=ANSWER_WITHIN_S)
        except KafkaException as error:
            raise failure(error, f"asking for commits by their time in {topic}") from error
        if found.offset >= 0:
            return start
        try:
            last = last_commit(consumer, topic)
        except MirrorRefused:
            # It is none: whoever reads on says so.
            return None
        is_before = last is None or last.received_at_us < start.received_at
        return start if is_before else None


def last_mirrored(config: Config) -> CommitRecord | None:
    """The last commit that Kafka has, if it has any.

    Raises `KafkaUnavailable` if the brokers do not answer, and `KafkaDiffers` if it is none.
    """
    topic = config.mirror.topic_prefix + COMMITS_TOPIC
    with brokers_asked(), reading(config) as consumer:
        return last_commit(consumer, topic) if partitions_of(consumer, topic) else None


def reached_before(config: Config, ledger_id: str, offset: int) -> Reached:
    """How far the commits tell of messages that stand before an offset of their topic.

    Raises `KafkaUnavailable` if the brokers do not answer.
    """
    topic = config.mirror.topic_prefix + COMMITS_TOPIC
    found: dict[Partition, int] = {}
    with brokers_asked(), reading(config) as consumer:
        first, _ = ends(consumer, topic, 0)
        begin = max(first, offset - _COMMITS_LOOKED_AT)
        for message in messages(consumer, topic, 0, begin, offset):
            # These are folded: whoever has written something else there has done so since.
            with contextlib.suppress(msgspec.MsgspecError):
                commit = decode_commit(message.value() or b"")
                if commit.ledger_id != ledger_id:
                    continue
                for target, number, _, last in commit.runs():
                    partition = (target, number)
                    found[partition] = max(found.get(partition, 0), last + 1)
    return Reached(found, 0 if begin == 0 else None)
