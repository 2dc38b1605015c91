"""How far the partitions are finished: what a reader of committed messages can see."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from tidemark.config import Config
from tidemark.mirror.errors import MirrorUnavailable
from tidemark.mirror.kafka import admin
from tidemark.mirror.position import ends_of
from tidemark.pipeline.kafka.errors import KafkaUnavailable
from tidemark.pipeline.kafka.planning import Partition, Range

_LOOK_EVERY_S: Final = 0.05
_FINISHED_WITHIN_S: Final = 30.0


class Finished:
    """Asks the brokers, with one connection for as long as it lasts."""

    def __init__(self, config: Config, stopping: threading.Event) -> None:
        self._admin = admin(config)
        self._stopping = stopping

    def wait_for(self, ranges: Mapping[Partition, Range]) -> None:
        """Returns once all of these can be read. A transaction is committed in one partition after
        the other, so the topic of commits may be ahead.

        Raises `KafkaUnavailable` if that takes too long.
        """
        waiting = dict(ranges)
        deadline = time.monotonic() + _FINISHED_WITHIN_S
        while True:
            ends = self._ends(waiting)
            waiting = {p: found for p, found in waiting.items() if ends[p] < found.end}
            if not waiting or self._stopping.is_set():
                return
            if time.monotonic() > deadline:
                (topic, number), found = next(iter(waiting.items()))
                raise KafkaUnavailable(
                    f"partition {number} of {topic} can be read up to offset {ends[topic, number]},"
                    f" and a commit needs {found.end - 1}",
                    hint="A transaction is not finished there, or messages are gone. Look at the"
                    " brokers; the pipeline goes on by itself.",
                )
            self._stopping.wait(_LOOK_EVERY_S)

    def _ends(self, ranges: Mapping[Partition, Range]) -> dict[Partition, int]:
        try:
            return ends_of(self._admin, ranges)
        except MirrorUnavailable as error:
            raise KafkaUnavailable(
                error.message,
                hint="Look at the brokers in mirror.bootstrap_servers and at the topics; the"
                " pipeline goes on by itself.",
            ) from error
