"""Which partition a message goes to: all of a run to one, the others in turn."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tidemark.ledger.port import SpeltEvent

_RUNS_KEPT: Final = 100_000
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_BITS_32: Final = 0xFFFFFFFF


def partition_of(row: SpeltEvent, partitions: int) -> int:
    if row.causality_key is None:
        return row.ingress_sequence % partitions
    return partition_of_key(row.causality_key) % partitions


@lru_cache(maxsize=_RUNS_KEPT)
def partition_of_key(key: str) -> int:
    """What Java's clients divide by the number of partitions."""
    return murmur2(key.encode()) & 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of Kafka's clients, as 32 bits without a sign."""
    length = len(data)
    found = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _BITS_32
        part ^= part >> 24
        found = (found * _FACTOR & _BITS_32) ^ (part * _FACTOR & _BITS_32)
    rest = data[whole:]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _BITS_32
    found = (found ^ (found >> 13)) * _FACTOR & _BITS_32
    return found ^ (found >> 15)
