"""What a query died of that Kafka or Spark's connector to it had a part in: there is only text."""

from __future__ import annotations

import re
from typing import Final

from tidemark.errors import ConfigError, TidemarkError
from tidemark.pipeline.kafka.errors import KafkaDiffers, KafkaUnavailable
from tidemark.pipeline.kafka.places import TopicPlace

_GONE: Final = "data may have been lost"
_WILD_TIME: Final = re.compile(
    r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that overflows"
)
# Behind it, Spark shows the plan of the query, which names the connector whatever has happened.
_PLAN: Final = "=== Streaming Query ==="
_PACKAGES: Final = r"org\.apache\.(?:kafka|spark\.(?:sql\.)?kafka010)\."
# What the connector itself finds wrong has the name of no class with it.
_FROM_KAFKA: Final = re.compile(
    f"{_PACKAGES}|Partitions specified for Kafka|Kafka data source|partitions in Kafka topic"
    "|The (?:resolved|specified) start offset"
)
# Java puts slashes into the name of a class that it does not find.
_NOT_FOUND: Final = re.compile(
    "KAFKA_DATA_SOURCE_NOT_ENABLED"
    f"|(?:NoClassDefFoundError|ClassNotFoundException): .*{_PACKAGES}"
    "|org/apache/(?:kafka|spark/(?:sql/)?kafka010|commons/pool2)/"
)


def spark_failure(error: BaseException, reached: int) -> TidemarkError | None:
    """What to raise instead; None if Kafka had no part in it. `reached` is the last sequence that
    is folded."""
    said = str(error).partition(_PLAN)[0]
    if (line := _line_with(_NOT_FOUND, said)) is not None:
        return ConfigError(
            f"Spark does not have its connector to Kafka, or not all of it: {line}",
            hint="Name all of its archives as spark.jars in spark.options (docs/howto/kafka.md;"
            " `make jars` brings them). Without spark.jars, Spark fetches them from Maven Central.",
            field="spark.options",
        )
    if _GONE in said:
        return KafkaDiffers(
            f"messages behind event {reached} were removed from Kafka while they were read",
            hint="Nothing behind them is folded. The pipeline looks again, and names the first that"
            " is missing.",
        )
    if (wild := _WILD_TIME.search(said)) is not None:
        topic, partition, offset, time = wild.groups()
        place = TopicPlace(topic, int(partition), int(offset))
        return KafkaDiffers(
            f"the message at {place} has the time {time} ms, which Spark cannot read: it was not"
            " written by the mirror",
            hint="Spark reads nothing beside it either. Have the topics mirrored anew"
            " (docs/howto/kafka.md), or set pipeline.source to ledger.",
        )
    if (line := _line_with(_FROM_KAFKA, said)) is not None:
        return KafkaUnavailable(
            f"Kafka cannot be read: {line}",
            hint="Look at the brokers in mirror.bootstrap_servers, and at spark/spark.log in the"
            " state directory; the pipeline goes on by itself.",
        )
    return None


def _line_with(pattern: re.Pattern[str], said: str) -> str | None:
    """The first there is, without what Py4J puts before it."""
    lines = (line for line in said.splitlines() if pattern.search(line))
    found = next(lines, None)
    return None if found is None else found.strip().removeprefix(": ")
