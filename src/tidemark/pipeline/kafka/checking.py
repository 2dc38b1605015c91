"""Whether the messages of a batch are those that the mirror wrote, and which are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

from tidemark.mirror.messages import CommitRecord
from tidemark.pipeline.kafka.errors import KafkaDiffers
from tidemark.pipeline.kafka.planning import BatchPlan

_NAMED: Final = 10
_HINT: Final = (
    "Nothing behind it is folded. Have the topics mirrored anew (docs/howto/kafka.md), or set"
    " pipeline.source to ledger."
)


class Seen(msgspec.Struct, frozen=True):
    """What was read: how many messages of the mirror, their checksum, and how many others."""

    count: int
    checksum: int
    others: int

    def is_right(self, plan: BatchPlan) -> bool:
        return (self.count, self.checksum, self.others) == (plan.event_count, plan.checksum, 0)


class Foreign(NamedTuple):
    """A message that is in a topic of the mirror, and that the mirror did not write."""

    topic: str
    partition: int
    offset: int


ValueOf = Callable[[int], int | None]
"""The checksum that the message of an event should have, by its sequence, from the ledger."""


def observed(found: DataFrame, plan: BatchPlan) -> tuple[DataFrame, Observation]:
    """The messages of a plan's commits; what was seen is known once they have been read."""
    observation = Observation()
    ours = _is_of(plan)
    watched = found.observe(
        observation,
        fn.count_if(ours).alias("count"),
        fn.coalesce(fn.sum(fn.when(ours, fn.col("checksum"))), fn.lit(0)).alias("checksum"),
        fn.count_if(~ours).alias("others"),
    )
    return watched.filter(ours), observation


def seen(observation: Observation) -> Seen:
    values = observation.get
    return Seen(values["count"], int(values["checksum"]), values["others"])


def exact(found: DataFrame, plan: BatchPlan) -> DataFrame:
    """Only the messages that are where the mirror has put them."""
    runs = found.sparkSession.createDataFrame(
        [run for commit in plan.commits for run in commit.runs()],
        "topic string, partition int, first bigint, last bigint",
    )
    is_there = (
        (found["topic"] == runs["topic"])
        & (found["partition"] == runs["partition"])
        & (found["offset"] >= runs["first"])
        & (found["offset"] <= runs["last"])
    )
    return found.join(fn.broadcast(runs), is_there, "left_semi")


def foreign(found: DataFrame, plan: BatchPlan) -> list[Foreign]:
    """The first of the messages that are not."""
    ours = exact(found, plan).select("topic", "partition", "offset")
    others = found.join(ours, ["topic", "partition", "offset"], "left_anti")
    rows = others.select("topic", "partition", "offset").orderBy("topic", "partition", "offset")
    return [Foreign(*row) for row in rows.limit(_NAMED).collect()]


def require_right(found: DataFrame, plan: BatchPlan, checksum_of: ValueOf) -> None:
    """Raises `KafkaDiffers`, naming the first message that is missing or is another."""
    rows = exact(found, plan).select("sequence", "topic", "partition", "offset", "checksum")
    messages = {row[0]: (f"{row[1]}[{row[2]}]@{row[3]}", int(row[4])) for row in rows.collect()}
    for commit in plan.commits:
        _require_right(commit, messages, checksum_of)


def _require_right(
    commit: CommitRecord, messages: dict[int, tuple[str, int]], checksum_of: ValueOf
) -> None:
    sequences: Sequence[int] = range(int(commit.first), commit.last_sequence + 1)
    missing = [sequence for sequence in sequences if sequence not in messages]
    if missing:
        topics = ", ".join(commit.counts)
        raise KafkaDiffers(
            f"the message of event {missing[0]} is missing in Kafka ({len(missing):,} of the"
            f" commit at {commit.received_at}, whose messages are in {topics}): it was removed, or"
            " its topic is compacted",
            hint=_HINT,
        )
    total = sum(messages[sequence][1] for sequence in sequences)
    if total == int(commit.checksum):
        return
    for sequence in sequences:
        place, checksum = messages[sequence]
        if checksum != checksum_of(sequence):
            raise KafkaDiffers(
                f"the message of event {sequence} at {place} is not what the ledger holds",
                hint=_HINT,
            )
    raise KafkaDiffers(
        f"the commit at {commit.received_at} has another checksum than its messages",
        hint=_HINT,
    )


def _is_of(plan: BatchPlan) -> Column:
    is_of = fn.col("sequence").between(plan.first_sequence, plan.last_sequence)
    return fn.coalesce(is_of, fn.lit(False))
