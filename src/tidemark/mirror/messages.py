"""What is in Kafka: one message for each event, and one record for each commit.

Other programs rely on all of this; it is described for them in docs/reference/kafka.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from tidemark.ledger.port import CommitRow, LedgerStore, SpeltEvent
from tidemark.timestamps import format_timestamp, parse_timestamp

COMMITS_TOPIC: Final = "tidemark.commits"
SEQUENCE_HEADER: Final = "tidemark-ingress-sequence"

_encode = msgspec.json.Encoder().encode


class Message(NamedTuple):
    """What is sent to a topic."""

    key: bytes
    value: bytes
    timestamp_ms: int
    headers: list[tuple[str, bytes]]


def event_message(event: SpeltEvent) -> Message:
    """One event as it is sent to the topic of its stream."""
    sequence = b"%d" % event.ingress_sequence
    key = event.causality_key
    return Message(
        sequence if key is None else key.encode(),
        event.value,
        event.received_at // 1000,
        [(SEQUENCE_HEADER, sequence)],
    )


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
    return Message(b"%d" % received_at, _encode(record), received_at // 1000, [])


def commit_record(
    ledger_id: str,
    commit: CommitRow,
    places: Mapping[str, Mapping[int, list[int]]],
    checksum: int,
    totals: Mapping[str, int],
) -> CommitRecord:
    """`places` has the offsets of the commit's messages in each partition, in their order."""
    return CommitRecord(
        ledger_id,
        format_timestamp(commit.received_at),
        str(commit.first_sequence),
        str(commit.last_sequence),
        commit.chain.hex(),
        str(checksum),
        {topic: sum(map(len, found.values())) for topic, found in places.items()},
        {
            topic: {str(partition): runs_of(offsets) for partition, offsets in found.items()}
            for topic, found in places.items()
        },
        {topic: str(total) for topic, total in totals.items()},
    )


def checksum_of(value: bytes) -> int:
    """It finds what was altered by a fault. What somebody forges, the chain of the ledger finds."""
    return zlib.crc32(value)


async def mirrored_checksum(ledger: LedgerStore, sequence: int) -> int | None:
    """That of the message of an event; None if there is none."""
    found = (await ledger.read_unspelt(sequence - 1, sequence)).spelt()
    return checksum_of(found[0].value) if found else None


def runs_of(offsets: Iterable[int]) -> list[Run]:
    """Rising offsets, where those that follow one another are one run."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return [(str(first), str(last)) for first, last in runs]
