"""The mirror's topics through Spark's own connector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from tidemark.config import Config
from tidemark.mirror.messages import COMMITS_TOPIC, SEQUENCE_HEADER, CommitRecord
from tidemark.pipeline.decode.json_text import PARSER, value_at, value_begin
from tidemark.pipeline.kafka.planning import BatchPlan, Partition, Range
from tidemark.pipeline.output.batch import Frontier
from tidemark.pipeline.source.schema import (
    EVENT,
    EVENT_COLUMNS,
    SPARK_SCHEMA,
    commit_batch,
)

_FORMAT: Final = "kafka"
# As the message names them; the rest of its members plays no part in what is folded.
_MEMBERS: Final = {
    "ingress_sequence": "ingressSequence",
    "received_at": "receivedAt",
    "occurred_at": "occurredAt",
    "tenant_id": "tenantId",
    "stream": "stream",
    "idempotency_key": "idempotencyKey",
    "metric": "metric",
    "customer_ref": "customerRef",
    "resource_id": "resourceId",
    "quantity": "quantity",
    "causality_key": "causalityKey",
    "source": "source",
    "control": "control",
    "target_key": "target",
}
_CONTENTS: Final = ("meta", "data")
_UNREADABLE: Final = "dataText"
_ENVELOPE: Final = ", ".join(f"`{name}` string" for name in (*_MEMBERS.values(), _UNREADABLE))
_TIMES: Final = ("received_at", "occurred_at")
# All of them are held in memory, and as it is read each names every topic: some kilobytes where
# there are many.
_COMMITS_AT_ONCE: Final = 50_000
# The mirror writes a message without a value where it has to end what Kafka did not.
_SAYS_SOMETHING: Final = "value IS NOT NULL"
# Others may have added partitions while it is read: the mirror says so.
_OF_COMMITS: Final = f"{_SAYS_SOMETHING} AND `partition` = 0"


def commits_stream(
    spark: SparkSession, config: Config, start: Frontier | None, max_rows: int
) -> DataFrame:
    """The topic of commits as it grows, from about the frontier on."""
    topic = config.mirror.topic_prefix + COMMITS_TOPIC
    reader = (
        spark.readStream.format(_FORMAT).options(**_connection(config)).option("subscribe", topic)
    )
    if start is None:
        reader = reader.option("startingOffsets", "earliest")
    else:
        # A record has the time of its commit, in milliseconds.
        begin = json.dumps({topic: {"0": start.received_at // 1000}})
        reader = reader.option("startingOffsetsByTimestamp", begin).option(
            "startingOffsetsByTimestampStrategy", "latest"
        )
    # A commit has an event or more, but for those that only say that time passed.
    at_once = min(max_rows, _COMMITS_AT_ONCE)
    found = reader.option("maxOffsetsPerTrigger", str(at_once)).load()
    return found.filter(_OF_COMMITS).select("offset", "value")


def messages(
    spark: SparkSession,
    config: Config,
    ranges: Mapping[Partition, Range],
    parts: int = 0,
) -> DataFrame:
    """What is committed in these ranges: `topic, partition, offset, value, sequence, checksum`.

    `sequence` is null for a message that the mirror has not written. It is read in so many parts,
    if there are fewer partitions than that.
    """
    reader = (
        spark.read.format(_FORMAT)
        .options(**_connection(config))
        .options(
            assign=_by_topic(dict.fromkeys(ranges)),
            startingOffsets=_by_topic({p: found.first for p, found in ranges.items()}),
            endingOffsets=_by_topic({p: found.end for p, found in ranges.items()}),
            includeHeaders="true",
        )
    )
    if parts > len(ranges):
        reader = reader.option("minPartitions", str(parts))
    header = fn.filter("headers", lambda header: header["key"] == SEQUENCE_HEADER)
    read = reader.load()
    return (
        # Spark does not take a list of no partitions for what it is.
        (read if ranges else read.limit(0))
        .filter(_SAYS_SOMETHING)
        .select(
            "topic",
            "partition",
            "offset",
            "value",
            fn.try_element_at(header, fn.lit(1))["value"]
            .cast("string")
            .try_cast("bigint")
            .alias("sequence"),
            fn.crc32("value").alias("checksum"),
        )
    )


def source_rows(found: DataFrame, plan: BatchPlan, before: Frontier | None) -> DataFrame:
    """Messages of the mirror and the commits they belong to, as rows of the ledger's source."""
    spark = found.sparkSession
    commits = spark.createDataFrame(_commit_rows(plan.commits, before))
    times = fn.broadcast(commits.select("received_at", "previous_received_at"))
    parsed = _parsed(found.select(fn.col("value").cast("string").alias("text")))
    columns = {name: _column(name) for name in EVENT_COLUMNS}
    events = parsed.select(
        fn.lit(EVENT).alias("record"), *(column.alias(n) for n, column in columns.items())
    ).join(times, "received_at", "left")
    return events.unionByName(commits, allowMissingColumns=True).select(SPARK_SCHEMA.names)


def _parsed(texts: DataFrame) -> DataFrame:
    """The members of messages as `event`, and as `content` what was sent freely, as it was written.

    The parser does not see that: it would spell its numbers otherwise, and not take all of it.
    """
    text, begin, content = fn.col("text"), fn.col("begin"), fn.col("content")
    behind = fn.substring(text, begin + fn.length(content), fn.length(text))
    rest = fn.concat(fn.substring(text, fn.lit(1), begin - 1), fn.lit("null"), behind)
    return (
        texts.select(text, value_begin(text, _CONTENTS).alias("begin"))
        .select("*", value_at(text, begin).alias("content"))
        .select("content", fn.coalesce(rest, text).alias("rest"))
        .select("content", fn.from_json("rest", _ENVELOPE, PARSER).alias("event"))
    )


def _column(name: str) -> Column:
    if name == "data":
        return fn.coalesce("content", fn.col("event")[_UNREADABLE])
    text = fn.col("event")[_MEMBERS[name]]
    if name in _TIMES:
        return fn.unix_micros(text.try_cast("timestamp"))
    return text.try_cast(EVENT_COLUMNS[name])


def _commit_rows(commits: Sequence[CommitRecord], before: Frontier | None) -> pa.Table:
    rows = [
        (c.received_at_us, int(c.first), c.last_sequence, bytes.fromhex(c.chain)) for c in commits
    ]
    received_at, chain = (None, bytes(32)) if before is None else (before.received_at, before.chain)
    return pa.Table.from_batches([commit_batch(rows, received_at, chain)])


def _by_topic(values: Mapping[Partition, int | None]) -> str:
    """Numbers by topic and partition as Spark wants them, or lists of partitions."""
    topics: dict[str, dict[str, int | None]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[str(partition)] = value
    if all(value is None for value in values.values()):
        return json.dumps({topic: sorted(map(int, found)) for topic, found in topics.items()})
    return json.dumps(topics)


def _connection(config: Config) -> dict[str, str]:
    return {
        **{name: str(value) for name, value in config.mirror.java_options.items()},
        "kafka.bootstrap.servers": config.mirror.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        # Behind the last message of a transaction there are marks, at which it would wait for more.
        "kafka.fetch.max.wait.ms": "20",
        "failOnDataLoss": "true",
        # One that is made by being read has the settings of the broker, and hides that it was gone.
        "kafka.allow.auto.create.topics": "false",
    }
