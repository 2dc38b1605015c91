"""What is in Kafka: one message for each event, and one record for each commit.

Other programs rely on all of this; it is described for them in docs/reference/kafka.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tidemark.errors import EventRejected
from tidemark.ledger.port import CommitRow
from tidemark.ledger.spelling import SpeltEvents
from tidemark.timestamps import format_timestamp, parse_timestamp

try:
    # The same as that of `zlib`, in a fifth of the time.
    from isal.isal_zlib import crc32
except ImportError:
    # Whoever only reads what is in Kafka can do without.
    from zlib import crc32

COMMITS_TOPIC: Final = "tidemark.commits"
SEQUENCE_HEADER: Final = "tidemark-ingress-sequence"
MOST_COMMITS: Final = 2_000
"""As many as are sent in one transaction."""

_CHAIN_BYTES: Final = 32

Target: TypeAlias = tuple[str, int]
"""A topic and a partition of it."""
Headers: TypeAlias = dict[str, bytes]


class Messages(NamedTuple):
    """What is sent to topics, one column for each thing that a message has."""

    values: Sequence[bytes]
    keys: Sequence[bytes]
    timestamps_ms: Sequence[int]
    headers: Sequence[Headers]


def event_messages(commits: Iterable[CommitRow], events: SpeltEvents) -> Messages:
    """The events of commits as they are sent to the topics of their streams."""
    first = events.first_sequence
    sequences = [b"%d" % number for number in range(first, first + len(events.values))]
    keys = sequences
    if events.causality_keys.count(None) < len(sequences):
        keys = [
            sequence if key is None else key.encode()
            for sequence, key in zip(sequences, events.causality_keys, strict=True)
        ]
    received_at_ms: list[int] = []
    for commit in commits:
        count = commit.last_sequence - commit.first_sequence + 1
        received_at_ms += [commit.received_at // 1000] * count
    return Messages(events.values, keys, received_at_ms, _SequenceHeaders(sequences))


class _SequenceHeaders(Sequence[Headers]):
    """Those of each event, made when they are asked for: kept, they are as many objects as the rest
    of all messages."""

    def __init__(self, sequences: Sequence[bytes]) -> None:
        self._sequences = sequences

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Headers]:
        return ({SEQUENCE_HEADER: sequence} for sequence in self._sequences)

    def __getitem__(self, index: Any) -> Any:
        return {SEQUENCE_HEADER: self._sequences[index]}


Run: TypeAlias = tuple[int, int]
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
    offsets: dict[str, dict[str, list[tuple[str, str]]]]
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


encode_commit: Final = msgspec.json.Encoder().encode
_decode_commit: Final = msgspec.json.Decoder(CommitRecord).decode


def decode_commit(value: bytes) -> CommitRecord:
    """Raises `msgspec.MsgspecError` for what is none, or says what cannot be."""
    try:
        commit = _decode_commit(value)
    except (UnicodeDecodeError, RecursionError) as error:
        # Bytes that are no text, and what is nested too deep: msgspec has no errors of its own.
        raise msgspec.DecodeError(str(error)) from error
    try:
        numbers = int(commit.checksum), *map(int, commit.totals.values())
        is_sound = (
            commit.received_at_us >= 0
            and min(numbers) >= 0
            and len(bytes.fromhex(commit.chain)) == _CHAIN_BYTES
            and _counted(commit) == commit.counts
            and all(0 <= first <= last for _, _, first, last in commit.runs())
            and sum(commit.counts.values()) == commit.last_sequence - int(commit.first) + 1
        )
    except (ValueError, EventRejected) as error:
        raise msgspec.ValidationError(str(error)) from error
    if not is_sound:
        raise msgspec.ValidationError("what it says does not agree")
    return commit


def _counted(commit: CommitRecord) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, _, first, last in commit.runs():
        counts[topic] = counts.get(topic, 0) + last - first + 1
    return counts


def commit_messages(commits: Iterable[CommitRow], records: Sequence[CommitRecord]) -> Messages:
    """Records of commits as they are sent to their topic."""
    times = [commit.received_at for commit in commits]
    return Messages(
        [*map(encode_commit, records)],
        [b"%d" % received_at for received_at in times],
        [received_at // 1000 for received_at in times],
        [{}] * len(records),
    )


def commit_record(
    ledger_id: str,
    commit: CommitRow,
    places: Mapping[Target, Sequence[Run]],
    checksum: int,
    totals: Mapping[str, int],
) -> CommitRecord:
    """`places` has the offsets of the commit's messages in each partition."""
    counts: dict[str, int] = {}
    offsets: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for (topic, partition), runs in places.items():
        for first, last in runs:
            counts[topic] = counts.get(topic, 0) + last - first + 1
        spelt_runs = [(str(first), str(last)) for first, last in runs]
        offsets.setdefault(topic, {})[str(partition)] = spelt_runs
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


checksum_of: Final = crc32
"""It finds what was altered by a fault. What somebody forges, the chain of the ledger finds."""


def runs_of(offsets: Sequence[int]) -> list[Run]:
    """Rising offsets, where those that follow one another are one run."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], offsets[-1])]
    runs: list[Run] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs
