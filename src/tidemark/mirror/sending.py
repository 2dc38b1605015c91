"""Some commits of the ledger sent to Kafka in one transaction: all of them are there, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Delivered

from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.ledger.port import CommitRow, SpeltEvent
from tidemark.mirror.errors import MirrorFenced, MirrorUnavailable
from tidemark.mirror.kafka import ANSWER_WITHIN_S, TRANSACTION_WITHIN_S, failure, producer
from tidemark.mirror.messages import (
    Message,
    checksum_of,
    commit_record,
    encode_commit,
    event_message,
)
from tidemark.mirror.partitioning import partition_of
from tidemark.mirror.places import Place, PlaceColumns
from tidemark.mirror.position import reading
from tidemark.mirror.topics import Topics

_POLL_S: Final = 0.2
_GIVE_UP_S: Final = 5.0
_IN_TROUBLE_S: Final = 5.0


Target: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""
Callback: TypeAlias = Callable[[KafkaError | None, Delivered], None]


class Stopped(Exception):
    """Somebody wants an end in the middle of a transaction, which is given up."""


class Chunk(NamedTuple):
    """Commits that follow one another, and all their events."""

    commits: Sequence[CommitRow]
    events: Sequence[SpeltEvent]


class Sender:
    """Sends in the name of a ledger. What it begins by, `begin`, ends what others had begun."""

    def __init__(
        self, config: Config, ledger_id: str, topics: Topics, stopped: Callable[[], bool]
    ) -> None:
        self._config = config
        self._ledger_id = ledger_id
        self._topics = topics
        self._stopped = stopped
        self._trouble = ""
        self.ends: dict[tuple[str, int], int] = {}
        """Behind what was sent last to each partition."""
        self._producer: Any = producer(config, ledger_id, self._note)

    def begin(self) -> None:
        """Raises `MirrorUnavailable` while the brokers are away."""
        try:
            self._producer.init_transactions(ANSWER_WITHIN_S)
        except KafkaException as error:
            raise self._failure(error, "taking over the mirror's transactions") from error

    def send(self, chunk: Chunk, totals: dict[str, int]) -> PlaceColumns:
        """Where the events are, once they are there for all to see.

        `totals` is how many messages each topic has, and then has with them.
        """
        self._trouble = ""
        try:
            return self._send(chunk, totals, _Sparing)
        except _LookCloser:
            # Rare, and takes longer: each message is asked for by itself.
            self.give_up()
            return self._send(chunk, totals, _Exact)

    def _send(
        self,
        chunk: Chunk,
        totals: dict[str, int],
        watch: type[_Sparing | _Exact],
    ) -> PlaceColumns:
        try:
            self._producer.begin_transaction()
            crash_point("mirror.begun")
            targets = self._targets(chunk, totals)
            watched = watch(chunk, targets)
            checksums = self._send_events(chunk, targets, watched)
            self._wait_for_all(watched)
            places = watched.places()
            crash_point("mirror.events_sent")
            self._send_commits(chunk, targets, places, checksums, totals)
            crash_point("mirror.before_commit")
            self._producer.commit_transaction(TRANSACTION_WITHIN_S)
            crash_point("mirror.committed")
        except KafkaException as error:
            if watch is _Sparing and error.args[0].txn_requires_abort():
                raise _LookCloser from error
            raise self._failure(error, "mirroring") from error
        return places

    def give_up(self) -> None:
        """Ends what was begun and not finished, as far as that can be done."""
        self._producer.purge()
        try:
            self._producer.abort_transaction(_GIVE_UP_S)
        except KafkaException:
            # There is none, or the brokers are away: who begins next ends it.
            return

    def _targets(self, chunk: Chunk, totals: Mapping[str, int]) -> list[Target]:
        """The topic and the partition of each event. What has no messages yet must have none."""
        topics: dict[str, tuple[str, int]] = {}
        targets = []
        for row in chunk.events:
            if row.stream not in topics:
                topic = self._topics.of_stream(row.stream)
                if topic not in totals:
                    with reading(self._config) as consumer:
                        self._topics.require_unused(topic, consumer)
                topics[row.stream] = (topic, self._topics.partitions_of(topic))
            topic, partitions = topics[row.stream]
            targets.append((topic, partition_of(row, partitions)))
        return targets

    def _send_events(
        self, chunk: Chunk, targets: Sequence[Target], watched: _Sparing | _Exact
    ) -> list[int]:
        """The checksums of the messages."""
        checksums = []
        for index, (row, target) in enumerate(zip(chunk.events, targets, strict=True)):
            message = event_message(row)
            checksums.append(checksum_of(message.value))
            self._produce(target, message, watched.callback(index))
        return checksums

    def _send_commits(
        self,
        chunk: Chunk,
        targets: Sequence[Target],
        places: PlaceColumns,
        checksums: Sequence[int],
        totals: dict[str, int],
    ) -> None:
        watched = _Exact(chunk, [])
        counts = totals.copy()
        index = 0
        for commit in chunk.commits:
            found: dict[str, dict[int, list[int]]] = {}
            end = index + commit.last_sequence - commit.first_sequence + 1
            for place in range(index, end):
                topic, partition = targets[place]
                found.setdefault(topic, {}).setdefault(partition, []).append(places.offsets[place])
                counts[topic] = counts.get(topic, 0) + 1
                self.ends[topic, partition] = places.offsets[place] + 1
            checksum = sum(checksums[index:end])
            record = commit_record(self._ledger_id, commit, found, checksum, counts)
            self._produce((self._topics.commits, 0), encode_commit(record), watched.of_commit)
            index = end
        self._wait_for_all(watched)
        assert watched.commit_offset is not None
        self.ends[self._topics.commits, 0] = watched.commit_offset + 1
        totals.update(counts)

    def _produce(self, target: Target, message: Message, arrived: Callback | None) -> None:
        while True:
            try:
                self._producer.produce(
                    target[0],
                    message.value,
                    message.key,
                    target[1],
                    arrived,
                    timestamp=message.timestamp_ms,
                    headers=message.headers,
                )
                return
            except BufferError:
                # As much waits to be sent as may.
                self._producer.poll(_POLL_S)
                self._require_going_on()

    def _wait_for_all(self, watched: _Sparing | _Exact) -> None:
        began = time.monotonic()
        while self._producer.flush(_POLL_S):
            self._require_going_on()
            # Who is told that the brokers are down says so sooner than who is told nothing.
            patience_s = _IN_TROUBLE_S if self._trouble else TRANSACTION_WITHIN_S
            if watched.has_failed or time.monotonic() - began > patience_s:
                break
        watched.require_arrived()
        if len(self._producer):
            raise MirrorUnavailable(
                f"the brokers did not answer in time. {self._trouble}".strip(),
                hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by"
                " itself.",
                field="mirror.bootstrap_servers",
            )

    def _require_going_on(self) -> None:
        if self._stopped():
            raise Stopped

    def _note(self, error: KafkaError) -> None:
        # One broker of several may be down without harm.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error.str()

    def _failure(self, error: KafkaException, doing: str) -> MirrorFenced | MirrorUnavailable:
        found = failure(error, doing)
        if isinstance(found, MirrorUnavailable) and self._trouble:
            found.message += f" ({self._trouble})"
        return found


class _LookCloser(Exception):
    """Messages did not all go as they usually do, and it is not known which."""


class _Sparing:
    """Learns where messages went from the first and the last in each partition.

    Between them they follow one another, unless somebody else has written to the topic meanwhile.
    """

    def __init__(self, chunk: Chunk, targets: Sequence[Target]) -> None:
        self._targets = targets
        first: dict[Target, int] = {}
        for index, target in enumerate(targets):
            first.setdefault(target, index)
        self._last = {target: index for index, target in enumerate(targets)}
        self._watched = {*first.values(), *self._last.values()}
        self._offsets: dict[int, int] = {}
        self.has_failed = False

    def callback(self, index: int) -> Callback | None:
        return partial(self._arrived, index) if index in self._watched else None

    def _arrived(self, index: int, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self._offsets[index] = message.offset() or 0
        else:
            self.has_failed = True

    def require_arrived(self) -> None:
        if self.has_failed:
            raise _LookCloser

    def places(self) -> PlaceColumns:
        columns = PlaceColumns.unknown(len(self._targets))
        behind: dict[Target, int] = {}
        for index, target in enumerate(self._targets):
            offset = behind[target] if target in behind else self._offsets.get(index, -1)
            behind[target] = offset + 1
            columns.put(index, Place(target[1], offset))
        if any(
            self._offsets.get(index) != behind[target] - 1 for target, index in self._last.items()
        ):
            raise _LookCloser
        return columns


class _Exact:
    """Learns of each message where it went, or why it did not."""

    def __init__(self, chunk: Chunk, targets: Sequence[Target]) -> None:
        self._first_sequence = chunk.commits[0].first_sequence
        self._columns = PlaceColumns.unknown(len(targets))
        self._error: KafkaError | None = None
        self._what = ""
        self._topic: str | None = None
        self.commit_offset: int | None = None

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def callback(self, index: int) -> Callback:
        return partial(self._arrived, index)

    def _arrived(self, index: int, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self._columns.put(index, Place(message.partition() or 0, message.offset() or 0))
        else:
            self._failed(error, message, f"the event {self._first_sequence + index}")

    def of_commit(self, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self.commit_offset = message.offset()
        else:
            self._failed(error, message, "a commit")

    def _failed(self, error: KafkaError, message: Delivered, what: str) -> None:
        # What follows fails because of the first.
        if self._error is None:
            self._error, self._what, self._topic = error, what, message.topic()

    def places(self) -> PlaceColumns:
        return self._columns

    def require_arrived(self) -> None:
        if self._error is None:
            return
        if self._error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise MirrorUnavailable(
                f"{self._what} is too large for the topic {self._topic}",
                hint=f"Set max.message.bytes of {self._topic} higher; nothing is skipped"
                " meanwhile.",
                field="mirror",
            )
        raise MirrorUnavailable(
            f"the topic {self._topic} did not take {self._what}: {self._error.str()}",
            hint="Look at the topic and its brokers; the mirror goes on by itself.",
            field="mirror.bootstrap_servers",
        )
