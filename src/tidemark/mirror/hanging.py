"""Transactions that Kafka holds open although whoever began them has ended them.

When a transaction ends, the brokers write so into each partition. Kafka 4.3 leaves that out where a
partition has no leader just then, and takes the transaction for ended (KAFKA-20734). What it has
sent is then not seen, and shares the fate of the next transaction of the same producer: what was
given up is committed with it, what was committed is given up with it. So nothing may be sent while
something hangs.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tidemark.config import Config
from tidemark.mirror.errors import MirrorRefused, MirrorUnavailable
from tidemark.mirror.messages import MOST_COMMITS, CommitRecord, Target, decode_commit
from tidemark.mirror.position import ends, last_commits, messages, reading, stable_ends

log = logging.getLogger(__name__)

_SETTLES_WITHIN_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.05


def hanging(admin: AdminClient, partitions: Collection[Target]) -> dict[Target, int]:
    """Where something stays open that nobody works on, and from which offset on."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while True:
        # In this order: what is written between the two is not taken for something open.
        all_there_is = stable_ends(admin, partitions, sees_all=True)
        seen = stable_ends(admin, partitions)
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
    give_up: Callable[[Collection[Target]], None],
) -> None:
    """Gives up what hangs, so that it can be sent anew. The mirror must just have taken over.

    `give_up` begins a transaction of the same producer in these partitions, and gives it up.
    """
    found = hanging(admin, partitions)
    if not found:
        return
    # All see each transaction before the next one begins, so only the last can hang.
    _require_untold(found, last_commits(consumer, commits_topic, MOST_COMMITS))
    if (commits_topic, 0) in found:
        untold = _untold(config, commits_topic, found[commits_topic, 0])
        _require_unseen(found, untold, consumer)
    give_up(found)
    left = hanging(admin, partitions)
    if left:
        raise _held(left)
    log.warning(
        "Kafka had not ended a transaction of the mirror (KAFKA-20734); it is given up, and sent"
        " anew: %s",
        _said(found),
    )


def _require_untold(found: Mapping[Target, int], told: Iterable[CommitRecord]) -> None:
    """What a commit tells of that all see must not be given up."""
    for commit in told:
        for topic, partition, _, last in commit.runs():
            if last >= found.get((topic, partition), last + 1):
                raise _held(found)


def _require_unseen(
    found: Mapping[Target, int], untold: Iterable[CommitRecord], consumer: Consumer
) -> None:
    """What is given up in one partition must not be seen in another."""
    for commit in untold:
        for topic, partition, first, last in commit.runs():
            if first >= found.get((topic, partition), last + 1):
                continue
            if next(messages(consumer, topic, partition, first, last + 1), None) is not None:
                raise MirrorRefused(
                    f"Kafka has committed a transaction of the mirror in {topic} and not in"
                    f" {_said(found)}",
                    hint="Kafka 4.3 does so if a broker dies meanwhile (KAFKA-20734). Remove all"
                    " topics of the mirror, and all events are mirrored anew; or set"
                    " mirror.topic_prefix to begin beside them.",
                    field="mirror.topic_prefix",
                )


def _untold(config: Config, topic: str, first: int) -> Iterator[CommitRecord]:
    """The commits from an offset on that nobody sees."""
    with reading(config, sees_all=True) as consumer:
        _, end = ends(consumer, topic, 0)
        for message in messages(consumer, topic, 0, first, end):
            # Somebody else may have written there, and what ends a transaction is no commit.
            with contextlib.suppress(msgspec.MsgspecError):
                yield decode_commit(message.value() or b"")


def _held(found: Mapping[Target, int]) -> MirrorUnavailable:
    return MirrorUnavailable(
        f"a transaction is open that the mirror did not begin or cannot end, in {_said(found)}",
        hint="If another producer writes there, stop it: the mirror goes on when its transaction"
        " has ended. Else look with `kafka-transactions.sh find-hanging`, or remove all topics of"
        " the mirror to have all events mirrored anew.",
        field="mirror.topic_prefix",
    )


def _said(found: Mapping[Target, int]) -> str:
    return ", ".join(
        f"partition {partition} of {topic} from offset {first:,} on"
        for (topic, partition), first in sorted(found.items())
    )
