"""Where the messages end that are folded already: what others wrote behind them is found, too."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

import msgspec

from tidemark.config import Config
from tidemark.mirror.messages import COMMITS_TOPIC, decode_commit
from tidemark.mirror.position import ends, messages, reading
from tidemark.pipeline.kafka.errors import brokers_asked
from tidemark.pipeline.kafka.planning import Partition

# More would be felt at each start. What others wrote to a partition that none of these commits has
# a message in is not told then; what the mirror wrote is never overlooked.
_COMMITS_LOOKED_AT: Final = 2_000


class Reached(NamedTuple):
    """Behind the last message of each partition; and of all others, if that is known."""

    ends: dict[Partition, int]
    elsewhere: int | None


def reached_before(config: Config, ledger_id: str, offset: int) -> Reached:
    """How far the commits tell of messages that stand before an offset of their topic.

    Raises `KafkaUnavailable` if the brokers do not answer.
    """
    topic = config.mirror.topic_prefix + COMMITS_TOPIC
    found: dict[Partition, int] = {}
    with brokers_asked(), reading(config) as consumer:
        first, _ = ends(consumer, topic, 0)
        begin = max(first, offset - _COMMITS_LOOKED_AT)
        for message in messages(consumer, topic, 0, begin, offset):
            # These are folded: whoever has written something else there has done so since.
            with contextlib.suppress(msgspec.MsgspecError):
                commit = decode_commit(message.value() or b"")
                if commit.ledger_id != ledger_id:
                    continue
                for target, number, _, last in commit.runs():
                    partition = (target, number)
                    found[partition] = max(found.get(partition, 0), last + 1)
    return Reached(found, 0 if begin == 0 else None)
