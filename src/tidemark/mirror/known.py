"""What a process has learnt of the topics while it mirrors, and knows also after an attempt failed.

Who begins anew reads where to go on from the last commits. What brokers have lost further back it
can find only if it knows what was there.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer

from tidemark.mirror.errors import MirrorRefused
from tidemark.mirror.kafka import MOST_BATCH_BYTES
from tidemark.mirror.messages import Target
from tidemark.mirror.position import ends, messages, sequence_of


class Known:
    """Where the last message is that was sent to each partition, and how much is taken at once."""

    def __init__(self) -> None:
        self._ends: dict[Target, int] = {}
        self.batch_bytes = MOST_BATCH_BYTES

    def note_taken(self, batch_bytes: int) -> None:
        """A topic takes no more than this at once."""
        self.batch_bytes = min(self.batch_bytes, batch_bytes)

    def note(self, ends: Mapping[Target, int]) -> None:
        """All see what was sent up to here."""
        self._ends.update(ends)

    def forget(self) -> None:
        """Everything is mirrored anew."""
        self._ends.clear()

    def require_there(self, consumer: Consumer, commits_topic: str) -> None:
        """Refuses partitions without the last message that was sent to them.

        Where they end now does not tell: what was given up since has taken offsets too.
        """
        for (topic, partition), end in self._ends.items():
            low, high = ends(consumer, topic, partition)
            if low >= end:
                # Forgotten in time, and not lost.
                continue
            last = messages(consumer, topic, partition, end - 1, min(high, end))
            # Others may have written there.
            if any(topic == commits_topic or sequence_of(found) is not None for found in last):
                continue
            raise MirrorRefused(
                f"the message at offset {end - 1:,} of partition {partition} of the topic {topic}"
                " was the last that the mirror had sent there, and is gone",
                hint="The topic was made anew while the mirror wrote to it, or a broker took over"
                " that did not have all of it. Remove all topics of the mirror, and all events are"
                " mirrored anew; or set mirror.topic_prefix to begin beside them.",
                field="mirror.topic_prefix",
            )
