"""What is in Kafka: one message for each event, and one record for each commit.

Other programs rely on all of this; it is described for them in docs/reference/kafka.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Final, TypeAlias

import msgspec

from tidemark.ledger.port import CommitRow, LedgerStore
from tidemark.ledger.spelling import SpeltEvents, spelt
from tidemark.timestamps import format_timestamp, parse_timestamp

COMMITS_TOPIC: Final = "tidemark.commits"
SEQUENCE_HEADER: Final = "tidemark-ingress-sequence"
MOST_COMMITS: Final = 2_000
"""As many as are sent in one transaction."""

_encode = msgspec.json.Encoder().encode


Target: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""
Message: TypeAlias = tuple[bytes, bytes, int, list[tuple[str, bytes]]]
"""What is sent to a topic: value, key, timestamp in milliseconds, headers."""


def event_messages(commits: Iterable[CommitRow], events: SpeltEvents) -> Iterator[Message]:
    """The events of commits as they are sent to the topics of their streams."""
    first = events.first_sequence
    sequences = [b"%d" % number for number in range(first, first + len(events.values))]
    keys = [
        sequence if key is None else key.encode()
        for sequence, key in zip(sequences, events.causality_keys, strict=True)
    ]
    received_at_ms = chain.from_iterable(
        repeat(commit.received_at // 1000, commit.last_sequence - commit.first_sequence + 1)
        for commit in commits
    )
    headers = [[(SEQUENCE_HEADER, sequence)] for sequence in sequences]
    return zip(events.values, keys, received_at_ms, headers, strict=True)


Run = tuple[str, str]
"""Offsets that follow one another, from the first to the last."""


class CommitRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One commit of the ledger, in the topic of commits. 64-bit numbers are strings.

    `counts` is how many messages the commit has in each topic, `offsets` where they are in each
    partition of it, and `totals` how many each topic has with them. `checksum` is the sum of the
    CRC-32 of each message's value.
    """

    ledger_id: str
    received_at: str
    first: str
    last: str
    chain: str
    checksum: str
    counts: dict[str, int]
    offsets: dict[str, dict[str, list[Run]]]
    totals: dict[str, str]

    @property
    def received_at_us(self) -> int:
        return parse_timestamp(self.received_at)

    @property
    def last_sequence(self) -> int:
        return int(self.last)

    def runs(self) -> Iterable[tuple[str, int, int, int]]:
        """Topic, partition, first and last offset of all there are."""
        for topic, partitions in self.offsets.items():
            for partition, runs in partitions.items():
                for first, last in runs:
                    yield topic, int(partition), int(first), int(last)


decode_commit: Final = msgspec.json.Decoder(CommitRecord).decode


def encode_commit(record: CommitRecord) -> Message:
    received_at = record.received_at_us
    return _encode(record), b"%d" % received_at, received_at // 1000, []


def commit_record(
    ledger_id: str,
    commit: CommitRow,
    places: Mapping[Target, Sequence[int]],
    checksum: int,
    totals: Mapping[str, int],
) -> CommitRecord:
    """`places` has the offsets of the commit's messages in each partition, in their order."""
    counts: dict[str, int] = {}
    offsets: dict[str, dict[str, list[Run]]] = {}
    for (topic, partition), found in places.items():
        counts[topic] = counts.get(topic, 0) + len(found)
        offsets.setdefault(topic, {})[str(partition)] = runs_of(found)
    return CommitRecord(
        ledger_id,
        format_timestamp(commit.received_at),
        str(commit.first_sequence),
        str(commit.last_sequence),
        commit.chain.hex(),
        str(checksum),
        counts,
        offsets,
        {topic: str(total) for topic, total in totals.items()},
    )


checksum_of: Final = zlib.crc32
"""It finds what was altered by a fault. What somebody forges, the chain of the ledger finds."""


async def mirrored_checksum(ledger: LedgerStore, sequence: int) -> int | None:
    """That of the message of an event; None if there is none."""
    if (await ledger.head()).last_sequence < sequence:
        return None
    text = await ledger.read_text(sequence - 1, sequence)
    [value] = spelt([text], sequence - 1, sequence).values
    return checksum_of(value)


def runs_of(offsets: Sequence[int]) -> list[Run]:
    """Rising offsets, where those that follow one another are one run."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(str(offsets[0]), str(offsets[-1]))]
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return [(str(first), str(last)) for first, last in runs]
