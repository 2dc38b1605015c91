"""The settings of the mirror: every event in Kafka as well."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidemark.config.faults import Expected, Names
from tidemark.config.names import KAFKA_OPTION_PATTERN, TOPIC_PREFIX_PATTERN
from tidemark.config.section import MappingOf, Section
from tidemark.config.values import ClientOption

_MOST_PARTITIONS: Final = 1_000

TopicPrefix = Annotated[
    str,
    Field(pattern=TOPIC_PREFIX_PATTERN),
    Expected(
        "up to 64 letters, digits, dots, underscores and hyphens", pattern=TOPIC_PREFIX_PATTERN
    ),
]
Brokers = Annotated[
    str,
    Field(min_length=1, max_length=4096, pattern=r"^\S+$"),
    Expected("brokers such as `host-1:9092,host-2:9092`", pattern=r"^\S+$"),
]


class MirrorConfig(Section):
    """Every event in Kafka as well, once and in the order of the ledger."""

    enabled: bool = Field(
        default=False,
        description=(
            "Whether there is a mirror: `tidemark up` runs it, landing waits for it, health shows "
            "it and `tidemark verify --deep` reads its topics. `tidemark mirror` runs in any case."
        ),
    )
    bootstrap_servers: Brokers = Field(
        default="localhost:9092",
        description="The brokers to begin with, `host:port`, separated by commas.",
    )
    topic_prefix: TopicPrefix = Field(
        default="",
        description=(
            "What the names of all topics begin with; behind it stands the name of the stream, or "
            "`tidemark.commits`. Each ledger needs topics of its own."
        ),
    )
    partitions: int = Field(
        default=3,
        ge=1,
        le=_MOST_PARTITIONS,
        description="How many partitions a topic has that the mirror makes.",
    )
    replication_factor: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="How many brokers keep each partition of a topic that the mirror makes; by "
        "default as many as the brokers say.",
    )
    allow_short_retention: bool = Field(
        default=False,
        description=(
            "Whether topics are written to that do not keep their messages for ever, or only the "
            "last of each key."
        ),
    )
    options: Annotated[MappingOf[ClientOption], Names(KAFKA_OPTION_PATTERN)] = Field(
        default_factory=dict,
        # Some are passwords.
        repr=False,
        description=(
            "Options of librdkafka, such as `security.protocol: SASL_SSL`. Those on which the "
            "mirror's promises rest are refused."
        ),
    )
    java_options: Annotated[MappingOf[ClientOption], Names(KAFKA_OPTION_PATTERN)] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "The same for the client of Spark, where `pipeline.source` is `kafka`: options of its "
            "Kafka source, such as `kafka.security.protocol: SASL_SSL`."
        ),
    )
