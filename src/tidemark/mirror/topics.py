"""The topics that the mirror writes to: made as they must be, and looked at before each start.

A message that is gone is a hole for whoever reads the topic, so they keep everything for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from tidemark.config import Config
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.kafka import (
    ANSWER_WITHIN_S,
    MOST_BATCH_BYTES,
    admin,
    failure,
    most_message_bytes,
)
from tidemark.mirror.messages import COMMITS_TOPIC
from tidemark.mirror.position import ends, ends_of, messages, reading

_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
# Readers find a commit by the time that the ledger gave it.
_OWN_TIMES: Final = {"message.timestamp.type": "CreateTime"}
# The ledger's times may be ahead of the brokers' clocks, which Kafka bears for an hour by default,
# or long ago. Brokers before 3.6 do not know these, and bear it for ever.
_ANY_TIME: Final = dict.fromkeys(
    ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms"), str(2**63 - 1)
)
_MESSAGE_BYTES: Final = "max.message.bytes"
_BROKERS_CHOICE: Final = -1
_TOLD_WITHIN_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.05


class Topics:
    """The topics of one mirror, by the names that streams have in them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._settings = config.mirror
        self.admin = admin(config)
        self._known: dict[str, str] = {}
        self._partitions: dict[str, int] = {}
        self.commits = self.name_of(COMMITS_TOPIC)
        self.batch_bytes = MOST_BATCH_BYTES
        """The most that each topic takes at once, of those that were looked at."""

    def name_of(self, stream: str) -> str:
        return self._settings.topic_prefix + stream

    def of_stream(self, stream: str) -> str:
        """The topic of a stream, which is made if it is not there."""
        topic = self._known.get(stream)
        if topic is None:
            # Also one that was there when the mirror began: that may be long ago.
            topic = self.name_of(stream)
            self.ensure([topic])
            self._known[stream] = topic
        return topic

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has that is there."""
        found = self._partitions.get(topic)
        if found is None:
            there = self._there_with(topic)
            if topic not in there:
                raise MirrorUnavailable(
                    f"the topic {topic} is not there yet",
                    hint="It was just made, or is being removed; the mirror goes on by itself.",
                )
            found = self._partitions[topic] = len(there[topic].partitions)
        return found

    def ensure(self, topics: Collection[str]) -> None:
        """Makes those that are not there, and refuses those that would lose messages."""
        there = self._there()
        missing = [topic for topic in topics if topic not in there]
        if missing:
            self._make(missing, _ANY_TIME)
        present = [topic for topic in topics if topic in there]
        if present:
            self._require_right(present)
        if self.commits in present and len(there[self.commits].partitions) != 1:
            raise MirrorRefused(
                f"the topic {self.commits} has {len(there[self.commits].partitions)} partitions,"
                " and what is in it has one order only in one",
                hint="Remove it together with all topics of this mirror, and it is made anew; or"
                " set mirror.topic_prefix.",
                field="mirror.topic_prefix",
            )

    def exists(self, topic: str) -> bool:
        return topic in self._there()

    def require_whole(self, totals: Mapping[str, int], consumer: Consumer) -> None:
        """Refuses topics that do not hold what was mirrored into them."""
        there = self._there()
        if totals and (self.commits not in there or ends(consumer, self.commits, 0)[1] == 0):
            raise _gone(f"the commits in {self.commits} are gone")
        for topic, total in totals.items():
            if not total:
                continue
            if topic not in there:
                raise _gone(f"the topic {topic} held {total:,} messages, and is gone")
            bounds = [ends(consumer, topic, number) for number in there[topic].partitions]
            removed = sum(low for low, _ in bounds)
            if removed and not self._settings.allow_short_retention:
                raise _gone(f"the first messages of the topic {topic} are gone")
            if sum(high for _, high in bounds) < total:
                raise _gone(f"the topic {topic} held {total:,} messages, and was made anew since")

    def require_new_commits(self, consumer: Consumer) -> None:
        """Refuses a topic that had commits and has forgotten them all."""
        if ends(consumer, self.commits, 0)[0] > 0:
            raise MirrorRefused(
                f"all commits in {self.commits} are gone, and nobody knows where to go on",
                hint="What is in the other topics would be mirrored twice. Remove all topics of the"
                " mirror, and all events are mirrored anew; or set mirror.topic_prefix to begin"
                " beside them.",
                field="mirror.topic_prefix",
            )

    def require_unused(self, topic: str) -> None:
        """Refuses a topic with messages of which no commit tells."""
        partitions = [(topic, number) for number in range(self.partitions_of(topic))]
        if not any(ends_of(self.admin, partitions).values()):
            return
        with reading(self._config) as consumer:
            has_messages = any(_has_messages(consumer, *partition) for partition in partitions)
        if has_messages:
            raise MirrorRefused(
                f"the topic {topic} has messages, and no commit in {self.commits} tells of them",
                hint="Remove the topics of the mirror, and all events are mirrored anew; or set"
                " mirror.topic_prefix.",
                field="mirror.topic_prefix",
            )

    def _there_with(self, topic: str) -> Mapping[str, Any]:
        """Waits a while for one that the brokers do not tell of yet."""
        deadline = time.monotonic() + _TOLD_WITHIN_S
        while topic not in (there := self._there()) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return there

    def _there(self) -> Mapping[str, Any]:
        try:
            found = self.admin.list_topics(timeout=ANSWER_WITHIN_S).topics
        except KafkaException as error:
            raise failure(error, "asking for the topics") from error
        return {name: topic for name, topic in found.items() if topic.error is None}

    def _make(self, topics: Collection[str], extra: Mapping[str, str]) -> None:
        settings = {
            **_FOR_EVER,
            **_OWN_TIMES,
            _MESSAGE_BYTES: str(most_message_bytes(self._config)),
            **extra,
        }
        unknown = []
        wanted = [
            NewTopic(
                topic,
                num_partitions=1 if topic == self.commits else self._settings.partitions,
                replication_factor=self._settings.replication_factor or _BROKERS_CHOICE,
                config=settings,
            )
            for topic in topics
        ]
        for topic, made in self.admin.create_topics(
            wanted, request_timeout=ANSWER_WITHIN_S
        ).items():
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if error.args[0].code() == KafkaError.INVALID_CONFIG and extra:
                    unknown.append(topic)
                    continue
                if error.args[0].code() in (
                    KafkaError.INVALID_REPLICATION_FACTOR,
                    KafkaError.POLICY_VIOLATION,
                    KafkaError.INVALID_CONFIG,
                    KafkaError.TOPIC_EXCEPTION,
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                ):
                    raise MirrorRefused(
                        f"the topic {topic} cannot be made: {error.args[0].str()}",
                        hint=f"Set mirror.replication_factor or mirror.topic_prefix, or make it"
                        f" yourself with {_said(settings)}.",
                        field="mirror",
                    ) from error
                raise failure(error, f"making the topic {topic}") from error
        if unknown:
            self._make(unknown, {})

    def _require_right(self, topics: Collection[str]) -> None:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        for resource, described in self.admin.describe_configs(
            resources, request_timeout=ANSWER_WITHIN_S
        ).items():
            try:
                found = described.result()
            except KafkaException as error:
                raise failure(error, f"asking for the settings of {resource.name}") from error
            settings = {name: entry.value for name, entry in found.items()}
            taken = int(settings.get(_MESSAGE_BYTES) or MOST_BATCH_BYTES)
            self.batch_bytes = max(1, min(self.batch_bytes, taken))
            if wrong := _other_than(_OWN_TIMES, settings):
                raise MirrorRefused(
                    f"the topic {resource.name} gives messages times of its own: it has"
                    f" {_said(wrong)}",
                    hint=f"Set {_said(_OWN_TIMES)} for it. If there are messages in it, remove all"
                    " topics of the mirror as well, and all events are mirrored anew.",
                    field="mirror.topic_prefix",
                )
            wrong = _other_than(_FOR_EVER, settings)
            if wrong and not self._settings.allow_short_retention:
                raise MirrorRefused(
                    f"the topic {resource.name} does not keep its messages: it has {_said(wrong)}",
                    hint=f"Set {_said({n: _FOR_EVER[n] for n in wrong})} for it, or"
                    " mirror.allow_short_retention if readers can live with holes.",
                    field="mirror.allow_short_retention",
                )


def _has_messages(consumer: Consumer, topic: str, partition: int) -> bool:
    """What a transaction left that was given up is none."""
    first, end = ends(consumer, topic, partition)
    return next(messages(consumer, topic, partition, first, end), None) is not None


def _gone(message: str) -> MirrorRefused:
    return MirrorRefused(
        message,
        hint="Readers would miss them. Remove all topics of the mirror, and all events are mirrored"
        " anew; or set mirror.topic_prefix to begin beside them.",
        field="mirror.topic_prefix",
    )


def _other_than(wanted: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    return {name: found[name] for name in wanted if name in found and found[name] != wanted[name]}


def _said(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
