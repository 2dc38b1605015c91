"""What becomes of messages handed to Kafka's client: where they are, or why they are not."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Final, TypeAlias

from confluent_kafka import KafkaError
from confluent_kafka import Message as Delivered

from tidemark.mirror.chunks import Chunk, Routes, by_commit
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable, NotTaken
from tidemark.mirror.messages import Run, Target, runs_of
from tidemark.mirror.places import UNKNOWN, Place, PlaceColumns

Callback: TypeAlias = Callable[[KafkaError | None, Delivered], None]

# What is said of messages that fail because of another: of its batch, or of its transaction.
_FAILED_WITH_IT: Final = frozenset(
    {
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
)


class LookCloser(Exception):
    """Messages did not all go as they usually do, and it is not known which."""


class Foreseen:
    """Knows where messages will go before they do, and looks at the first and last of each
    partition when they have.

    They follow what all see there, unless somebody else writes to the topic meanwhile.
    """

    def __init__(self, routes: Routes, next_places: Mapping[Target, int]) -> None:
        self._routes = routes
        self._next = next_places
        self._looked_at: dict[int, int] = {}
        """Which messages, and where they should be."""
        totals: Counter[Target] = Counter()
        for share in routes.shares:
            totals.update(share)
        backwards = routes.targets[::-1]
        for target, first in next_places.items():
            self._looked_at[routes.targets.index(target)] = first
            last = len(backwards) - 1 - backwards.index(target)
            self._looked_at[last] = first + totals[target] - 1
        self._found: dict[int, int | None] = {}
        self.knows_why = False
        """That one has failed is all that is asked for: then somebody looks closer."""

    def note_failure(self) -> None:
        """One of those has failed of which nothing is told here."""
        self.knows_why = True

    def callbacks(self) -> list[Callback | None]:
        found: list[Callback | None] = [None] * len(self._routes.targets)
        for index in self._looked_at:
            found[index] = partial(self._arrived, index)
        return found

    def _arrived(self, index: int, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self._found[index] = message.offset()
        else:
            self.knows_why = True

    def require_none_failed(self) -> None:
        if self.knows_why:
            raise LookCloser

    def require_in_place(self) -> None:
        if self._found != self._looked_at:
            raise LookCloser

    def runs(self) -> Iterator[dict[Target, list[Run]]]:
        """For each commit, the offsets of its events in each partition."""
        following = dict(self._next)
        for share in self._routes.shares:
            runs = {}
            for target, how_many in share.items():
                first = following[target]
                following[target] = first + how_many
                runs[target] = [(first, first + how_many - 1)]
            yield runs

    def places(self) -> PlaceColumns:
        following = {target: count(first) for target, first in self._next.items()}
        offsets = map(next, map(following.__getitem__, self._routes.targets))
        return PlaceColumns(array("i", self._routes.partitions), array("q", offsets))


class Strict:
    """Learns of each message why it did not arrive."""

    def __init__(self) -> None:
        self._error: KafkaError | None = None
        self._what = ""
        self._topic: str | None = None

    @property
    def knows_why(self) -> bool:
        """It may first be told of messages that failed because of another."""
        return self._error is not None and self._error.code() not in _FAILED_WITH_IT

    def note_failure(self) -> None:
        """It is told of each message, and so also why."""

    def failed(self, error: KafkaError, message: Delivered, what: str) -> None:
        # What follows fails because of the first, unless that did because of another.
        if self._error is None or not (self.knows_why or error.code() in _FAILED_WITH_IT):
            self._error, self._what, self._topic = error, what, message.topic()

    def require_none_failed(self) -> None:
        if self._error is None:
            return
        if self._error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise NotTaken(
                f"{self._what} is too large for the topic {self._topic}",
                hint=f"Set max.message.bytes of {self._topic} higher; nothing is skipped"
                " meanwhile.",
                field="mirror",
            )
        # The second is what they say of several at once, and may have other reasons.
        if self._error.code() in (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD):
            raise NotTaken(
                f"the topic {self._topic} did not take {self._what}: {self._error.str()}; most"
                " likely its time is too far from that of the brokers",
                hint=f"Set message.timestamp.after.max.ms of {self._topic} higher, or for events of"
                " old message.timestamp.before.max.ms; nothing is skipped meanwhile.",
                field="mirror",
            )
        raise NotTaken(
            f"the topic {self._topic} did not take {self._what}: {self._error.str()}",
            hint="Look at the topic and its brokers; the mirror goes on by itself.",
            field="mirror.bootstrap_servers",
        )


class Exact(Strict):
    """Learns of each event where it went.

    Others who write there push it further. It is never before where it was foreseen, unless what
    was there is gone.
    """

    def __init__(self, chunk: Chunk, routes: Routes, next_places: Mapping[Target, int]) -> None:
        super().__init__()
        self._next = next_places
        self._commits = chunk.commits
        self._targets = routes.targets
        self._columns = PlaceColumns.unknown(len(routes.targets))

    def callbacks(self) -> list[Callback | None]:
        return [partial(self._arrived, index) for index in range(len(self._targets))]

    def _arrived(self, index: int, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            offset = message.offset()
            if offset is not None and offset >= 0:
                self._columns.put(index, Place(self._targets[index][1], offset))
        else:
            self.failed(error, message, f"the event {self._commits[0].first_sequence + index}")

    def require_in_place(self) -> None:
        """All are known by now, and behind what is there."""
        for index, (target, offset) in enumerate(
            zip(self._targets, self._columns.offsets, strict=True)
        ):
            if offset == UNKNOWN.offset:
                event = f"the event {self._commits[0].first_sequence + index}"
                raise _untold(event)
            require_not_back(target, self._next[target], offset)

    def runs(self) -> Iterator[dict[Target, list[Run]]]:
        """For each commit, the offsets of its events in each partition."""
        placed = zip(self._targets, self._columns.offsets, strict=True)
        for of_commit in by_commit(self._commits, placed):
            offsets: defaultdict[Target, list[int]] = defaultdict(list)
            for target, offset in of_commit:
                offsets[target].append(offset)
            yield {target: runs_of(found) for target, found in offsets.items()}

    def places(self) -> PlaceColumns:
        return self._columns


class CommitsWatch(Strict):
    """Learns where the records of commits went."""

    def __init__(self) -> None:
        super().__init__()
        self._first = self.last_offset = UNKNOWN.offset

    def callbacks(self, count: int) -> list[Callback | None]:
        return [self._arrived] * count

    def _arrived(self, error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            self.failed(error, message, "a commit")
            return
        offset = message.offset()
        self.last_offset = UNKNOWN.offset if offset is None else offset
        if self._first == UNKNOWN.offset:
            self._first = self.last_offset

    def require_in_place(self, target: Target, foreseen: int) -> None:
        """They are known by now, and behind what is there."""
        if min(self._first, self.last_offset) < 0:
            raise _untold("a commit")
        require_not_back(target, foreseen, self._first)


def require_not_back(target: Target, foreseen: int, offset: int) -> None:
    """Refuses a partition that goes on before where it had come to."""
    if offset >= foreseen:
        return
    topic, partition = target
    raise MirrorRefused(
        f"partition {partition} of the topic {topic} had come to offset {foreseen:,}, and goes on"
        f" at {offset:,}: messages are gone from its end",
        hint="The topic was made anew while the mirror wrote to it, or a broker took over that did"
        " not have all of it. Remove all topics of the mirror, and all events are mirrored anew; or"
        " set mirror.topic_prefix to begin beside them.",
        field="mirror.topic_prefix",
    )


def _untold(what: str) -> MirrorUnavailable:
    return MirrorUnavailable(
        f"Kafka's client has not said where {what} is",
        hint="Nothing is committed meanwhile, and the mirror goes on by itself. If it stays so,"
        " look at mirror.options for one that keeps the client from saying it.",
        field="mirror.options",
    )
