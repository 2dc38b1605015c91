"""Some commits of the ledger sent to Kafka in one transaction: all of them are there, or none."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, starmap
from operator import length_hint
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException

from tidemark.clock import Clock
from tidemark.config import Config
from tidemark.crash import crash_point
from tidemark.mirror.chunks import Chunk, Routes
from tidemark.mirror.errors import MirrorFenced, MirrorUnavailable, NotTaken, Stopped, TimedOut
from tidemark.mirror.hanging import hanging
from tidemark.mirror.kafka import (
    ANSWER_WITHIN_S,
    ONLY_ONE,
    TRANSACTION_WITHIN_S,
    Trouble,
    failure,
    given_up,
    given_up_after_ms,
    is_fenced,
    producer,
    wants_an_end,
    why_failed,
)
from tidemark.mirror.known import Known
from tidemark.mirror.messages import (
    CommitRecord,
    Messages,
    Target,
    commit_messages,
    commit_record,
)
from tidemark.mirror.patience import Patience
from tidemark.mirror.places import PlaceColumns
from tidemark.mirror.position import ends_of, last_commit, reading
from tidemark.mirror.topics import Topics
from tidemark.mirror.watching import (
    Callback,
    CommitsWatch,
    Exact,
    Foreseen,
    LookCloser,
    Strict,
    require_not_back,
)

_POLL_S: Final = 0.2
_SEEN_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.002
_SEEN_LATER: Final = 1.2
_AT_ONCE: Final = 200
_LOOKS: Final = 3
_MICROS_PER_MS: Final = 1000


Places: TypeAlias = Callable[[], PlaceColumns]
"""Where events are, when somebody wants to know it: to write it down takes a while."""


class _Sent(NamedTuple):
    totals: dict[str, int]
    """How many messages each topic then has."""
    ends: dict[Target, int]
    """Behind the last that was sent to each partition."""
    commits: int


class Sender:
    """Sends in the name of a ledger. What it begins by, `begin`, ends what others had begun.

    The topics must have been looked at: a batch that one of them does not take fails as a whole.
    """

    def __init__(
        self,
        config: Config,
        ledger_id: str,
        topics: Topics,
        known: Known,
        clock: Clock,
        stopped: Callable[[], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._begun_us: int | None = None
        self._ledger_id = ledger_id
        self._topics = topics
        self._of_commits: Target = (topics.commits, 0)
        self._known = known
        self._stopped = stopped
        self._trouble = Trouble()
        self.partitions: dict[str, Sequence[Target]] = {}
        """Of each stream that was sent to."""
        self._next: dict[Target, int] = {}
        """Where the next message of a partition will be, if nobody else writes there."""
        known.note_taken(topics.batch_bytes)
        self._producer: Any = producer(config, ledger_id, known.batch_bytes, self._trouble.note)

    def begin(self) -> None:
        """Raises `MirrorUnavailable` while the brokers are away."""
        try:
            self._producer.init_transactions(ANSWER_WITHIN_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise MirrorUnavailable(
                    "the brokers do not let a transaction take"
                    f" {given_up_after_ms(self._config) / 1000:g} s",
                    hint="Set transaction.timeout.ms in mirror.options lower, or"
                    " transaction.max.timeout.ms of the brokers higher.",
                    field="mirror.options",
                ) from error
            raise self._failure(error, "taking over the mirror's transactions") from error

    def foresee_commits(self) -> None:
        """Whatever comes to their topic from now on and is not sent here is noticed."""
        self._next |= ends_of(self._topics.admin, [self._of_commits])

    def require_nothing_gone(self) -> None:
        """Refuses partitions that end before what was sent to them."""
        for target, end in ends_of(self._topics.admin, self._next.keys()).items():
            require_not_back(target, self._next[target], end)

    def send(
        self, chunk: Chunk, totals: dict[str, int], meanwhile: Callable[[], None] = lambda: None
    ) -> Places:
        """Where the events are, once they are there for all to see.

        `totals` is how many messages each topic has, and then has with them. `meanwhile` is called
        when Kafka's client has all of them, and is sending them, and again while they become
        visible: it must not raise.
        """
        failed: MirrorFenced | MirrorUnavailable
        try:
            return self._sent(chunk, totals, meanwhile)
        except MirrorUnavailable as error:
            failed = error
        # A topic that was looked at since may take less at once than this client sends.
        self._known.note_taken(self._topics.batch_bytes)
        # Out here: what the client raises while an exception is handled keeps that.
        if not isinstance(failed, TimedOut):
            # Brokers may have told it of its messages only, and not why.
            failed = self._given_up_as_fenced() or failed
        if isinstance(failed, TimedOut):
            self._require_nobody_else_went_on(chunk)
        raise failed

    def _sent(self, chunk: Chunk, totals: dict[str, int], meanwhile: Callable[[], None]) -> Places:
        self._trouble.said = ""
        with contextlib.suppress(LookCloser):
            return self._send(chunk, totals, meanwhile, exactly=False)
        # Rare, and takes longer: each message is asked for by itself.
        for _ in range(_LOOKS):
            self._require_as_before(chunk, totals)
            with contextlib.suppress(LookCloser):
                return self._send(chunk, totals, meanwhile, exactly=True)
        raise MirrorUnavailable(
            "Kafka's client has lost count of what it sent",
            hint="The mirror begins with another, which it does by itself.",
        )

    def _require_as_before(self, chunk: Chunk, totals: Mapping[str, int]) -> None:
        """What was begun is given up, and nothing else has come or gone meanwhile."""
        fenced = self._given_up_as_fenced()
        if fenced is not None:
            raise fenced
        self._require_given_up({self._of_commits, *self._routes(chunk, totals).targets})
        with reading(self._config) as consumer:
            self._require_commits_before(chunk, consumer)
            # Where messages went by now may be further than what was lost.
            self._known.require_there(consumer, self._topics.commits)

    def _send(
        self,
        chunk: Chunk,
        totals: dict[str, int],
        meanwhile: Callable[[], None],
        *,
        exactly: bool,
    ) -> Places:
        routes = self._routes(chunk, totals)
        next_places = self._next_places(routes.targets)
        watched = Exact(chunk, routes, next_places) if exactly else Foreseen(routes, next_places)
        of_commits = CommitsWatch()
        failed: KafkaException
        try:
            self._begin_transaction()
            crash_point("mirror.begun")
            sent = self._hand_over(chunk, routes, watched, of_commits, totals, meanwhile)
        except KafkaException as error:
            if not exactly and wants_an_end(error.args[0]):
                raise LookCloser from error
            failed = error
        else:
            crash_point("mirror.before_commit")
            self._commit()
            crash_point("mirror.committed")
            self._wait_until_seen(sent.ends, meanwhile)
            self._known.note(sent.ends)
            totals.update(sent.totals)
            return watched.places
        # Out here: what the client raises while an exception is handled keeps that.
        if wants_an_end(failed.args[0]):
            # It takes no more once brokers have refused a message. Which, that one is told of.
            self._wait_for_all(watched, of_commits)
        raise self._failure(failed, "mirroring") from failed

    def _hand_over(
        self,
        chunk: Chunk,
        routes: Routes,
        watched: Foreseen | Exact,
        of_commits: CommitsWatch,
        totals: Mapping[str, int],
        meanwhile: Callable[[], None],
    ) -> _Sent:
        """All of a transaction, which the brokers then have."""
        self._produce(
            routes.topics,
            routes.partitions,
            chunk.messages,
            watched.callbacks(),
            lambda index: f"the event {chunk.events.first_sequence + index}",
        )
        if isinstance(watched, Exact):
            self._wait_for_all(watched)
            watched.require_in_place()
        crash_point("mirror.events_sent")
        sent = self._send_commits(chunk, watched, of_commits, totals, meanwhile)
        if isinstance(watched, Foreseen):
            watched.require_in_place()
            self._require_commits_in_place(sent)
        return sent

    def _begin_transaction(self) -> None:
        self._begun_us = self._clock.elapsed_us()
        self._producer.begin_transaction()

    def _require_commits_before(self, chunk: Chunk, consumer: Consumer) -> None:
        """They may be of somebody else by now, or gone."""
        last = last_commit(consumer, self._topics.commits)
        end = (last.ledger_id, last.last_sequence) if last else (self._ledger_id, 0)
        if end != (self._ledger_id, chunk.commits[0].first_sequence - 1):
            raise MirrorUnavailable(
                f"{self._topics.commits} does not end where the mirror has come to",
                hint="Somebody else has written to it, or it was removed. The mirror reads it anew,"
                " and says what it finds.",
                field="mirror.topic_prefix",
            )

    def _require_nobody_else_went_on(self, chunk: Chunk) -> None:
        """Another mirror that has taken over meanwhile sends these very commits first."""
        with reading(self._config) as consumer:
            last = last_commit(consumer, self._topics.commits)
        if last is not None and last.received_at_us >= chunk.commits[0].received_at:
            raise MirrorFenced(
                "another mirror of this ledger has taken over while this one was held up",
                hint=ONLY_ONE,
            )

    def _require_commits_in_place(self, sent: _Sent) -> None:
        """Somebody else's transaction before them would hide them."""
        if sent.ends[self._of_commits] != self._next[self._of_commits] + sent.commits:
            raise LookCloser

    def _commit(self) -> None:
        """If it raises, nobody knows if it is committed: the topics have to be read."""
        try:
            self._producer.commit_transaction(TRANSACTION_WITHIN_S)
        except KafkaException as error:
            raise self._failure(error, "committing what was mirrored") from error

    def _wait_until_seen(self, ends: Mapping[Target, int], meanwhile: Callable[[], None]) -> None:
        """Kafka ends a transaction in one partition after the other, after it was committed.

        The next one must not begin before: it would decide about this one too.
        """
        deadline = time.monotonic() + _SEEN_WITHIN_S
        pause_s = _LOOK_EVERY_S
        while True:
            found = ends_of(self._topics.admin, ends, meanwhile=meanwhile)
            unseen = {target for target, end in ends.items() if found[target] < end}
            if not unseen:
                self._next.update(found)
                return
            self._require_going_on()
            if time.monotonic() > deadline:
                topic, partition = min(unseen)
                raise MirrorUnavailable(
                    f"what was committed in partition {partition} of {topic} is not seen after"
                    f" {_SEEN_WITHIN_S:.0f} s",
                    hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by"
                    " itself.",
                    field="mirror.bootstrap_servers",
                )
            time.sleep(pause_s)
            pause_s = min(_SEEN_LATER * pause_s, _POLL_S)

    def _require_given_up(self, targets: Collection[Target]) -> None:
        if hanging(self._topics.admin, targets):
            raise MirrorUnavailable(
                "a transaction that was given up is still open",
                hint="The mirror ends it when it begins anew, which it does by itself.",
                field="mirror.bootstrap_servers",
            )

    def end(self, targets: Collection[Target], is_committed: bool) -> None:
        """Sends to these partitions what says nothing, and with it ends what hangs there."""
        try:
            self._begin_transaction()
            for topic, partition in targets:
                self._producer.produce(topic, partition=partition)
            self._producer.flush(ANSWER_WITHIN_S)
            if is_committed:
                self._commit()
            else:
                self._producer.abort_transaction(ANSWER_WITHIN_S)
        except KafkaException as error:
            raise self._failure(error, "ending what hangs") from error

    def _given_up_as_fenced(self) -> MirrorFenced | MirrorUnavailable | None:
        """Gives up; what to raise, if that shows that another mirror has taken over."""
        refused = given_up(self._producer)
        if refused is None or not is_fenced(refused):
            return None
        return self._failure(refused, "mirroring")

    def close(self) -> None:
        """Gives up, and leaves nothing that goes on by itself.

        What waits for its turn to take over would take over from whoever comes next.
        """
        given_up(self._producer)
        # The last reference: it does not wait for Python to look for what is not used any more.
        del self._producer

    def _routes(self, chunk: Chunk, totals: Mapping[str, int]) -> Routes:
        """What has no messages yet must have none."""
        for stream in chunk.streams:
            topic = self._topics.of_stream(stream)
            if topic not in totals:
                self._topics.require_unused(topic)
            if stream not in self.partitions:
                count = self._topics.partitions_of(topic)
                self.partitions[stream] = [(topic, number) for number in range(count)]
        return chunk.routes or Routes.of(chunk.commits, chunk.events, self.partitions)

    def _next_places(self, targets: Iterable[Target]) -> Mapping[Target, int]:
        wanted = {*targets}
        unknown = {self._of_commits, *wanted} - self._next.keys()
        if unknown:
            self._next |= ends_of(self._topics.admin, unknown)
        return {target: self._next[target] for target in wanted}

    def _send_commits(
        self,
        chunk: Chunk,
        events: Foreseen | Exact,
        watched: CommitsWatch,
        totals: Mapping[str, int],
        meanwhile: Callable[[], None],
    ) -> _Sent:
        counts = dict(totals)
        ends: dict[Target, int] = {}
        records: list[CommitRecord] = []
        for commit, checksum, runs in zip(
            chunk.commits, chunk.checksums, events.runs(), strict=True
        ):
            for target, found in runs.items():
                ends[target] = found[-1][1] + 1
                for first, last in found:
                    counts[target[0]] = counts.get(target[0], 0) + last - first + 1
            records.append(commit_record(self._ledger_id, commit, runs, checksum, counts))
        count = len(records)
        self._produce(
            [self._topics.commits] * count,
            [0] * count,
            commit_messages(chunk.commits, records),
            watched.callbacks(count),
            lambda index: f"the record of the commit up to {chunk.commits[index].last_sequence}",
        )
        meanwhile()
        self._wait_for_all(events, watched)
        if isinstance(events, Exact):
            watched.require_in_place(self._of_commits, self._next[self._of_commits])
        ends[self._of_commits] = watched.last_offset + 1
        return _Sent(counts, ends, count)

    def _produce(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        messages: Messages,
        callbacks: Sequence[Callback | None],
        named: Callable[[int], str],
    ) -> None:
        """`named` says of one of the messages what it is."""
        values, keys, timestamps_ms, headers = messages
        nothing = [None] * len(topics)
        # As the arguments of `produce` follow one another: by their names it takes half as long
        # again.
        columns = topics, values, keys, partitions, callbacks, nothing, timestamps_ms, headers
        waiting = [iter(column) for column in columns]
        rows = zip(*waiting, strict=True)
        produce = self._producer.produce
        try:
            while True:
                try:
                    # Many of them: a loop in Python takes longer. Not all: others that want
                    # Python's lock would wait for the end.
                    while length_hint(waiting[0]):
                        deque(starmap(produce, islice(rows, _AT_ONCE)), maxlen=0)
                    return
                except BufferError:
                    refused = len(topics) - length_hint(waiting[0]) - 1
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        refused = len(topics) - length_hint(waiting[0]) - 1
                        raise NotTaken(
                            f"{named(refused)} is too large for Kafka's client:"
                            f" {len(values[refused]):,} bytes",
                            hint="Set ingest.max_event_bytes as high as it was when the event came;"
                            " nothing is skipped meanwhile.",
                            field="ingest.max_event_bytes",
                        ) from error
                    raise
                # Out here: what the client raises while an exception is handled keeps that.
                self._produce_late([column[refused] for column in columns])
        finally:
            # Else whatever is raised here keeps the client.
            del produce

    def _produce_late(self, message: Sequence[Any]) -> None:
        """One that was refused, because as much waits to be sent as may."""
        patience = Patience(self._trouble)
        while True:
            self._producer.poll(_POLL_S)
            self._require_going_on()
            with contextlib.suppress(BufferError):
                self._producer.produce(*message)
                return
            if patience.is_over(len(self._producer)):
                raise patience.lost()

    def _wait_for_all(self, *watched: Foreseen | Strict) -> None:
        patience = Patience(self._trouble)
        while left := self._producer.flush(_POLL_S):
            self._require_going_on()
            if self._has_failed():
                patience.shorten()
                for each in watched:
                    each.note_failure()
            if any(each.knows_why for each in watched) or patience.is_over(left):
                break
        if not any(each.knows_why for each in watched):
            self._has_failed()
        # Who knows why comes first.
        for each in sorted(watched, key=lambda each: not each.knows_why):
            each.require_none_failed()
        if len(self._producer):
            raise patience.lost()

    def _has_failed(self) -> bool:
        failed = why_failed(self._producer)
        if failed is not None and failed.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The client has counted what brokers refused in the transaction before, and they miss
            # it. Once this one is given up, it counts anew.
            raise LookCloser
        return failed is not None

    def _require_going_on(self) -> None:
        if self._stopped():
            raise Stopped

    def _failure(self, error: KafkaException, doing: str) -> MirrorFenced | MirrorUnavailable:
        found = failure(error, doing)
        if isinstance(found, MirrorFenced) and self._has_timed_out():
            # Kafka has the same word for it.
            return TimedOut(
                "the brokers have given up a transaction that took longer than"
                f" {given_up_after_ms(self._config) / 1000:g} s",
                hint="The mirror was held up, or a commit is very large: then set"
                " transaction.timeout.ms in mirror.options higher. It goes on by itself.",
                field="mirror.options",
            )
        if isinstance(found, MirrorUnavailable) and self._trouble.said:
            found.message += f" ({self._trouble.said})"
        return found

    def _has_timed_out(self) -> bool:
        if self._begun_us is None:
            return False
        took_us = self._clock.elapsed_us() - self._begun_us
        return took_us >= given_up_after_ms(self._config) * _MICROS_PER_MS
