"""What the settings of the mirror must be, beyond their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidemark.config.problems import shorten
from tidemark.config.raw_settings import Finding, Rule, mapping_of, sections

# What the mirror's promises rest on, and so is no choice; and where it is one, which setting it is.
_PINNED: Final = {
    "bootstrap.servers": "Use `mirror.bootstrap_servers`.",
    "metadata.broker.list": "Use `mirror.bootstrap_servers`.",
    **dict.fromkeys(
        ("transactional.id", "group.id", "enable.idempotence", "acks", "request.required.acks"),
        "Remove it: each event must be in Kafka once.",
    ),
    **dict.fromkeys(
        (
            "partitioner",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "queuing.strategy",
        ),
        "Remove it: events must be in Kafka in their order.",
    ),
    **dict.fromkeys(
        (
            "isolation.level",
            "enable.auto.commit",
            "auto.commit.enable",
            "auto.offset.reset",
            "enable.partition.eof",
        ),
        "Remove it: only what is committed may be read, and all of it.",
    ),
    **dict.fromkeys(
        ("delivery.report.only.error", "enabled_events"),
        "Remove it: the mirror has to be told where each event is.",
    ),
    **dict.fromkeys(
        ("message.timeout.ms", "delivery.timeout.ms"),
        "Use `transaction.timeout.ms`: a transaction is sent whole, or given up.",
    ),
    "message.max.bytes": "Use `ingest.max_event_bytes`: the mirror sends whatever is let in.",
    # It makes of a message that is refused the end of the client.
    "enable.gapless.guarantee": "Remove it: the mirror leaves no gap by itself.",
    "test.mock.num.brokers": "Remove it: events would be nowhere.",
    "allow.auto.create.topics": "Remove it: the mirror makes its topics, which keep everything.",
}


def options_of_kafka_are_free(raw: dict[str, Any]) -> Iterator[Finding]:
    options = mapping_of(raw, "mirror").get("options")
    for key in options if isinstance(options, dict) else ():
        hint = _PINNED.get(key)
        if hint is not None:
            message = "expected an option that is free to set, found one that the mirror sets"
            yield ("mirror", "options", key), message, hint


def topics_are_told_apart(raw: dict[str, Any]) -> Iterator[Finding]:
    """Kafka takes a dot and an underscore for the same in some names, and refuses the second."""
    if mapping_of(raw, "mirror").get("enabled") is not True:
        return
    seen: dict[str, str] = {}
    for name, _ in sections(raw, "streams"):
        folded = name.replace(".", "_")
        other = seen.setdefault(folded, name)
        if other != name:
            message = (
                f"expected a name that Kafka tells from {shorten(other)}, found {shorten(name)}"
            )
            yield ("streams", name), message, "They differ only in `.` and `_`: rename one of them."


MIRROR_RULES: Final[tuple[Rule, ...]] = (options_of_kafka_are_free, topics_are_told_apart)
