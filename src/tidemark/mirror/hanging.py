"""Transactions that Kafka holds open although whoever began them has ended them.

When a transaction ends, the brokers write so into each partition. Kafka 4.3 leaves that out where a
partition has no leader just then, and takes the transaction for ended (KAFKA-20734). What it has
sent there is then not seen, and shares the fate of the next transaction of the same producer: what
was given up is committed with it, what was committed is given up with it. So nothing may be sent
while something hangs.

What is seen of it somewhere was committed, and is committed everywhere; else it is given up.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tidemark.config import Config
from tidemark.mirror.errors import MirrorUnavailable
from tidemark.mirror.messages import MOST_COMMITS, CommitRecord, Target, decode_commit
from tidemark.mirror.position import (
    ends,
    ends_of,
    joined,
    last_commits,
    messages,
    reading,
    sequence_of,
)

log = logging.getLogger(__name__)

_SETTLES_WITHIN_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.05


def hanging(admin: AdminClient, partitions: Collection[Target]) -> dict[Target, int]:
    """Where something stays open, and from which offset on. What comes meanwhile does not count."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    all_there_is = ends_of(admin, partitions, sees_all=True)
    while True:
        seen = ends_of(admin, partitions)
        found = {target: seen[target] for target, end in all_there_is.items() if seen[target] < end}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_EVERY_S)


def end_hanging(
    config: Config,
    admin: AdminClient,
    partitions: Collection[Target],
    *,
    commits_topic: str,
    consumer: Consumer,
    end: Callable[[Collection[Target], bool], None],
) -> None:
    """Ends what hangs everywhere in the same way. The mirror must just have taken over.

    `end` has a transaction of the same producer in these partitions, and commits it or gives it up.
    """
    found = hanging(admin, partitions)
    if not found:
        return
    untold: list[CommitRecord] = []
    if (commits_topic, 0) in found:
        untold = [*_untold(config, commits_topic, found[commits_topic, 0])]
        # Of a stream that nobody has told of yet, too.
        partitions = {*partitions, *joined(untold)}
        found |= hanging(admin, partitions)
    # All see each transaction before the next one begins, so only the last can hang.
    is_seen = _is_told(found, last_commits(consumer, commits_topic, MOST_COMMITS)) or _is_seen(
        untold, ends_of(admin, partitions), consumer
    )
    end(found, is_seen)
    left = hanging(admin, partitions)
    if left:
        raise MirrorUnavailable(
            f"a transaction is open that the mirror cannot end, in {_said(left)}",
            hint="Somebody else writes there, which only the mirror may. It goes on when their"
            " transaction has ended; `kafka-transactions.sh find-hanging` tells whose it is.",
            field="mirror.topic_prefix",
        )
    log.warning(
        "Kafka had not ended a transaction of the mirror everywhere (KAFKA-20734), it is %s now: in"
        " %s",
        "committed" if is_seen else "given up",
        _said(found),
    )


def _is_told(found: Mapping[Target, int], told: Iterable[CommitRecord]) -> bool:
    """Whether what hangs is of a commit that all see."""
    return any(
        last >= found.get((topic, partition), last + 1)
        for commit in told
        for topic, partition, _, last in commit.runs()
    )


def _is_seen(
    untold: Sequence[CommitRecord], seen: Mapping[Target, int], consumer: Consumer
) -> bool:
    """Whether all see an event of commits that hang.

    Where they say that it is, there may be something else: one that was given up had not been
    looked at whether it is right.
    """
    if not untold:
        return False
    sequences = range(int(untold[0].first), untold[-1].last_sequence + 1)
    return any(
        sequence_of(message) in sequences
        for (topic, partition), runs in joined(untold).items()
        for first, last in runs
        for message in messages(
            consumer, topic, partition, first, min(last + 1, seen[topic, partition])
        )
    )


def _untold(config: Config, topic: str, first: int) -> Iterator[CommitRecord]:
    """The commits from an offset on that nobody sees."""
    with reading(config, sees_all=True) as consumer:
        _, end = ends(consumer, topic, 0)
        for message in messages(consumer, topic, 0, first, end):
            # Somebody else may have written there, and what ends a transaction is no commit.
            with contextlib.suppress(msgspec.MsgspecError):
                yield decode_commit(message.value() or b"")


def _said(found: Mapping[Target, int]) -> str:
    return ", ".join(
        f"partition {partition} of {topic} from offset {first:,} on"
        for (topic, partition), first in sorted(found.items())
    )
