"""What there is to read of partitions, and how far they are finished: what a reader of committed
messages can see."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from itertools import starmap
from typing import Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tidemark.config import Config
from tidemark.mirror.errors import MirrorUnavailable
from tidemark.mirror.kafka import ANSWER_WITHIN_S, admin, failure
from tidemark.mirror.position import ends_of
from tidemark.pipeline.kafka.errors import KafkaUnavailable, brokers_asked
from tidemark.pipeline.kafka.planning import Partition, Range

_LOOK_EVERY_S: Final = 0.05
_FINISHED_WITHIN_S: Final = 30.0


class Finished:
    """Asks the brokers, with one connection for as long as it lasts."""

    def __init__(self, config: Config, stopping: threading.Event) -> None:
        self._admin = admin(config)
        self._stopping = stopping

    def wait_for(self, ranges: Mapping[Partition, Range]) -> dict[Partition, Range]:
        """All of these, once they can be read; without what is gone. A transaction is committed in
        one partition after the other, so the topic of commits may be ahead.

        Raises `KafkaUnavailable` if that takes too long.
        """
        with brokers_asked():
            refused: MirrorUnavailable
            try:
                return self._wait_for(ranges)
            except MirrorUnavailable as error:
                refused = error
            # Out here: what the client raises while an exception is handled keeps that for ever.
            there = self._of_topics_there(ranges)
            if there == ranges:
                raise refused
            return self._wait_for(there)

    def _wait_for(self, ranges: Mapping[Partition, Range]) -> dict[Partition, Range]:
        if not ranges:
            return {}
        waiting, ends = ranges, {partition: found.end for partition, found in ranges.items()}
        deadline = time.monotonic() + _FINISHED_WITHIN_S
        while True:
            seen = ends_of(self._admin, waiting)
            waiting = {p: found for p, found in waiting.items() if seen[p] < found.end}
            if not waiting or self._stopping.is_set():
                break
            if time.monotonic() > deadline:
                ends |= self._ends_of_all(waiting, seen)
                break
            self._stopping.wait(_LOOK_EVERY_S)
        begins = self._begins(ranges)
        there = {p: Range(max(found.first, begins[p]), ends[p]) for p, found in ranges.items()}
        return {partition: found for partition, found in there.items() if found.first < found.end}

    def _ends_of_all(
        self, waiting: Mapping[Partition, Range], seen: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Where partitions end that were waited for in vain. Raises `KafkaUnavailable` if what is
        wanted is there, and hidden."""
        ends = ends_of(self._admin, waiting, sees_all=True)
        for (topic, number), found in waiting.items():
            if ends[topic, number] >= found.end:
                raise KafkaUnavailable(
                    f"partition {number} of {topic} can be read up to offset {seen[topic, number]},"
                    f" and a commit needs {found.end - 1}",
                    hint="A transaction is not finished there. Look at the brokers, and at who else"
                    " writes to the topic; the pipeline goes on by itself.",
                )
        return ends

    def _begins(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The first offsets there are. What was before them, the topics have forgotten."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(starmap(TopicPartition, partitions), earliest)
        try:
            answers = self._admin.list_offsets(asked, request_timeout=ANSWER_WITHIN_S)
            return {
                (found.topic, found.partition): answer.result().offset
                for found, answer in answers.items()
            }
        except KafkaException as error:
            raise failure(error, "asking for the beginnings of the topics") from error

    def _of_topics_there(self, ranges: Mapping[Partition, Range]) -> dict[Partition, Range]:
        try:
            topics = self._admin.list_topics(timeout=ANSWER_WITHIN_S).topics
        except KafkaException as error:
            raise failure(error, "asking for the topics") from error
        return {
            (topic, number): found
            for (topic, number), found in ranges.items()
            if topic in topics and number in topics[topic].partitions
        }
